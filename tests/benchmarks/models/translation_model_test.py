"""The translation model is the one its papers describe: checked against NumPy."""

from __future__ import annotations

import itertools

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from benchmarks.models import translation_model
from tests.benchmarks.models.sessions import (
    build_forward,
    load_random,
    lstm_cell,
    plain_session,
    softmax,
)

SMALL = {"units": 16, "source_steps": 4, "target_steps": 5, "batch": 8}
SMALL |= {"source_vocabulary": 20, "target_vocabulary": 20}


class Oracle:
    """The loss of the model for one pair of sentences, from its variables by name."""

    def __init__(self, values: dict[str, np.ndarray], layers: int):
        self.values = values
        self.layers = layers

    def stack(self, name, value, states):
        """One step of all layers of a side: the top output."""
        for layer in range(self.layers):
            weights = (self.values[f"{name}/layer_{layer}/{each}"] for each in ("kernel", "bias"))
            states[layer] = lstm_cell(value, states[layer], *weights)
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
    @parameterized.parameters(1, 3)
    def test_loss_is_that_of_the_same_model_in_numpy(self, layers):
        model = build_forward(translation_model, **SMALL, layers=layers)
        feeds = next(model.feeds(seed=1))
        with plain_session(model.graph) as session:
            oracle = Oracle(load_random(session, 0.3), layers)
            loss = session.run(model.loss, feeds)
        pairs = zip(feeds["source:0"], feeds["target:0"], strict=True)
        self.assertNear(loss, np.mean([oracle.loss(*pair) for pair in pairs]), 1e-4)


if __name__ == "__main__":
    tf.test.main()
