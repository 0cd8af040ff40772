import numpy as np
import tensorflow as tf
from absl.testing import absltest, parameterized

from tf_placer.placers.learned.start import Start, StartConfig


class StartTest(parameterized.TestCase):
    def test_groups_start_where_their_units_are_by_hand_worked_shares(self):
        start = Start(np.array([0, 0, 2, 1, 1], np.int32), uniform=0.1, num_devices=3)
        # Two units, three units, none.
        found = start.compute_group_probabilities(np.array([0, 0, 1, 1, 1], np.int32), num_groups=3)
        third = 0.1 / 3
        expected = [
            [0.9 + third, third, third],
            [third, 0.6 + third, 0.3 + third],
            [1 / 3, 1 / 3, 1 / 3],
        ]
        np.testing.assert_allclose(found, expected, atol=1e-6)

    def test_tensors_have_the_same_shares_as_arrays(self):
        start = Start(np.zeros(1, np.int32), uniform=0.03, num_devices=2)
        placed, members = np.array([[3.0, 1.0], [0.0, 0.0]]), np.array([[4.0], [0.0]])
        tensors = start.probabilities(tf.constant(placed), tf.constant(members))
        np.testing.assert_allclose(tensors.numpy(), start.probabilities(placed, members))

    def test_of_a_small_graph_two_devices_are_any_and_of_a_large_one_3_percent(self):
        shares = [StartConfig().uniform(count) for count in (2, 10, 50, 1000)]
        self.assertEqual(shares, [0.3, 0.2, 0.04, 0.03])
        self.assertEqual(StartConfig(start_uniform=0.5).uniform(10), 0.5)

    @parameterized.parameters(0.0, 1.5, -1.0, float("nan"))
    def test_refuses_what_is_no_share(self, share):
        with self.assertRaisesRegex(ValueError, "start_uniform must be above 0, at most 1"):
            StartConfig(start_uniform=share)


if __name__ == "__main__":
    absltest.main()
