from __future__ import annotations

import dataclasses
import itertools

import numpy as np
from absl.testing import absltest, parameterized

from graph_passes.grouping.merged_groups import number_clusters
from graph_passes.grouping.metis import metis_groups
from tests.graph_passes.grouping.group_graphs import (
    cliques,
    cut_bytes,
    group_graph,
    random_graph,
)


class MetisGroupsTest(parameterized.TestCase):
    @parameterized.parameters((2, 6), (3, 5), (12, 4))
    def test_separates_cliques(self, count, size):
        groups = cliques(count, size, inside=1000, between=1)
        found = metis_groups(groups, count, seed=0)
        self.assertEqual(found.tolist(), list(range(count)) * size)
        self.assertEqual(found.dtype, np.int32)

    def test_minimizes_bytes_rather_than_edges(self):
        # Two opposite edges of a ring of four carry few bytes.
        groups = group_graph(4, {(0, 1): 900, (1, 2): 1, (2, 3): 900, (3, 0): 1})
        self.assertEqual(metis_groups(groups, 2, seed=0).tolist(), [0, 0, 1, 1])
        groups = group_graph(4, {(0, 1): 1, (1, 2): 900, (2, 3): 1, (3, 0): 900})
        self.assertEqual(metis_groups(groups, 2, seed=0).tolist(), [0, 1, 1, 0])

    def test_sums_both_directions(self):
        # In one direction 1-2 carries the most bytes, in both directions together the fewest.
        edges = {(0, 1): 5, (1, 0): 5, (1, 2): 6, (2, 3): 5, (3, 2): 5, (3, 0): 6}
        self.assertEqual(metis_groups(group_graph(4, edges), 2, seed=0).tolist(), [0, 0, 1, 1])

    @parameterized.parameters(*range(4))
    def test_cut_is_near_the_minimum_of_even_cuts(self, seed):
        groups = random_graph(10, 30, seed)
        sizes = np.random.default_rng(seed).integers(50, 100, len(groups.edges))
        groups = dataclasses.replace(groups, edge_bytes=sizes)
        least = min(
            cut_bytes(groups, np.isin(np.arange(10), half))
            for half in itertools.combinations(range(10), 5)
        )
        found = metis_groups(groups, 2, seed=0)
        self.assertEqual(np.bincount(found).tolist(), [5, 5])
        self.assertLessEqual(cut_bytes(groups, found), 1.15 * least)

    def test_few_groups_per_cluster_leave_few_clusters_empty(self):
        for num_groups, num_clusters in ((280, 256), (164, 105), (113, 56)):
            found = metis_groups(random_graph(num_groups, 2 * num_groups, seed=0), num_clusters, 0)
            self.assertGreater(len(set(found.tolist())), 0.85 * num_clusters)
            self.assertLessEqual(np.bincount(found).max(), 3 * num_groups / num_clusters)

    @parameterized.product(num_clusters=(4, 20), seed=(0, 1))
    def test_cut_is_below_that_of_random_clusters(self, num_clusters, seed):
        groups = random_graph(200, 600, seed)
        found = metis_groups(groups, num_clusters, seed)
        source = np.random.default_rng(seed)
        even = np.arange(200) % num_clusters
        least = min(cut_bytes(groups, source.permutation(even)) for _ in range(100))
        self.assertLess(cut_bytes(groups, found), least)
        self.assertLessEqual(np.bincount(found).max(), 1.5 * 200 / num_clusters)

    @parameterized.parameters(1 << 20, 1 << 40, 1 << 50)
    def test_scales_bytes_beyond_32_bits(self, scale):
        groups = cliques(3, 6, inside=7 * scale, between=scale)
        self.assertEqual(metis_groups(groups, 3, seed=0).tolist(), [0, 1, 2] * 6)

    def test_accepts_disconnected_graphs(self):
        groups = group_graph(8, {(0, 4): 9, (1, 5): 9, (2, 6): 9, (3, 7): 9})
        self.assertEqual(metis_groups(groups, 4, seed=0).tolist(), [0, 1, 2, 3] * 2)

    @parameterized.parameters((1, 3), (6, 2), (30, 12), (5, 4))
    def test_accepts_graphs_without_edges(self, num_groups, num_clusters):
        found = metis_groups(group_graph(num_groups, {}), num_clusters, seed=0)
        self.assertEqual(found.tolist(), number_clusters(found).tolist())
        self.assertLessEqual(found.max() + 1, num_clusters)

    @parameterized.parameters((4, 4), (4, 256), (1, 1), (0, 3))
    def test_each_group_is_a_cluster_if_there_are_few(self, num_groups, num_clusters):
        found = metis_groups(group_graph(num_groups, {}), num_clusters, seed=0)
        self.assertEqual(found.tolist(), list(range(num_groups)))

    def test_single_cluster_has_all_groups(self):
        self.assertEqual(metis_groups(cliques(2, 3, 9, 1), 1, seed=0).tolist(), [0] * 6)

    @parameterized.parameters(*range(20))
    def test_clusters_are_numbered_by_first_member_and_not_empty(self, seed):
        source = np.random.default_rng(seed)
        num_groups = int(source.integers(2, 60))
        num_clusters = int(source.integers(1, num_groups + 1))
        groups = random_graph(num_groups, int(source.integers(0, 3 * num_groups)), seed)
        found = metis_groups(groups, num_clusters, seed)
        self.assertEqual(found.tolist(), number_clusters(found).tolist())
        self.assertLessEqual(found.max() + 1, num_clusters)

    @parameterized.parameters(0, -1, 1 << 40)
    def test_same_seed_gives_the_same_clusters(self, seed):
        groups = random_graph(100, 300, seed=5)
        first = metis_groups(groups, 12, seed)
        metis_groups(groups, 12, seed=seed + 1)
        self.assertEqual(metis_groups(groups, 12, seed).tolist(), first.tolist())

    def test_rejects_zero_clusters(self):
        with self.assertRaisesRegex(ValueError, "num_clusters must be at least 1, not 0"):
            metis_groups(cliques(2, 3, 9, 1), 0, seed=0)


if __name__ == "__main__":
    absltest.main()
