import numpy as np
import tensorflow as tf

from tf_placer.placers.learned.decisions import IMPOSSIBLE
from tf_placer.placers.learned.masking import choose, compute_masked_log_softmax


class MaskedLogSoftmaxTest(tf.test.TestCase):
    def test_is_the_softmax_over_what_is_legal(self):
        logits = tf.math.log(tf.constant([[1.0, 5.0, 3.0], [2.0, 2.0, 4.0]]))
        legal = tf.constant([[True, False, True], [True, True, True]])
        log_dists = compute_masked_log_softmax(logits, legal).numpy()
        self.assertAllClose(np.exp(log_dists), [[0.25, 0, 0.75], [0.25, 0.25, 0.5]])
        self.assertEqual(log_dists[0, 1], IMPOSSIBLE)

    def test_a_mask_may_be_shared_by_many_rows_and_rows_by_many_masks(self):
        logits = tf.zeros([5, 2, 3])
        mask = tf.constant([[[True, False, True], [True, True, True]]])
        self.assertAllClose(
            np.exp(compute_masked_log_softmax(logits, mask)[4]), [[0.5, 0, 0.5], [1 / 3] * 3]
        )
        self.assertEqual(
            compute_masked_log_softmax(logits[:1], tf.repeat(mask, 5, 0)).shape, [5, 2, 3]
        )

    def test_huge_logits_keep_their_order(self):
        log_dists = compute_masked_log_softmax(
            tf.constant([[1e12, -1e12, 0]]), tf.constant([[False, True, True]])
        )
        self.assertAllClose(np.exp(log_dists), [[0, 0, 1]])

    def test_the_gradient_of_an_entropy_is_finite_and_0_where_not_legal(self):
        logits = tf.constant([[1.0, 2.0, 3.0]])
        with tf.GradientTape() as tape:
            tape.watch(logits)
            log_dists = compute_masked_log_softmax(logits, tf.constant([[True, False, True]]))
            entropy = -tf.reduce_sum(tf.exp(log_dists) * log_dists)
        gradient = tape.gradient(entropy, logits).numpy()[0]
        # dH/dx = -p (log p + H), and what one of two gains the other loses.
        probability = 1 / (1 + np.exp(2.0))
        expected = -probability * (np.log(probability) + entropy.numpy())
        self.assertAllClose(gradient, [expected, 0, -expected])


class ChooseTest(tf.test.TestCase):
    def test_takes_the_largest_sum_among_the_legal(self):
        scores = tf.constant([[0.0, 1e12, 1.0]])
        legal = tf.constant([[True, False, True]])
        noise = tf.constant([[0.0, 0.0, 0.0], [2.0, 1e12, 0.0]])
        self.assertAllEqual(choose(scores, legal, noise), [2, 0])


if __name__ == "__main__":
    tf.test.main()
