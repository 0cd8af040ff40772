import numpy as np
import tensorflow as tf
from absl.testing import absltest, parameterized

from tf_placer.placers.learned.attention import Memory, attend, attend_gradient


class AttentionTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters(1, 3)
    def test_value_and_gradient_equal_those_of_the_plain_formula(self, size):
        rng = np.random.default_rng(0)
        query, values, keys, scorer = (
            tf.constant(rng.normal(size=shape), tf.float32)
            for shape in ([3, 5], [size, 4, 2], [size, 4, 5], [5])
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

        memory = Memory(values, keys, scorer)
        found_shares, found_average = attend(query, memory)
        self.assertAllClose(found_shares, shares)
        self.assertAllClose(found_average, average)
        found = attend_gradient(query, memory, found_shares, upstream)
        self.assertAllClose(found.query, to_query, atol=1e-5)
        self.assertAllClose(tf.reduce_sum(found.scorer, axis=0), to_scorer, atol=1e-5)
        scores = tf.reshape(found.scores, [3, 4, 1])
        if size == 1:
            scores = tf.reduce_sum(scores, axis=0, keepdims=True)
        self.assertAllClose(scorer * (scores - found.squares), to_keys, atol=1e-5)


if __name__ == "__main__":
    absltest.main()
