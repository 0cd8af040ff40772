import numpy as np
import tensorflow as tf
from absl.testing import absltest, parameterized

from tf_placer.placers.learned.attention import AttentionMemory, attend, attend_gradient


class AttentionTest(tf.test.TestCase, parameterized.TestCase):
    # A scale of 10 takes tanh to its ends.
    @parameterized.product(size=[1, 3], scale=[1, 10])
    def test_value_and_gradient_equal_those_of_the_plain_formula(self, size, scale):
        rng = np.random.default_rng(0)
        query, values, keys, scorer = (
            tf.constant(factor * rng.normal(size=shape), tf.float32)
            for factor, shape in (
                (scale, [3, 5]),
                (1, [size, 4, 2]),
                (scale, [size, 4, 5]),
                (1, [5]),
            )
        )
        upstream = tf.constant(rng.normal(size=[3, 2]), tf.float32)
        with tf.GradientTape() as tape:
            arguments = [query, values, keys, scorer]
            tape.watch(arguments)
            hidden = tf.tanh(query[:, tf.newaxis] + keys)
            shares = tf.nn.softmax(tf.reduce_sum(hidden * scorer, axis=2))
            average = tf.reduce_sum(shares[:, :, tf.newaxis] * values, axis=1)
            total = tf.reduce_sum(average * upstream)
        to_query, _, to_keys, to_scorer = tape.gradient(total, arguments)

        memory = AttentionMemory(values, keys, scorer)
        found_shares, found_average = attend(query, memory)
        self.assertAllClose(found_shares, shares, atol=1e-5)
        self.assertAllClose(found_average, average, atol=1e-5)
        found = attend_gradient(query, memory, found_shares, upstream)
        self.assertAllClose(found.query, to_query, atol=1e-5)
        self.assertAllClose(tf.reduce_sum(found.scorer, axis=0), to_scorer, atol=1e-5)
        self.assertAllClose(scorer * found.keys, to_keys, atol=1e-5)

    def test_stays_finite_however_large_queries_and_keys_are(self):
        query = tf.constant([[1e30, -1e30, 1e30]])
        memory = AttentionMemory(
            tf.ones([1, 2, 1]), tf.constant([[[-1e30] * 3, [1e30] * 3]]), tf.ones([3])
        )
        shares, average = attend(query, memory)
        gradient = attend_gradient(query, memory, shares, tf.ones([1, 1]))
        for value in (shares, average, *gradient):
            self.assertAllInRange(value, -1e3, 1e3)


if __name__ == "__main__":
    absltest.main()
