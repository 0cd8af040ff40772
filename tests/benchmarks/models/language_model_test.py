"""The language model is a real training graph: it has the variables it should, and it learns."""

from __future__ import annotations

import collections
import functools
import itertools

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from benchmarks.models import language_model
from graph_passes.op_graph import OpGraph
from graph_passes.pipeline import group_operations
from tests.benchmarks.models.sessions import plain_session

tf1 = tf.compat.v1

SMALL = {"units": 32, "steps": 5, "batch": 32, "vocabulary": 20, "learning_rate": 0.02}
LEARNING_RATES = {"adam": 0.02, "momentum": 0.3, "rmsprop": 0.05, "sgd": 3.0}


@functools.cache
def small_model() -> language_model.LanguageModel:
    return language_model.build(**SMALL)


def losses(model: language_model.LanguageModel, count: int) -> list[float]:
    with plain_session(model.graph) as session:
        session.run(model.initializer)
        return [
            session.run([model.loss, model.train_op], {model.tokens: tokens})[0]
            for tokens in itertools.islice(model.batches(seed=3), count)
        ]


class LanguageModelTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.product(use_resource=[True, False], optimizer=list(LEARNING_RATES))
    def test_loss_falls(self, use_resource, optimizer):
        settings = SMALL | {
            "optimizer": optimizer,
            "use_resource": use_resource,
            "learning_rate": LEARNING_RATES[optimizer],
        }
        values = losses(language_model.build(**settings), 60)
        # Before learning, all tokens are about equally likely.
        self.assertNear(values[0], np.log(SMALL["vocabulary"]), 0.01)
        self.assertLess(np.mean(values[-5:]), values[0] - 0.05, values)

    @parameterized.product(softmax=["batched", "per_step"], clip_norm=[None, 1.0])
    def test_softmax_and_limited_gradients_change_nothing_about_learning(self, softmax, clip_norm):
        settings = SMALL | {"softmax": softmax, "clip_norm": clip_norm}
        values = losses(language_model.build(**settings), 60)
        self.assertNear(values[0], np.log(SMALL["vocabulary"]), 0.01)
        self.assertLess(values[-1], values[0] - 1.0, values)

    def test_loss_of_each_step_is_that_of_all_steps_at_once(self):
        both = [language_model.build(**SMALL, softmax=s) for s in ("batched", "per_step")]
        random = np.random.default_rng(0)
        feeds = next(both[0].feeds())
        with both[0].graph.as_default():
            shapes = {v.op.name: v.shape for v in tf1.trainable_variables()}
        weights = {name: random.standard_normal(shape) for name, shape in shapes.items()}
        found = []
        for model in both:
            with model.graph.as_default(), plain_session(model.graph) as session:
                for variable in tf1.trainable_variables():
                    variable.load(weights[variable.op.name], session)
                found.append(session.run(model.loss, feeds))
        self.assertNear(*found, 1e-4)
        self.assertGreater(found[0], np.log(SMALL["vocabulary"]))

    def test_adam_learns_the_order_and_not_only_the_frequencies(self):
        model = small_model()
        tokens = np.concatenate([batch.ravel() for batch in itertools.islice(model.batches(), 50)])
        shares = np.bincount(tokens) / tokens.size
        entropy = -np.sum(shares * np.log(shares))
        self.assertLess(losses(model, 120)[-1], entropy - 0.3)

    @parameterized.parameters(True, False)
    def test_every_variable_is_of_the_asked_kind(self, use_resource):
        model = language_model.build(**SMALL, use_resource=use_resource)
        types = collections.Counter(op.type for op in model.graph.get_operations())
        wanted, unwanted = "VarHandleOp", "VariableV2"
        if not use_resource:
            wanted, unwanted = unwanted, wanted
        # Embedding, kernel and bias of 2 layers, softmax weights and bias, each with 2 slots; two
        # powers of Adam; the global step.
        self.assertEqual(types[wanted], 7 * 3 + 2 + 1)
        self.assertEqual(types[unwanted], 0)

    def test_full_size_has_the_operations_of_two_unrolled_layers(self):
        model = language_model.build()
        operations = model.graph.get_operations()
        types = collections.Counter(op.type for op in operations)
        # Per cell one product and two for its gradients, and the same for the one softmax; nothing
        # needs the gradient of the first hidden state, which is part of a concatenation.
        self.assertEqual(types["MatMul"], 3 * (2 * 10 + 1))
        self.assertEqual(types["SparseSoftmaxCrossEntropyWithLogits"], 1)
        self.assertEqual(types["ResourceApplyAdam"], 6)
        self.assertBetween(len(operations), 1500, 4000)
        with model.graph.as_default():
            parameters = sum(v.shape.num_elements() for v in tf1.trainable_variables())
        self.assertEqual(
            parameters,
            5000 * 512 + 2 * (1024 * 2048 + 2048) + 512 * 5000 + 5000,
        )

    def test_size_of_the_papers_has_a_cell_and_a_softmax_for_each_step(self):
        model = language_model.build(
            layers=2, units=2048, steps=40, batch=64, vocabulary=10_000, softmax="per_step"
        )
        operations = model.graph.get_operations()
        types = collections.Counter(op.type for op in operations)
        self.assertEqual(types["SparseSoftmaxCrossEntropyWithLogits"], 40)
        self.assertEqual(types["MatMul"], 3 * (2 * 40 + 40))
        self.assertBetween(len(operations), 5_000, 10_000)
        graph_def = model.graph.as_graph_def()
        graph = OpGraph.from_graph_def(graph_def, (model.train_op,), (model.tokens,))
        kinds = collections.Counter(group_operations(graph).grouping.kinds)
        self.assertEqual(kinds["rnn_cell"], 2 * 40)
        self.assertEqual(kinds["softmax_step"], 40)
        self.assertEqual(kinds["embedding_lookup"], 1)

    def test_names_are_in_the_graph_and_the_training_operation_is_in_its_collection(self):
        model = small_model()
        self.assertEqual(
            model.graph.get_collection("train_op"),
            [model.graph.get_operation_by_name(model.train_op)],
        )
        self.assertEqual(model.graph.get_tensor_by_name(model.loss).shape, [])
        self.assertEqual(model.graph.get_tensor_by_name(model.tokens).shape, [32, 6])
        self.assertEqual(model.graph.get_operation_by_name(model.initializer).type, "NoOp")

    def test_same_seed_gives_the_same_text_and_another_seed_another(self):
        model = small_model()
        first, again, other = (next(model.batches(seed)) for seed in (0, 0, 1))
        self.assertAllEqual(first, again)
        self.assertNotAllEqual(first, other)
        self.assertEqual(first.dtype, np.int32)
        self.assertAllInRange(first, 0, SMALL["vocabulary"] - 1)

    def test_unknown_optimizer_is_named(self):
        with self.assertRaisesRegex(ValueError, "not 'adagrad'"):
            language_model.build(**SMALL, optimizer="adagrad")

    def test_unknown_softmax_is_named(self):
        with self.assertRaisesRegex(ValueError, "softmax must be .*, not 'sampled'"):
            language_model.build(**SMALL, softmax="sampled")

    def test_norm_that_is_not_positive_is_refused(self):
        with self.assertRaisesRegex(ValueError, "clip_norm must be positive, not 0"):
            language_model.build(**SMALL, clip_norm=0)


if __name__ == "__main__":
    tf.test.main()
