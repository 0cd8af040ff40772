from __future__ import annotations

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from benchmarks.models.training import make_optimizer, train

tf1 = tf.compat.v1


def updated(clip_norm: float | None) -> tuple[np.ndarray, np.ndarray, int]:
    """Two variables and the global step after one step with gradients (3, 0) and (0, 4)."""
    with tf.Graph().as_default() as graph:
        a = tf1.get_variable("a", [2], initializer=tf1.zeros_initializer())
        b = tf1.get_variable("b", [2], initializer=tf1.zeros_initializer())
        operation = train(3 * a[0] + 4 * b[1], make_optimizer("sgd", 1.0), clip_norm)
        assert graph.get_collection("train_op") == [operation]
        with tf1.Session() as session:
            session.run(tf1.global_variables_initializer())
            session.run(operation)
            return session.run((a, b, tf1.train.get_global_step()))


class TrainingTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters(None, 5.0, 100.0)
    def test_gradients_within_the_norm_are_used_as_they_are(self, clip_norm):
        a, b, step = updated(clip_norm)
        self.assertAllClose(a, [-3, 0])
        self.assertAllClose(b, [0, -4])
        self.assertEqual(step, 1)

    def test_longer_gradients_are_shortened_together(self):
        a, b, _ = updated(clip_norm=2.5)
        self.assertAllClose(a, [-1.5, 0])
        self.assertAllClose(b, [0, -2])

    @parameterized.parameters(0.0, -1.0)
    def test_norm_that_is_not_positive_is_refused(self, clip_norm):
        with self.assertRaisesRegex(ValueError, f"clip_norm must be positive, not {clip_norm}"):
            updated(clip_norm)

    def test_unknown_optimizer_is_named(self):
        with self.assertRaisesRegex(ValueError, "not 'adagrad'"):
            make_optimizer("adagrad", 0.1)


if __name__ == "__main__":
    tf.test.main()
