"""The language model computes what the same model in NumPy computes."""

from __future__ import annotations

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from benchmarks.models import language_model
from tests.benchmarks.models.sessions import (
    build_forward,
    load_random,
    lstm_cell,
    plain_session,
    softmax,
)

LAYERS, UNITS, BATCH, VOCABULARY = 2, 8, 4, 10


def loss_by_numpy(values: dict[str, np.ndarray], tokens: np.ndarray) -> float:
    states = [(np.zeros((BATCH, UNITS)),) * 2] * LAYERS
    losses = []
    for step in range(tokens.shape[1] - 1):
        value = values["embedding/weights"][tokens[:, step]]
        for layer in range(LAYERS):
            weights = (values[f"layer_{layer}/{name}"] for name in ("kernel", "bias"))
            states[layer] = lstm_cell(value, states[layer], *weights)
            value = states[layer][1]
        shares = softmax(value @ values["softmax/weights"] + values["softmax/bias"])
        losses.append(-np.log(shares[np.arange(BATCH), tokens[:, step + 1]]))
    return float(np.mean(losses))


class LanguageModelTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters("batched", "per_step")
    def test_loss_is_that_of_the_same_model_in_numpy(self, softmax):
        model = build_forward(
            language_model,
            layers=LAYERS,
            units=UNITS,
            steps=3,
            batch=BATCH,
            vocabulary=VOCABULARY,
            softmax=softmax,
        )
        feeds = next(model.feeds())
        with plain_session(model.graph) as session:
            values = load_random(session, 0.5)
            loss = session.run(model.loss, feeds)
        self.assertNear(loss, loss_by_numpy(values, feeds["tokens:0"]), 1e-4)


if __name__ == "__main__":
    tf.test.main()
