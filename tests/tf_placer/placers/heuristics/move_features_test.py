import numpy as np
from absl.testing import absltest

from tests.tf_placer.placers import graphs
from tf_placer.placers.heuristics.move_features import MoveFeatures

# What a placement is described by comes first.
NUM_DIFFERENCES = 6


class MoveFeaturesTest(absltest.TestCase):
    def test_describes_a_move_in_shares_of_the_graph(self):
        # Half of the work is in the last group; each group is in another window.
        groups = graphs.group_graph(4, [(0, 1), (1, 2), (2, 3), (0, 3)], work=[1, 1, 2, 4])
        (features,) = MoveFeatures(groups, 2).of(np.array([0, 0, 0, 1]), np.array([[0, 0, 1, 1]]))
        self.assertLen(features, MoveFeatures.size)
        np.testing.assert_allclose(
            features,
            [
                # 4/8 and 4/8 become 2/8 and 6/8.
                0.25,
                4 / 64 + 36 / 64 - 0.5,
                # The edges to the last group and, after it, those from the first two.
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
        # All groups are in one layer, but for one that has no work.
        groups = graphs.group_graph(3, work=[1, 1, 0], layers=[0, 0, 1])
        (apart,) = MoveFeatures(groups, 2).of(np.array([0, 0, 0]), np.array([[0, 1, 0]]))
        self.assertAlmostEqual(apart[4], -0.0)
        self.assertAlmostEqual(apart[0], -0.5)

    def test_differences_add_up_along_a_way(self):
        random = np.random.default_rng(0)
        groups = graphs.group_graph(
            30,
            [(k, j) for k in range(30) for j in range(k + 1, 30) if random.random() < 0.2],
            work=random.exponential(size=30),
        )
        features = MoveFeatures(groups, 3)
        first, second, third = random.integers(3, size=[3, 30])
        half, whole = features.of(first, np.stack([second, third]))
        (rest,) = features.of(second, third[None])
        np.testing.assert_allclose(
            whole[:NUM_DIFFERENCES], (half + rest)[:NUM_DIFFERENCES], atol=1e-12
        )

    def test_tells_moves_of_one_group_and_exchanges_from_others(self):
        features = MoveFeatures(graphs.chain(4), 3)
        before = np.array([0, 0, 1, 2])
        for after, is_one, is_exchange in (
            ([1, 0, 1, 2], True, False),
            ([1, 0, 0, 2], False, True),
            ([1, 1, 1, 2], False, False),
            ([1, 0, 2, 2], False, False),
        ):
            (of_move,) = features.of(before, np.array([after]))
            self.assertEqual(of_move[9:11].tolist(), [is_one, is_exchange])

    def test_a_graph_without_work_and_edges_has_features_too(self):
        features = MoveFeatures(graphs.group_graph(3, work=[0, 0, 0]), 2)
        self.assertTrue(np.isfinite(features.of(np.zeros(3, int), np.array([[0, 1, 1]]))).all())


if __name__ == "__main__":
    absltest.main()
