"""Google's translation model is the one of its paper: checked against NumPy, and by training."""

from __future__ import annotations

import collections
import functools
import itertools

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from benchmarks.models import gnmt
from benchmarks.models.translation_model import TranslationModel
from graph_passes.op_graph import OpGraph
from graph_passes.pipeline import group_operations
from tests.benchmarks.models.sessions import plain_session

tf1 = tf.compat.v1

SMALL = {
    "layers": 3,
    "units": 16,
    "source_steps": 4,
    "target_steps": 3,
    "batch": 16,
    "source_vocabulary": 12,
    "target_vocabulary": 12,
}


@functools.cache
def small_model() -> TranslationModel:
    return gnmt.build(**SMALL)


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
        self.units = values["source_embedding/weights"].shape[1]

    def cell(self, name, value, state):
        memory, hidden = state
        kernel, bias = self.values[f"{name}/kernel"], self.values[f"{name}/bias"]
        entry, update, forget, output = np.split(np.concatenate([value, hidden]) @ kernel + bias, 4)
        memory = sigmoid(forget + 1) * memory + sigmoid(entry) * np.tanh(update)
        return memory, sigmoid(output) * np.tanh(memory)

    def run(self, name, sequence):
        state = (np.zeros(self.units), np.zeros(self.units))
        outputs = []
        for value in sequence:
            state = self.cell(name, value, state)
            outputs.append(state[1])
        return outputs, state

    def encode(self, source):
        words = [self.values["source_embedding/weights"][word] for word in source]
        forward, _ = self.run("encoder/layer_0/forward", words)
        backward, state = self.run("encoder/layer_0/backward", words[::-1])
        values = [np.concatenate(b) for b in zip(forward, backward[::-1], strict=True)]
        states = [state]
        for layer in range(1, self.layers):
            outputs, state = self.run(f"encoder/layer_{layer}", values)
            states.append(state)
            # The third layer is the first with a residual connection.
            values = [o + v if layer > 1 else o for o, v in zip(outputs, values, strict=True)]
        return np.array(values), states

    def answer(self, memories, hidden):
        scope = "decoder/attention"
        query = hidden @ self.values[f"{scope}/query"]
        keys = memories @ self.values[f"{scope}/memory"]
        return softmax(np.tanh(keys + query) @ self.values[f"{scope}/score"]) @ memories

    def loss(self, source, target):
        memories, states = self.encode(source)
        context = np.zeros(self.units)
        total = 0.0
        for word, following in itertools.pairwise(target):
            value = self.values["target_embedding/weights"][word]
            for layer in range(self.layers):
                read = np.concatenate([value, context])
                states[layer] = self.cell(f"decoder/layer_{layer}", read, states[layer])
                value = states[layer][1] + (value if layer > 1 else 0)
            context = self.answer(memories, states[0][1])
            shares = softmax(value @ self.values["softmax/weights"] + self.values["softmax/bias"])
            total -= np.log(shares[following])
        return total / (len(target) - 1)


class GnmtTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters(2, 4)
    def test_loss_is_that_of_the_same_model_in_numpy(self, layers):
        model = gnmt.build(**SMALL | {"layers": layers})
        feeds = next(model.feeds(seed=1))
        with plain_session(model.graph) as session:
            with model.graph.as_default():
                variables = tf1.trainable_variables()
            # Far from the start, where all tokens are about equally likely.
            random = np.random.default_rng(0)
            values = {v.op.name: random.standard_normal(v.shape) * 0.4 for v in variables}
            session.run(model.initializer)
            for variable in variables:
                variable.load(values[variable.op.name], session)
            loss = session.run(model.loss, feeds)
        oracle = Oracle(values, layers)
        pairs = zip(feeds[model.source], feeds[model.target], strict=True)
        self.assertNear(loss, np.mean([oracle.loss(*pair) for pair in pairs]), 1e-4)

    @parameterized.parameters(True, False)
    def test_loss_falls(self, use_resource):
        model = small_model() if use_resource else gnmt.build(**SMALL, use_resource=False)
        with plain_session(model.graph) as session:
            session.run(model.initializer)
            losses = [
                session.run([model.loss, model.train_op], feeds)[0]
                for feeds in itertools.islice(model.feeds(seed=3), 40)
            ]
        # Before learning, all tokens are about equally likely.
        self.assertNear(losses[0], np.log(SMALL["target_vocabulary"]), 0.05)
        self.assertLess(np.mean(losses[-5:]), losses[0] - 0.3, losses)

    def test_every_cell_and_every_answer_is_a_group(self):
        model = small_model()
        feeds = (model.source, model.target)
        graph = OpGraph.from_graph_def(model.graph.as_graph_def(), (model.train_op,), feeds)
        kinds = collections.Counter(group_operations(graph).grouping.kinds)
        # Both directions of the lowest layer, the other layers, the layers of the decoder.
        self.assertEqual(kinds["rnn_cell"], 4 * 4 + 3 * 3)
        self.assertEqual(kinds["attention_step"], 3 - 1)
        self.assertEqual(kinds["embedding_lookup"], 2)

    def test_parameters_are_those_of_the_paper(self):
        model = small_model()
        with model.graph.as_default():
            sizes = {v.op.name: v.shape.num_elements() for v in tf1.trainable_variables()}
        units = SMALL["units"]
        narrow, wide = ((inputs + units) * 4 * units + 4 * units for inputs in (units, 2 * units))
        expected = {"encoder/layer_0/forward": narrow, "encoder/layer_0/backward": narrow}
        # The second layer reads both directions, every layer of the decoder an answer.
        expected |= {"encoder/layer_1": wide, "encoder/layer_2": narrow}
        expected |= {f"decoder/layer_{layer}": wide for layer in range(3)}
        for scope, size in expected.items():
            self.assertEqual(sizes[f"{scope}/kernel"] + sizes[f"{scope}/bias"], size, scope)
        self.assertLen(sizes, 2 * len(expected) + 2 + 3 + 2)

    @parameterized.parameters(("layers", 1), ("units", 0), ("target_vocabulary", 1))
    def test_bad_size_is_named(self, name, value):
        with self.assertRaisesRegex(ValueError, f"{name} must be .*{value}"):
            gnmt.build(**SMALL | {name: value})


if __name__ == "__main__":
    tf.test.main()
