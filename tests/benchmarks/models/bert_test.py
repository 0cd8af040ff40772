"""BERT has the parameters it should, hides what it should, and is fed pairs of sentences."""

from __future__ import annotations

import functools
import itertools

import numpy as np
import tensorflow as tf

from benchmarks.models import bert
from benchmarks.models.training_model import TrainingModel
from tests.benchmarks.models.sessions import build_forward, plain_session, variable_sizes

LENGTH, VOCABULARY = 16, 23


@functools.cache
def small_model() -> TrainingModel:
    """A model without dropout."""
    sizes = {"layers": 2, "units": 16, "heads": 2, "length": LENGTH, "batch": 16}
    return build_forward(bert, **sizes, vocabulary=VOCABULARY, dropout=0.0)


def losses(*all_feeds: dict[str, np.ndarray]) -> list[float]:
    model = small_model()
    with plain_session(model.graph) as session:
        session.run(model.initializer)
        return [session.run(model.loss, feeds) for feeds in all_feeds]


class BertTest(tf.test.TestCase):
    def test_full_size_has_the_parameters_of_bert_base(self):
        sizes = variable_sizes(build_forward(bert))
        # 109,482,240 of the encoder with its pooler, and the heads of both tasks.
        heads = (768 * 768 + 768 + 2 * 768 + 30522) + (2 * 768 + 2)
        self.assertEqual(sum(sizes.values()), 109_482_240 + heads)

    def test_tokens_that_only_fill_up_change_nothing(self):
        feeds = next(small_model().feeds())
        feeds["used:0"][:, -3:] = 0
        feeds["positions:0"] = np.minimum(feeds["positions:0"], LENGTH - 4)
        changed = {**feeds, "tokens:0": feeds["tokens:0"].copy()}
        changed["tokens:0"][:, -3:] = 5
        seen = {**changed, "used:0": np.ones_like(feeds["used:0"])}
        values = losses(feeds, changed, seen)
        self.assertNear(values[0], values[1], 1e-6)
        self.assertNotAlmostEqual(values[1], values[2], places=6)

    def test_predictions_that_only_fill_up_change_nothing(self):
        feeds = next(small_model().feeds())
        feeds["weights:0"][:, -1] = 0
        changed = {**feeds, "words:0": feeds["words:0"].copy()}
        changed["words:0"][:, -1] = 3
        self.assertNear(*losses(feeds, changed), 1e-6)

    def test_feeds_are_two_sentences_of_which_some_words_are_masked(self):
        batches = list(itertools.islice(small_model().feeds(), 40))
        tokens, positions, words, follows = (
            np.concatenate([feeds[f"{name}:0"] for feeds in batches])
            for name in ("tokens", "positions", "words", "follows")
        )
        self.assertAllInRange(tokens, 0, VOCABULARY - 1)
        self.assertAllInRange(words, 3, VOCABULARY - 1)
        # The start, 6 words, a separator, 7 words, a separator.
        self.assertAllEqual(tokens[:, 0], np.zeros(len(tokens)))
        self.assertAllEqual(tokens[:, [7, 15]], np.ones((len(tokens), 2)))
        self.assertAllEqual(batches[0]["segments:0"][0], [0] * 8 + [1] * 8)
        masked = np.take_along_axis(tokens, positions, 1)
        self.assertNear((masked == 2).mean(), 0.8, 0.04)
        # One of ten is as it was, and so is now and then a word that was drawn.
        self.assertNear((masked == words).mean(), 0.1 + 0.1 / 20, 0.03)
        self.assertNear((tokens == 2).mean(), 0.8 * 3 / 16, 0.01)
        self.assertNear(follows.mean(), 0.5, 0.1)
        # Words go on from sentence to sentence where the second follows the first.
        np.put_along_axis(tokens, positions, words, 1)
        successors = np.random.default_rng(0).permutation(VOCABULARY - 3) + 3
        goes_on = successors[tokens[:, 6] - 3] == tokens[:, 8]
        self.assertGreater(goes_on[follows == 0].mean(), 0.8)
        self.assertLess(goes_on[follows == 1].mean(), 0.4)


if __name__ == "__main__":
    tf.test.main()
