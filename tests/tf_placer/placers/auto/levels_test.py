import numpy as np
from absl.testing import absltest

from tests.tf_placer.placers import graphs
from tf_placer.placers.auto.levels import make_levels


class LevelsTest(absltest.TestCase):
    def test_the_last_level_has_single_groups(self):
        [level] = make_levels(graphs.chain(3), [])
        self.assertEqual(level.cluster_of.tolist(), [0, 1, 2])
        self.assertEqual(level.neighbors_of(1).tolist(), [0, 2])
        self.assertEqual(level.neighbors_of(2).tolist(), [1])
        self.assertEqual(level.groups_of(np.array([2, 0])).tolist(), [2, 0])

    def test_clusters_have_members_neighbors_and_an_order(self):
        # 0 -> 1 -> 2 -> 3 -> 4 -> 5; numbers of clusters may be anything.
        coarse, _ = make_levels(graphs.chain(6), [np.array([7, 7, 3, 3, 3, 5])])
        self.assertEqual(coarse.num_clusters, 3)
        last, middle, first = coarse.cluster_of[[5, 3, 0]].tolist()
        self.assertEqual(coarse.order.tolist(), [first, middle, last])
        self.assertEqual(coarse.position[[first, middle, last]].tolist(), [0, 1, 2])
        self.assertEqual(coarse.groups_of(np.array([middle])).tolist(), [2, 3, 4])
        self.assertEqual(coarse.groups_of(np.array([last, first])).tolist(), [5, 0, 1])
        self.assertEqual(coarse.neighbors_of(first).tolist(), [middle])
        self.assertCountEqual(coarse.neighbors_of(middle).tolist(), [first, last])

    def test_levels_are_ordered_from_coarse_to_fine_without_trivial_ones(self):
        memberships = [np.arange(4), np.array([0, 0, 1, 2]), np.array([0, 0, 0, 1])]
        levels = make_levels(graphs.chain(4), memberships)
        self.assertEqual([level.num_clusters for level in levels], [2, 3, 4])

    def test_a_graph_without_edges_has_no_neighbors(self):
        [level] = make_levels(graphs.group_graph(2), [])
        self.assertEmpty(level.neighbors_of(0))

    def test_refuses_a_membership_of_other_groups(self):
        with self.assertRaisesRegex(ValueError, r"must have the shape \[3\], not \[2\]"):
            make_levels(graphs.chain(3), [np.array([0, 1])])


if __name__ == "__main__":
    absltest.main()
