from __future__ import annotations

import itertools

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from benchmarks.models.image_classifier import (
    ImageClassifier,
    build_classifier,
    image_optimizer,
    smoothed_loss,
)

tf1 = tf.compat.v1


def classifier(use_resource: bool = True) -> ImageClassifier:
    """A model of one variable that is not trained."""

    def training(images: tf.Tensor, labels: tf.Tensor) -> tuple[tf.Tensor, tf.Operation]:
        del labels
        bias = tf1.get_variable("bias", [])
        return tf.reduce_mean(images) + bias, tf.no_op()

    return build_classifier(
        training,
        batch=16,
        image_size=20,
        min_image_size=20,
        classes=4,
        use_resource=use_resource,
    )


class ImageClassifierTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters((True, "VarHandleOp"), (False, "VariableV2"))
    def test_variables_are_of_the_kind_asked_for(self, use_resource, kind):
        bias = classifier(use_resource).graph.get_operation_by_name("bias")
        self.assertEqual(bias.type, kind)

    def test_pictures_of_a_class_differ_by_noise_only(self):
        model = classifier()
        images, labels = next(model.batches(seed=5))
        self.assertEqual((images.dtype, labels.dtype), (np.float32, np.int32))
        self.assertEqual((images.shape, labels.shape), ((16, 20, 20, 3), (16,)))
        self.assertAllInRange(labels, 0, 3)
        for (a, x), (b, y) in itertools.combinations(zip(labels, images, strict=True), 2):
            # Noise of 0.1 in both, on top of tiles from -1 to 1.
            self.assertEqual(np.mean((x - y) ** 2) < 0.05, a == b)

    def test_same_seed_gives_the_same_pictures_and_another_seed_others(self):
        model = classifier()
        first, again, other = (next(model.batches(seed))[0] for seed in (0, 0, 1))
        self.assertAllEqual(first, again)
        self.assertNotAllEqual(first, other)

    def test_smoothed_loss_is_the_cross_entropy_with_some_of_each_label(self):
        random = np.random.default_rng(0)
        logits, labels = random.standard_normal((3, 5)), np.array([4, 0, 2], np.int32)
        with tf.Graph().as_default(), tf1.Session() as session:
            loss = smoothed_loss(tf.constant(logits, tf.float32), tf.constant(labels), "loss")
            found = session.run(loss)
        wanted = np.full((3, 5), 0.1 / 5)
        wanted[np.arange(3), labels] += 0.9
        logarithms = logits - np.log(np.exp(logits).sum(1, keepdims=True))
        self.assertNear(found, -(wanted * logarithms).sum(1).mean(), 1e-5)

    def test_rmsprop_has_the_settings_of_the_papers(self):
        with tf.Graph().as_default(), tf1.Session() as session:
            weight = tf1.get_variable("weight", [], initializer=tf1.zeros_initializer())
            update = image_optimizer("rmsprop", 0.5).minimize(2 * weight)
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
