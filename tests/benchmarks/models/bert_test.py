"""BERT is a real training graph: it has the parameters it should, hides what it should, learns."""

from __future__ import annotations

import functools
import itertools

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from benchmarks.models import bert
from tests.benchmarks.models.sessions import plain_session

tf1 = tf.compat.v1

SMALL = {"layers": 2, "units": 16, "heads": 2, "length": 16, "batch": 16, "vocabulary": 23}


@functools.cache
def small_model() -> bert.Bert:
    return bert.build(**SMALL, dropout=0.0)


class BertTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters((True, 0.1), (False, 0.0))
    def test_loss_of_a_batch_falls(self, use_resource, dropout):
        model = bert.build(**SMALL, use_resource=use_resource, dropout=dropout, learning_rate=0.01)
        feeds = next(model.feeds(seed=3))
        with plain_session(model.graph) as session:
            session.run(model.initializer)
            values = [session.run([model.loss, model.train_op], feeds)[0] for _ in range(40)]
        # Before learning, all words are about equally likely, and so is whether sentences follow.
        self.assertNear(values[0], np.log(SMALL["vocabulary"]) + np.log(2), 0.1)
        self.assertLess(np.mean(values[-5:]), values[0] - 0.4, values)

    def test_without_dropout_a_step_computes_the_same_again(self):
        model = small_model()
        feeds = next(model.feeds())
        with plain_session(model.graph) as session:
            session.run(model.initializer)
            self.assertEqual(*(session.run(model.loss, feeds) for _ in range(2)))

    def test_full_size_has_the_parameters_of_bert_base(self):
        model = bert.build()
        operations = model.graph.get_operations()
        with model.graph.as_default():
            sizes = {v.op.name: v.shape.num_elements() for v in tf1.trainable_variables()}
        # 109,482,240 of the encoder with its pooler, and the heads of both tasks.
        heads = (768 * 768 + 768 + 2 * 768 + 30522) + (2 * 768 + 2)
        self.assertEqual(sum(sizes.values()), 109_482_240 + heads)
        # As the paper on its placement has it.
        self.assertGreater(len(operations), 10_000)
        self.assertEqual(model.predictions, 58)

    def test_tokens_that_only_fill_up_change_nothing(self):
        model = small_model()
        feeds = next(model.feeds())
        feeds[model.used][:, -3:] = 0
        feeds[model.positions] = np.minimum(feeds[model.positions], SMALL["length"] - 4)
        changed = dict(feeds)
        changed[model.tokens] = feeds[model.tokens].copy()
        changed[model.tokens][:, -3:] = 5
        seen = {**changed, model.used: np.ones_like(feeds[model.used])}
        with plain_session(model.graph) as session:
            session.run(model.initializer)
            values = [session.run(model.loss, each) for each in (feeds, changed, seen)]
        self.assertNear(values[0], values[1], 1e-6)
        self.assertNotAlmostEqual(values[1], values[2], places=6)

    def test_predictions_that_only_fill_up_change_nothing(self):
        model = small_model()
        feeds = next(model.feeds())
        feeds[model.weights][:, -1] = 0
        changed = {**feeds, model.words: feeds[model.words].copy()}
        changed[model.words][:, -1] = 3
        with plain_session(model.graph) as session:
            session.run(model.initializer)
            values = [session.run(model.loss, each) for each in (feeds, changed)]
        self.assertNear(*values, 1e-6)

    def test_feeds_are_two_sentences_of_which_some_words_are_masked(self):
        model = small_model()
        batches = list(itertools.islice(model.feeds(), 40))
        tokens = np.concatenate([feeds[model.tokens] for feeds in batches])
        positions = np.concatenate([feeds[model.positions] for feeds in batches])
        words = np.concatenate([feeds[model.words] for feeds in batches])
        self.assertAllInRange(tokens, 0, SMALL["vocabulary"] - 1)
        self.assertAllInRange(words, 3, SMALL["vocabulary"] - 1)
        # The start, 6 words, a separator, 7 words, a separator.
        self.assertAllEqual(tokens[:, 0], np.zeros(len(tokens)))
        self.assertAllEqual(tokens[:, [7, 15]], np.ones((len(tokens), 2)))
        self.assertAllEqual(batches[0][model.segments][0], [0] * 8 + [1] * 8)
        masked = np.take_along_axis(tokens, positions, 1)
        self.assertNear((masked == 2).mean(), 0.8, 0.04)
        # One of ten is as it was, and so is now and then a word that was drawn.
        self.assertNear((masked == words).mean(), 0.1 + 0.1 / 20, 0.03)
        self.assertNear((tokens == 2).mean(), 0.8 * 3 / 16, 0.01)
        follows = np.concatenate([feeds[model.follows] for feeds in batches])
        self.assertNear(follows.mean(), 0.5, 0.1)

    def test_second_sentences_go_on_where_the_first_end_if_they_follow(self):
        model = small_model()
        successors = np.random.default_rng(0).permutation(SMALL["vocabulary"] - 3) + 3
        goes_on: dict[int, list[bool]] = {0: [], 1: []}
        for feeds in itertools.islice(model.feeds(), 40):
            tokens = feeds[model.tokens].copy()
            np.put_along_axis(tokens, feeds[model.positions], feeds[model.words], 1)
            for row, label in zip(tokens, feeds[model.follows], strict=True):
                goes_on[int(label)].append(successors[row[6] - 3] == row[8])
        self.assertGreater(np.mean(goes_on[0]), 0.8)
        self.assertLess(np.mean(goes_on[1]), 0.4)

    def test_same_seed_gives_the_same_feeds_and_another_seed_others(self):
        model = small_model()
        first, again, other = (next(model.feeds(seed)) for seed in (0, 0, 1))
        for name in first:
            self.assertAllEqual(first[name], again[name])
        self.assertNotAllEqual(first[model.tokens], other[model.tokens])

    def test_training_operation_is_in_its_collection(self):
        model = small_model()
        self.assertEqual(
            model.graph.get_collection("train_op"),
            [model.graph.get_operation_by_name(model.train_op)],
        )

    @parameterized.parameters(
        ({"layers": 0}, "layers must be at least 1, not 0"),
        ({"vocabulary": 3}, "vocabulary must be at least 4, not 3"),
        ({"length": 4}, "length must be at least 5, not 4"),
        ({"heads": 3}, "units must be a multiple of the 3 heads, not 16"),
        ({"predictions": 14}, "predictions must be at most the 13 words, not 14"),
        ({"dropout": 1.0}, "dropout must be at least 0 and less than 1, not 1.0"),
    )
    def test_bad_settings_are_named(self, settings, message):
        with self.assertRaisesRegex(ValueError, message):
            bert.build(**SMALL | settings)


if __name__ == "__main__":
    tf.test.main()
