from __future__ import annotations

import numpy as np
import tensorflow as tf

from benchmarks.models.image_classifier import label_smoothing_loss, paper_rmsprop

tf1 = tf.compat.v1


class ImageClassifierTest(tf.test.TestCase):
    def test_smoothed_loss_is_the_cross_entropy_with_some_of_each_label(self):
        random = np.random.default_rng(0)
        logits, labels = random.standard_normal((3, 5)), np.array([4, 0, 2], np.int32)
        with tf.Graph().as_default(), tf1.Session() as session:
            loss = label_smoothing_loss(
                tf.constant(logits, tf.float32), tf.constant(labels), "loss"
            )
            found = session.run(loss)
        wanted = np.full((3, 5), 0.1 / 5)
        wanted[np.arange(3), labels] += 0.9
        logarithms = logits - np.log(np.exp(logits).sum(1, keepdims=True))
        self.assertNear(found, -(wanted * logarithms).sum(1).mean(), 1e-5)

    def test_rmsprop_has_the_settings_of_the_papers(self):
        with tf.Graph().as_default(), tf1.Session() as session:
            weight = tf1.get_variable("weight", [], initializer=tf1.zeros_initializer())
            update = paper_rmsprop(0.5).minimize(2 * weight)
            session.run(tf1.global_variables_initializer())
            found = []
            for _ in range(2):
                session.run(update)
                found.append(session.run(weight))
        # The mean square starts at 1, and the gradient is 2.
        square, velocity, value, expected = 1.0, 0.0, 0.0, []
        for _ in range(2):
            square = 0.9 * square + 0.1 * 4
            velocity = 0.9 * velocity + 0.5 * 2 / np.sqrt(square + 1)
            value -= velocity
            expected.append(value)
        self.assertAllClose(found, expected)


if __name__ == "__main__":
    tf.test.main()
