"""Google's translation model is the one of its paper: checked against NumPy."""

from __future__ import annotations

import itertools

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from benchmarks.models import gnmt
from tests.benchmarks.models.sessions import (
    load_random,
    lstm_cell,
    plain_session,
    softmax,
)

SMALL = {"units": 16, "source_steps": 4, "target_steps": 3, "batch": 8}
SMALL |= {"source_vocabulary": 12, "target_vocabulary": 12}


class Oracle:
    """The loss of the model for one pair of sentences, from its variables by name."""

    def __init__(self, values: dict[str, np.ndarray], layers: int):
        self.values = values
        self.layers = layers
        self.units = values["source_embedding/weights"].shape[1]

    def cell(self, name, value, state):
        return lstm_cell(value, state, self.values[f"{name}/kernel"], self.values[f"{name}/bias"])

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
        model = gnmt.build(**SMALL, layers=layers)
        feeds = next(model.feeds(seed=1))
        with plain_session(model.graph) as session:
            oracle = Oracle(load_random(session, 0.4), layers)
            loss = session.run(model.loss, feeds)
        pairs = zip(feeds["source:0"], feeds["target:0"], strict=True)
        self.assertNear(loss, np.mean([oracle.loss(*pair) for pair in pairs]), 1e-4)


if __name__ == "__main__":
    tf.test.main()
