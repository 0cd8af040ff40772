import numpy as np
import tensorflow as tf
from absl.testing import absltest

from tf_placer.placers.learned.lstm import lstm


class LstmTest(tf.test.TestCase):
    def test_runs_and_differentiates_like_keras(self):
        rng = np.random.default_rng(0)
        items = tf.constant(rng.normal(size=[3, 5, 4]), tf.float32)
        upstream = tf.constant(rng.normal(size=[3, 5, 6]), tf.float32)
        layer = tf.keras.layers.LSTM(6, return_sequences=True, return_state=True)
        layer.build((3, 5, 4))
        kernel, recurrent, bias = (
            tf.constant(rng.normal(size=weight.shape), tf.float32) for weight in layer.get_weights()
        )
        layer.set_weights([kernel, recurrent, bias])
        with tf.GradientTape() as tape:
            outputs, _, final = layer(items)
            loss = tf.reduce_sum(outputs * upstream) + tf.reduce_sum(final**2)
        expected = tape.gradient(loss, layer.trainable_weights)

        # Twice the same cells, side by side.
        with tf.GradientTape() as tape:
            tape.watch([kernel, recurrent, bias])
            gates = tf.transpose(items @ kernel + bias, [1, 0, 2])
            found, found_final = lstm(tf.stack([gates] * 2, 1), tf.stack([recurrent] * 2))
            found = tf.transpose(found, [1, 2, 0, 3])
            loss = (tf.reduce_sum(found * upstream) + tf.reduce_sum(found_final**2)) / 2
        self.assertAllClose(found, [outputs] * 2, atol=1e-5)
        self.assertAllClose(found_final, [final] * 2, atol=1e-5)
        gradients = tape.gradient(loss, [kernel, recurrent, bias])
        for left, right in zip(gradients, expected, strict=True):
            self.assertAllClose(left, tf.convert_to_tensor(right), atol=1e-4)


if __name__ == "__main__":
    absltest.main()
