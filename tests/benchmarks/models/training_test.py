from __future__ import annotations

import tensorflow as tf
from absl.testing import parameterized

from benchmarks.models.training import train

tf1 = tf.compat.v1


class TrainingTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters((None, 1.0), (5.0, 1.0), (2.5, 0.5))
    def test_gradients_longer_than_the_norm_are_shortened_together(self, clip_norm, factor):
        with tf.Graph().as_default() as graph, tf1.Session() as session:
            a, b = (
                tf1.get_variable(name, [2], initializer=tf1.zeros_initializer()) for name in "ab"
            )
            loss = 3 * a[0] + 4 * b[1]
            operation = train(loss, tf1.train.GradientDescentOptimizer(1.0), clip_norm)
            self.assertEqual(graph.get_collection("train_op"), [operation])
            session.run(tf1.global_variables_initializer())
            session.run(operation)
            found = session.run((a, b, tf1.train.get_global_step()))
        self.assertAllClose(found, ([-3 * factor, 0], [0, -4 * factor], 1))


if __name__ == "__main__":
    tf.test.main()
