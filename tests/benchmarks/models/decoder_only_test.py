"""The decoder-only transformer is a real training graph: it is causal, of its size, and learns."""

from __future__ import annotations

import collections
import functools
import itertools

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from benchmarks.models import decoder_only
from graph_passes.op_graph import OpGraph
from graph_passes.pipeline import group_operations
from tests.benchmarks.models.sessions import plain_session

tf1 = tf.compat.v1

SMALL = {"layers": 2, "units": 16, "heads": 2, "length": 8, "batch": 16, "vocabulary": 20}


@functools.cache
def small_model() -> decoder_only.CausalLanguageModel:
    return decoder_only.build(**SMALL)


class DecoderOnlyTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters(True, False)
    def test_loss_falls(self, use_resource):
        model = decoder_only.build(**SMALL, use_resource=use_resource, learning_rate=0.01)
        with plain_session(model.graph) as session:
            session.run(model.initializer)
            values = [
                session.run([model.loss, model.train_op], feeds)[0]
                for feeds in itertools.islice(model.feeds(seed=3), 40)
            ]
        # Before learning, all tokens are about equally likely.
        self.assertNear(values[0], np.log(SMALL["vocabulary"]), 0.05)
        self.assertLess(np.mean(values[-3:]), values[0] - 0.7, values)

    def test_a_later_token_changes_no_earlier_prediction(self):
        model = small_model()
        feeds = next(model.feeds())
        changed = feeds[model.tokens].copy()
        changed[1, 5] = (changed[1, 5] + 1) % SMALL["vocabulary"]
        with plain_session(model.graph) as session:
            session.run(model.initializer)
            before, after = (
                session.run(model.logits, {model.tokens: tokens})
                for tokens in (feeds[model.tokens], changed)
            )
        same = np.isclose(before, after, atol=1e-6).all(axis=1)
        self.assertAllEqual(np.flatnonzero(~same), SMALL["length"] + np.array([5, 6, 7]))

    def test_full_size_has_the_parameters_of_the_smallest_gpt_2(self):
        model = decoder_only.build(length=1024)
        with model.graph.as_default():
            parameters = sum(v.shape.num_elements() for v in tf1.trainable_variables())
        self.assertEqual(parameters, 124_439_808)
        operations = model.graph.get_operations()
        types = collections.Counter(op.type for op in operations)
        # Six products with weights per block and the one with the table, each with two for its
        # gradients; scores and context are products of batches.
        self.assertEqual(types["MatMul"], 3 * (6 * 12 + 1))
        self.assertEqual(types["BatchMatMulV2"] + types["BatchMatMulV3"], 3 * 2 * 12)
        self.assertBetween(len(operations), 10_000, 20_000)

    def test_each_block_has_its_own_groups(self):
        model = small_model()
        graph = OpGraph.from_graph_def(
            model.graph.as_graph_def(), (model.train_op,), (model.tokens,)
        )
        kinds = collections.Counter(group_operations(graph).grouping.kinds)
        self.assertEqual(kinds["attention_step"], 2)
        self.assertEqual(kinds["embedding_lookup"], 1)
        self.assertEqual(kinds["softmax_step"], 1)

    def test_training_operation_is_in_its_collection(self):
        model = small_model()
        self.assertEqual(
            model.graph.get_collection("train_op"),
            [model.graph.get_operation_by_name(model.train_op)],
        )
        self.assertEqual(model.graph.get_tensor_by_name(model.loss).shape, [])

    def test_same_seed_gives_the_same_feeds_and_another_seed_others(self):
        model = small_model()
        first, again, other = (next(model.feeds(seed))[model.tokens] for seed in (0, 0, 1))
        self.assertAllEqual(first, again)
        self.assertNotAllEqual(first, other)

    @parameterized.parameters(*SMALL)
    def test_size_that_is_not_positive_is_refused(self, name):
        with self.assertRaisesRegex(ValueError, f"{name} must be positive, not 0"):
            decoder_only.build(**SMALL | {name: 0})

    def test_units_that_do_not_divide_among_the_heads_are_refused(self):
        with self.assertRaisesRegex(ValueError, "units must be a multiple of the 3 heads, not 16"):
            decoder_only.build(**SMALL | {"heads": 3})


if __name__ == "__main__":
    tf.test.main()
