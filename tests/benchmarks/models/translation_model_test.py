"""The translation model is the one its papers describe: checked against NumPy, and by training."""

from __future__ import annotations

import collections
import functools
import itertools

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from benchmarks.models import translation_model
from graph_passes.op_graph import OpGraph
from graph_passes.pipeline import group_operations
from tests.benchmarks.models.sessions import plain_session

tf1 = tf.compat.v1

SMALL = {
    "units": 32,
    "source_steps": 4,
    "target_steps": 5,
    "batch": 32,
    "source_vocabulary": 20,
    "target_vocabulary": 20,
    "learning_rate": 0.02,
}


@functools.cache
def small_model() -> translation_model.TranslationModel:
    return translation_model.build(**SMALL)


def losses(model: translation_model.TranslationModel, count: int) -> list[float]:
    with plain_session(model.graph) as session:
        session.run(model.initializer)
        return [
            session.run([model.loss, model.train_op], feeds)[0]
            for feeds in itertools.islice(model.feeds(seed=3), count)
        ]


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def softmax(x: np.ndarray) -> np.ndarray:
    powers = np.exp(x)
    return powers / powers.sum(axis=-1, keepdims=True)


class Oracle:
    """The loss of the model for one pair of sentences, from its variables by name."""

    def __init__(self, values: dict[str, np.ndarray], layers: int):
        self.values = values
        self.layers = layers

    def cell(self, name, value, state):
        memory, hidden = state
        kernel, bias = self.values[f"{name}/kernel"], self.values[f"{name}/bias"]
        gates = np.concatenate([value, hidden]) @ kernel + bias
        entry, update, forget, output = np.split(gates, 4)
        memory = sigmoid(forget + 1) * memory + sigmoid(entry) * np.tanh(update)
        return memory, sigmoid(output) * np.tanh(memory)

    def stack(self, name, value, states):
        """One step of all layers of a side: the top output."""
        for layer in range(self.layers):
            states[layer] = self.cell(f"{name}/layer_{layer}", value, states[layer])
            value = states[layer][1]
        return value

    def loss(self, source, target):
        v = self.values
        units = v["source_embedding/weights"].shape[1]
        states = [(np.zeros(units), np.zeros(units))] * self.layers
        memories = [self.stack("encoder", v["source_embedding/weights"][w], states) for w in source]
        said = np.zeros(units)
        total = 0.0
        for word, following in itertools.pairwise(target):
            value = np.concatenate([v["target_embedding/weights"][word], said])
            hidden = self.stack("decoder", value, states)
            query = hidden @ v["decoder/attention/query"]
            keys = (memory @ v["decoder/attention/memory"] for memory in memories)
            scores = [np.tanh(key + query) @ v["decoder/attention/score"] for key in keys]
            context = softmax(np.array(scores)) @ np.array(memories)
            said = np.tanh(np.concatenate([context, hidden]) @ v["decoder/attention/mix"])
            shares = softmax(said @ v["softmax/weights"] + v["softmax/bias"])
            total -= np.log(shares[following])
        return total / (len(target) - 1)


class TranslationModelTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters(1, 2, 3)
    def test_loss_is_that_of_the_same_model_in_numpy(self, layers):
        model = translation_model.build(**SMALL, layers=layers)
        source, target = next(model.batches(seed=1))
        with plain_session(model.graph) as session:
            with model.graph.as_default():
                variables = tf1.trainable_variables()
            # Far from the start, where all tokens are about equally likely.
            random = np.random.default_rng(0)
            values = {v.op.name: random.standard_normal(v.shape) * 0.3 for v in variables}
            session.run(model.initializer)
            for variable in variables:
                variable.load(values[variable.op.name], session)
            loss = session.run(model.loss, {model.source: source, model.target: target})
        oracle = Oracle(values, layers)
        expected = [oracle.loss(s, t) for s, t in zip(source, target, strict=True)]
        self.assertNear(loss, np.mean(expected), 1e-4)

    @parameterized.product(use_resource=[True, False], clip_norm=[None, 1.0])
    def test_loss_falls(self, use_resource, clip_norm):
        settings = SMALL | {"use_resource": use_resource, "clip_norm": clip_norm}
        values = losses(translation_model.build(**settings), 60)
        # Before learning, all tokens are about equally likely.
        self.assertNear(values[0], np.log(SMALL["target_vocabulary"]), 0.01)
        self.assertLess(np.mean(values[-5:]), values[0] - 0.3, values)

    def test_translation_and_not_only_the_frequencies_is_learnt(self):
        model = translation_model.build(**SMALL, layers=1)
        targets = [target[:, 1:] for _, target in itertools.islice(model.batches(), 50)]
        shares = np.bincount(np.concatenate(targets).ravel())[1:] / np.size(targets)
        entropy = -np.sum(shares * np.log(shares))
        self.assertLess(np.mean(losses(model, 500)[-5:]), entropy - 0.5)

    def test_target_is_the_source_from_its_end_in_other_words(self):
        model = small_model()
        source, target = next(model.batches())
        self.assertEqual((source.dtype, target.dtype), (np.int32, np.int32))
        self.assertAllEqual(target[:, 0], np.zeros(32))
        self.assertAllInRange(target[:, 1:], 1, 19)
        dictionary = {}
        for sentence, translation in zip(source, target, strict=True):
            # The decoder is one step longer than the sentence.
            backwards = [*sentence[::-1], sentence[-1]]
            for word, other in zip(backwards, translation[1:], strict=True):
                self.assertEqual(dictionary.setdefault(word, other), other)

    def test_same_seed_gives_the_same_sentences_and_another_seed_others(self):
        model = small_model()
        first, again, other = (next(model.batches(seed))[0] for seed in (0, 0, 1))
        self.assertAllEqual(first, again)
        self.assertNotAllEqual(first, other)

    def test_full_size_has_the_operations_and_parameters_of_the_papers(self):
        model = translation_model.build()
        operations = model.graph.get_operations()
        types = collections.Counter(op.type for op in operations)
        # Scores are normalised once per step of the decoder, by a softmax of their own.
        self.assertEqual(types["Softmax"], 40)
        self.assertEqual(types["SparseSoftmaxCrossEntropyWithLogits"], 40)
        # Cells of both sides; the query, the mix and the prediction of each step; the keys. Each
        # has two products for its gradients.
        self.assertEqual(types["MatMul"], 3 * (2 * 2 * 40 + 3 * 40 + 1))
        self.assertBetween(len(operations), 10_000, 30_000)
        with model.graph.as_default():
            parameters = sum(v.shape.num_elements() for v in tf1.trainable_variables())
        cells = 3 * (2048 * 4096 + 4096) + (3072 * 4096 + 4096)
        attention = 1024 * 1024 + 1024 + 2048 * 1024 + 1024 * 1024
        softmax_layer = 1024 * 32000 + 32000
        self.assertEqual(parameters, 2 * 32000 * 1024 + cells + attention + softmax_layer)

    def test_cells_attention_and_softmax_of_each_step_are_groups(self):
        model = small_model()
        graph_def = model.graph.as_graph_def()
        feeds = (model.source, model.target)
        graph = OpGraph.from_graph_def(graph_def, (model.train_op,), feeds)
        kinds = collections.Counter(group_operations(graph).grouping.kinds)
        # What a step says is read by the next step, so that the mix of each step is a cell too.
        self.assertEqual(kinds["rnn_cell"], 2 * 4 + 2 * 5 + 5)
        self.assertEqual(kinds["attention_step"], 5)
        self.assertEqual(kinds["softmax_step"], 5)
        self.assertEqual(kinds["embedding_lookup"], 2)

    def test_names_are_in_the_graph_and_the_training_operation_is_in_its_collection(self):
        model = small_model()
        graph = model.graph
        self.assertEqual(
            graph.get_collection("train_op"), [graph.get_operation_by_name(model.train_op)]
        )
        self.assertEqual(graph.get_tensor_by_name(model.loss).shape, [])
        self.assertEqual(graph.get_tensor_by_name(model.source).shape, [32, 4])
        self.assertEqual(graph.get_tensor_by_name(model.target).shape, [32, 6])
        self.assertEqual(graph.get_operation_by_name(model.initializer).type, "NoOp")

    @parameterized.parameters(
        ("layers", 0),
        ("units", 0),
        ("source_steps", 0),
        ("target_steps", -1),
        ("batch", 0),
        ("source_vocabulary", 0),
        ("target_vocabulary", 1),
        ("clip_norm", 0.0),
        ("optimizer", "adagrad"),
    )
    def test_bad_argument_is_named(self, name, value):
        with self.assertRaisesRegex(ValueError, f"{name} must be .*{value}"):
            translation_model.build(**SMALL | {name: value})


if __name__ == "__main__":
    tf.test.main()
