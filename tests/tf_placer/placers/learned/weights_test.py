import numpy as np
import tensorflow as tf

from tf_placer.placers.learned import weights


class WeightsTest(tf.test.TestCase):
    def test_seeds_differ_from_each_other_and_between_seeds(self):
        drawn = [list(weights.seeds(seed)) for seed in (0, 1, 0)]
        self.assertEqual(drawn[0], drawn[2])
        self.assertLen({*drawn[0], *drawn[1]}, 128)

    def test_initializers_take_one_seed_each(self):
        values = []
        for _ in range(2):
            seeds = weights.seeds(3)
            values.append([weights.glorot(seeds)([4, 6]), weights.glorot(seeds)([4, 6])])
        self.assertAllEqual(values[0], values[1])
        self.assertNotAllClose(values[0][0], values[0][1])
        self.assertAllInRange(values[0][0], -np.sqrt(0.6), np.sqrt(0.6))

    def test_orthogonal_rows_are_orthogonal(self):
        matrix = weights.orthogonal(weights.seeds(0))([3, 12])
        self.assertAllClose(matrix @ tf.transpose(matrix), np.eye(3), atol=1e-5)


if __name__ == "__main__":
    tf.test.main()
