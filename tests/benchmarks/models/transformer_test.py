"""The layers of transformers compute what numpy computes."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from benchmarks.models.transformer import (
    attention,
    causal_bias,
    feed_forward,
    layer_norm,
)
from tests.benchmarks.models.sessions import softmax

tf1 = tf.compat.v1

BATCH, LENGTH, HEADS, SIZE = 2, 5, 3, 4
UNITS = HEADS * SIZE
INNER = 4 * UNITS


def compute_layer(
    value: np.ndarray, layer: Callable[[tf.Tensor], tf.Tensor], weights: dict[str, np.ndarray]
) -> np.ndarray:
    """Computes the output of a layer with these weights."""
    with tf.Graph().as_default():
        result = layer(tf.constant(value, tf.float32))
        variables = {v.op.name: v for v in tf1.trainable_variables()}
        assert set(variables) == set(weights), sorted(variables)
        with tf1.Session() as session:
            for name, variable in variables.items():
                variable.load(weights[name].astype(np.float32), session)
            return session.run(result)


def random_weights(random: np.random.Generator, **shapes: tuple[int, int]) -> dict[str, np.ndarray]:
    weights = {}
    for name, shape in shapes.items():
        name = name.replace("__", "/")
        weights[f"{name}/kernel"] = random.standard_normal(shape)
        weights[f"{name}/bias"] = random.standard_normal(shape[1])
    return weights


class TransformerTest(tf.test.TestCase, parameterized.TestCase):
    def setUp(self):
        super().setUp()
        self.random = np.random.default_rng(0)
        self.value = self.random.standard_normal((BATCH * LENGTH, UNITS))
        names = ("query", "key", "value", "output")
        self.weights = random_weights(
            self.random, **{f"attention__{name}": (UNITS, UNITS) for name in names}
        )

    def attend(self, value: np.ndarray, bias: np.ndarray) -> np.ndarray:
        """Attention, token by token and head by head."""

        def project(name: str, rows: np.ndarray) -> np.ndarray:
            scope = f"attention/{name}"
            return rows @ self.weights[f"{scope}/kernel"] + self.weights[f"{scope}/bias"]

        query, key, content = (project(name, value) for name in ("query", "key", "value"))
        context = np.zeros_like(value)
        for sequence in range(BATCH):
            rows = np.arange(LENGTH) + sequence * LENGTH
            for head in range(HEADS):
                part = slice(head * SIZE, (head + 1) * SIZE)
                for t in range(LENGTH):
                    scores = key[rows, part] @ query[rows[t], part] / math.sqrt(SIZE) + bias[t]
                    context[rows[t], part] = softmax(scores) @ content[rows, part]
        return project("output", context)

    def test_attention_is_that_of_numpy(self):
        bias = self.random.standard_normal((LENGTH, LENGTH))
        found = compute_layer(
            self.value,
            lambda value: attention(value, LENGTH, HEADS, tf.constant(bias, tf.float32)),
            self.weights,
        )
        self.assertAllClose(found, self.attend(self.value, bias), 1e-4, 1e-4)

    def test_with_the_causal_bias_a_later_token_changes_nothing_before_it(self):
        def layer(value: tf.Tensor) -> tf.Tensor:
            return attention(value, LENGTH, HEADS, causal_bias(LENGTH))

        changed = self.value.copy()
        changed[3] += 1
        before, after = (
            compute_layer(value, layer, self.weights) for value in (self.value, changed)
        )
        same = np.isclose(before, after).all(axis=1)
        # Token 3 of the first sequence, and what comes after it, and nothing of the second.
        self.assertAllEqual(np.flatnonzero(~same), [3, 4])
        bias = np.where(np.tri(LENGTH) > 0, 0, -np.inf)
        self.assertAllClose(before, self.attend(self.value, bias), 1e-4, 1e-4)

    def test_feed_forward_is_two_dense_layers_with_gelu_between(self):
        weights = random_weights(
            self.random, feed_forward__inner=(UNITS, INNER), feed_forward__output=(INNER, UNITS)
        )
        inner = self.value @ weights["feed_forward/inner/kernel"]
        inner += weights["feed_forward/inner/bias"]
        shares = [0.5 * (1 + math.erf(x / math.sqrt(2))) for x in inner.ravel()]
        active = inner * np.reshape(shares, inner.shape)
        expected = active @ weights["feed_forward/output/kernel"]
        expected += weights["feed_forward/output/bias"]
        found = compute_layer(self.value, feed_forward, weights)
        self.assertAllClose(found, expected, atol=0.02)

    def test_layer_norm_is_that_of_numpy(self):
        weights = {name: self.random.standard_normal(UNITS) for name in ("scale", "offset")}
        centered = self.value - self.value.mean(axis=1, keepdims=True)
        expected = centered / self.value.std(axis=1, keepdims=True)
        expected = expected * weights["scale"] + weights["offset"]
        found = compute_layer(
            self.value, layer_norm, {f"norm/{name}": each for name, each in weights.items()}
        )
        self.assertAllClose(found, expected, 1e-4, 1e-4)


if __name__ == "__main__":
    tf.test.main()
