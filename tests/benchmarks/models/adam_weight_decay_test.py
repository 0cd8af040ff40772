from __future__ import annotations

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from benchmarks.models.adam_weight_decay import AdamWeightDecay
from benchmarks.models.training import train

tf1 = tf.compat.v1

RATE = 0.1


def by_numpy(first: np.ndarray, gradient: np.ndarray, steps: int) -> np.ndarray:
    """A variable after some steps with the same gradient."""
    value, mean, square = first.copy(), 0.0, 0.0
    for _ in range(steps):
        mean = 0.9 * mean + 0.1 * gradient
        square = 0.999 * square + 0.001 * gradient**2
        decay = 0.01 * value if value.ndim > 1 else 0.0
        value = value - RATE * (mean / (np.sqrt(square) + 1e-6) + decay)
    return value


class AdamWeightDecayTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.product(use_resource=[True, False], shape=[(3,), (2, 3)])
    def test_updates_are_those_of_numpy_and_vectors_do_not_decay(self, use_resource, shape):
        random = np.random.default_rng(0)
        first, gradient = random.standard_normal((2, *shape))
        with tf.Graph().as_default(), tf1.Session() as session:
            variable = tf1.get_variable(
                "variable",
                initializer=tf.constant(first, tf.float32),
                use_resource=use_resource,
            )
            loss = tf.reduce_sum(variable * tf.constant(gradient, tf.float32))
            operation = train(loss, AdamWeightDecay(RATE))
            session.run(tf1.global_variables_initializer())
            for _ in range(5):
                session.run(operation)
            found, step = session.run((variable, tf1.train.get_global_step()))
        self.assertAllClose(found, by_numpy(first, gradient, 5), 1e-4, 1e-5)
        self.assertEqual(step, 5)


if __name__ == "__main__":
    tf.test.main()
