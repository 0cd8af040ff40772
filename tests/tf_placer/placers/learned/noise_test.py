import numpy as np
import tensorflow as tf

from tf_placer.placers.learned.noise import gumbel_noise, uniform_noise


def _seed(first, second=0):
    return tf.constant([first, second], tf.int64)


class NoiseTest(tf.test.TestCase):
    def test_numbers_of_a_placement_depend_on_its_own_seed_alone(self):
        for noise in (uniform_noise, gumbel_noise):
            first = noise(4, _seed(7), [3, 2])
            self.assertEqual(first.shape, [4, 3, 2])
            self.assertAllEqual(noise(2, _seed(7, 2), [3, 2]), first[2:])
            self.assertNotAllClose(noise(4, _seed(8), [3, 2]), first)
            self.assertLen(np.unique(first), 24)

    def test_have_their_distributions(self):
        uniform = uniform_noise(8, _seed(0), [5000]).numpy()
        self.assertAllInRange(uniform, 0, 1, open_lower_bound=True, open_upper_bound=True)
        # Five standard errors of the mean of 40,000 numbers.
        self.assertAllClose(uniform.mean(), 0.5, atol=0.008)
        gumbel = gumbel_noise(8, _seed(0), [5000]).numpy()
        self.assertAllClose(gumbel.mean(), np.euler_gamma, atol=0.033)
        self.assertAllClose(gumbel.std(), np.pi / np.sqrt(6), rtol=0.04)
        self.assertAllInSet(np.isfinite(gumbel), [True])


if __name__ == "__main__":
    tf.test.main()
