from __future__ import annotations

import numpy as np
from absl.testing import absltest

from benchmarks.models.made_up_text import make_up_text, make_up_translations


class MadeUpTextTest(absltest.TestCase):
    def test_a_token_is_mostly_followed_by_its_one_successor_whatever_the_seed(self):
        successors = []
        for seed in (0, 1):
            text = make_up_text(20, (200, 50), np.random.default_rng(seed))
            counts = np.zeros((20, 20))
            np.add.at(counts, (text[:, :-1].ravel(), text[:, 1:].ravel()), 1)
            shares = counts.max(axis=1) / counts.sum(axis=1)
            self.assertBetween(shares.min(), 0.85, 0.97)
            successors.append(counts.argmax(axis=1))
        np.testing.assert_array_equal(*successors)
        # No two tokens have the same successor.
        self.assertLen(set(successors[0].tolist()), 20)

    def test_a_translation_is_the_sentence_from_its_end_in_other_words(self):
        random = np.random.default_rng(0)
        source, target = make_up_translations((20, 18), (4, 5), 32, random)
        self.assertEqual((source.shape, target.shape), ((32, 4), (32, 6)))
        np.testing.assert_array_equal(target[:, 0], 0)
        self.assertBetween(target[:, 1:].min(), 1, target[:, 1:].max())
        dictionary = {}
        for sentence, translation in zip(source, target, strict=True):
            # The translation is one word longer than the sentence.
            backward = [*sentence[::-1], sentence[-1]]
            for word, other in zip(backward, translation[1:], strict=True):
                self.assertEqual(dictionary.setdefault(word, other), other)


if __name__ == "__main__":
    absltest.main()
