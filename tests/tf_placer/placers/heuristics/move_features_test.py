import numpy as np
from absl.testing import absltest

from tests.tf_placer.placers import graphs
from tf_placer.placers.heuristics.move_features import MoveFeatures

NUM_DIFFERENCES = 6


class MoveFeaturesTest(absltest.TestCase):
    def test_describes_a_move_in_shares_of_the_graph(self):
        # Half of the work is in the last group; each group is in another window.
        groups = graphs.group_graph(4, [(0, 1), (1, 2), (2, 3), (0, 3)], work=[1, 1, 2, 4])
        (features,) = MoveFeatures(groups, 2).describe(
            np.array([0, 0, 0, 1]), np.array([[0, 0, 1, 1]])
        )
        self.assertLen(features, MoveFeatures.size)
        np.testing.assert_allclose(
            features,
            [
                # 4/8 and 4/8 become 2/8 and 6/8.
                0.25,
                4 / 64 + 36 / 64 - 0.5,
                # The edges between devices are those to the last group before the move, and those
                # from the first two after it.
                0.0,
                0.0,
                0.0,
                0.0,
                0.25,
                0.25,
                0.0,
                1.0,
                0.0,
                1.0,
            ],
        )

    def test_sees_whether_work_of_one_window_is_on_one_device(self):
        # All groups with work are in one layer.
        groups = graphs.group_graph(3, work=[1, 1, 0], layers=[0, 0, 1])
        (apart,) = MoveFeatures(groups, 2).describe(np.array([0, 0, 0]), np.array([[0, 1, 0]]))
        self.assertAlmostEqual(apart[4], -0.0)
        self.assertAlmostEqual(apart[0], -0.5)

    def test_differences_add_up_over_moves(self):
        random = np.random.default_rng(0)
        groups = graphs.group_graph(
            30,
            [(k, j) for k in range(30) for j in range(k + 1, 30) if random.random() < 0.2],
            work=random.exponential(size=30),
        )
        features = MoveFeatures(groups, 3)
        first, second, third = random.integers(3, size=[3, 30])
        half, whole = features.describe(first, np.stack([second, third]))
        (rest,) = features.describe(second, third[None])
        np.testing.assert_allclose(
            whole[:NUM_DIFFERENCES], (half + rest)[:NUM_DIFFERENCES], atol=1e-12
        )

    def test_distinguishes_single_moves_and_exchanges_from_others(self):
        features = MoveFeatures(graphs.chain(4), 3)
        before = np.array([0, 0, 1, 2])
        for after, is_one, is_exchange in (
            ([1, 0, 1, 2], True, False),
            ([1, 0, 0, 2], False, True),
            ([1, 1, 1, 2], False, False),
            ([1, 0, 2, 2], False, False),
        ):
            (of_move,) = features.describe(before, np.array([after]))
            self.assertEqual(of_move[9:11].tolist(), [is_one, is_exchange])

    def test_a_graph_without_work_and_edges_has_features_too(self):
        features = MoveFeatures(graphs.group_graph(3, work=[0, 0, 0]), 2)
        self.assertTrue(
            np.isfinite(features.describe(np.zeros(3, int), np.array([[0, 1, 1]]))).all()
        )


if __name__ == "__main__":
    absltest.main()
