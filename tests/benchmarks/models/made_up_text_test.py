from __future__ import annotations

import numpy as np
from absl.testing import absltest

from benchmarks.models.made_up_text import made_up_text


class MadeUpTextTest(absltest.TestCase):
    def test_same_seed_gives_the_same_text_and_another_seed_another(self):
        first, again, other = (
            made_up_text(20, (4, 30), np.random.default_rng(seed)) for seed in (0, 0, 1)
        )
        np.testing.assert_array_equal(first, again)
        self.assertTrue((first != other).any())
        self.assertEqual(first.dtype, np.int32)
        self.assertEqual(first.shape, (4, 30))
        self.assertBetween(int(first.min()), 0, 19)
        self.assertBetween(int(first.max()), 0, 19)

    def test_a_token_is_mostly_followed_by_its_one_successor(self):
        text = made_up_text(20, (200, 50), np.random.default_rng(0))
        counts = np.zeros((20, 20))
        np.add.at(counts, (text[:, :-1].ravel(), text[:, 1:].ravel()), 1)
        shares = counts.max(axis=1) / counts.sum(axis=1)
        self.assertBetween(shares.min(), 0.85, 0.97)
        # No two tokens have the same successor.
        self.assertLen(set(counts.argmax(axis=1).tolist()), 20)

    def test_the_language_does_not_depend_on_the_seed(self):
        successors = []
        for seed in (0, 1):
            text = made_up_text(10, (100, 50), np.random.default_rng(seed))
            counts = np.zeros((10, 10))
            np.add.at(counts, (text[:, :-1].ravel(), text[:, 1:].ravel()), 1)
            successors.append(counts.argmax(axis=1))
        np.testing.assert_array_equal(*successors)


if __name__ == "__main__":
    absltest.main()
