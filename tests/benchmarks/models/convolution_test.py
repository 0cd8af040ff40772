from __future__ import annotations

import numpy as np
import tensorflow as tf

from benchmarks.models.convolution import ConvolutionLayers, batch_norm

tf1 = tf.compat.v1


class ConvolutionLayersTest(tf.test.TestCase):
    def test_convolution_is_normalized_over_the_batch_and_rectified(self):
        random = np.random.default_rng(0)
        value = random.standard_normal((3, 5, 5, 4)).astype(np.float32)
        with tf.Graph().as_default(), tf1.Session() as session:
            result = ConvolutionLayers().convolution(tf.constant(value), 6, 1, "layer")
            kernel, offset, moving_mean, moving_variance = tf1.global_variables()
            session.run(tf1.global_variables_initializer())
            offset.load(random.standard_normal(6), session)
            weights, added, found = session.run((kernel, offset, result))
            session.run(tf1.get_collection(tf1.GraphKeys.UPDATE_OPS))
            averages = session.run((moving_mean, moving_variance))
        # A window of one pixel makes the convolution a product.
        product = value @ weights[0, 0]
        mean, variance = product.mean((0, 1, 2)), product.var((0, 1, 2))
        expected = np.maximum(0, (product - mean) / np.sqrt(variance + 1e-3) + added)
        self.assertAllClose(found, expected, atol=1e-5)
        # The averages are of estimates for more data than the 3 * 5 * 5 values.
        self.assertAllClose(averages[0], 0.0003 * mean)
        self.assertAllClose(averages[1], 1 + 0.0003 * (variance * 75 / 74 - 1))

    def test_scale_of_normalized_channels_is_learned_if_wanted(self):
        value = np.random.default_rng(0).standard_normal((3, 5, 5, 4)).astype(np.float32)
        with tf.Graph().as_default(), tf1.Session() as session:
            result = batch_norm(tf.constant(value), scale=True)
            offset, scale = tf1.trainable_variables()
            self.assertEqual((offset.op.name, scale.op.name), ("offset", "scale"))
            session.run(tf1.global_variables_initializer())
            plain = session.run(result)
            scale.load(np.arange(4.0), session)
            offset.load(np.ones(4), session)
            self.assertAllClose(session.run(result), plain * np.arange(4) + 1, atol=1e-5)
        mean, variance = value.mean((0, 1, 2)), value.var((0, 1, 2))
        self.assertAllClose(plain, (value - mean) / np.sqrt(variance + 1e-3), atol=1e-5)

    def test_normalization_is_the_same_if_it_is_not_fused(self):
        value = np.random.default_rng(0).standard_normal((3, 5, 5, 4)).astype(np.float32)
        for scale in (False, True):
            results = []
            for fused in (False, True):
                with tf.Graph().as_default() as graph, tf1.Session() as session:
                    result = batch_norm(tf.constant(value), scale=scale, fused=fused)
                    session.run(tf1.global_variables_initializer())
                    results.append(session.run(result))
                types = {operation.type for operation in graph.get_operations()}
                self.assertEqual("FusedBatchNormV3" in types, fused)
            self.assertAllClose(*results, atol=1e-5)


if __name__ == "__main__":
    tf.test.main()
