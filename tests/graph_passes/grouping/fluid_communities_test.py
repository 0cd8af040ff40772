from __future__ import annotations

import random

import networkx as nx
import numpy as np
from absl.testing import absltest, parameterized

from graph_passes.grouping.fluid_communities import fluid_groups
from graph_passes.grouping.merged_groups import number_clusters
from tests.graph_passes.grouping.group_graphs import (
    cliques,
    cut_bytes,
    group_graph,
    random_graph,
)


class FluidGroupsTest(parameterized.TestCase):
    @parameterized.product(weighted=(True, False), count=(2, 4))
    def test_separates_cliques(self, weighted, count):
        groups = cliques(count, 8, inside=1000, between=1)
        wanted = list(range(count)) * 8
        # Two communities may start in one clique, so the best of a few seeds counts.
        found = [fluid_groups(groups, count, seed, weighted).tolist() for seed in range(8)]
        self.assertIn(wanted, found)

    def test_bytes_count_only_with_weights(self):
        # All pairs are neighbors, so only bytes distinguish the two halves.
        edges = {(a, b): 1000 if a // 5 == b // 5 else 1 for b in range(10) for a in range(b)}
        groups, halves = group_graph(10, edges), [0] * 5 + [1] * 5
        weighted = [fluid_groups(groups, 2, seed).tolist() for seed in range(20)]
        unweighted = [fluid_groups(groups, 2, seed, weighted=False).tolist() for seed in range(20)]
        self.assertGreater(weighted.count(halves), 5)
        self.assertEqual(unweighted.count(halves), 0)

    @parameterized.product(seed=[*range(6)], num_clusters=(2, 5), size=(1, 77))
    def test_equal_weights_agree_with_networkx(self, seed, num_clusters, size):
        graph = nx.connected_watts_strogatz_graph(40, 4, 0.2, seed=seed)
        groups = group_graph(40, dict.fromkeys(graph.edges, size))
        # Ties are drawn from the list of neighbors, which is in ascending order.
        ordered = nx.Graph()
        ordered.add_nodes_from(range(40))
        ordered.add_edges_from(sorted(tuple(sorted(edge)) for edge in graph.edges))
        wanted = np.zeros(40, np.int32)
        found = nx.algorithms.community.asyn_fluidc(ordered, num_clusters, seed=random.Random(seed))
        for number, community in enumerate(found):
            wanted[list(community)] = number
        for weighted in (True, False):
            found = fluid_groups(groups, num_clusters, seed, weighted)
            self.assertEqual(found.tolist(), number_clusters(wanted).tolist())

    def test_components_get_clusters_in_proportion_to_size(self):
        # Three chains of 18, 9 and 3 groups get 6, 3 and 1 of 10 clusters.
        edges = {(a, a + 1): 8 for a in range(29) if a not in (17, 26)}
        found = fluid_groups(group_graph(30, edges), 10, seed=0)
        self.assertLen(set(found[:18].tolist()), 6)
        self.assertLen(set(found[18:27].tolist()), 3)
        self.assertLen(set(found[27:].tolist()), 1)
        self.assertEqual(found.max(), 9)

    def test_isolated_groups_are_packed_together(self):
        # A chain of 30 and 10 isolated groups get 3 and 1 of 4 clusters.
        groups = group_graph(40, {(a, a + 1): 8 for a in range(29)})
        found = fluid_groups(groups, 4, seed=0)
        self.assertLen(set(found[:30].tolist()), 3)
        self.assertLen(set(found[30:].tolist()), 1)

    def test_components_are_packed_evenly(self):
        edges = {(2 * a, 2 * a + 1): 8 for a in range(9)}
        found = fluid_groups(group_graph(18, edges), 4, seed=0)
        self.assertEqual(found[::2].tolist(), found[1::2].tolist())
        self.assertEqual(sorted(np.bincount(found).tolist()), [4, 4, 4, 6])

    @parameterized.product(num_clusters=(4, 20), weighted=(True, False))
    def test_cut_is_below_that_of_random_clusters_of_the_same_sizes(self, num_clusters, weighted):
        groups = cliques(20, 10, inside=1000, between=5000)
        found = fluid_groups(groups, num_clusters, 0, weighted)
        source = np.random.default_rng(0)
        least = min(cut_bytes(groups, source.permutation(found)) for _ in range(100))
        self.assertLess(cut_bytes(groups, found), least)

    @parameterized.parameters(True, False)
    def test_unreached_groups_join_their_nearest_neighbors(self, weighted):
        groups = group_graph(2000, {(a, a + 1): 8 for a in range(1999)})
        found = fluid_groups(groups, 2, 0, weighted)
        self.assertEqual(set(found.tolist()), {0, 1})
        # Both clusters are intervals of the chain.
        self.assertEqual(np.count_nonzero(np.diff(found)), 1)

    @parameterized.product(seed=[*range(15)], weighted=(True, False))
    def test_number_of_clusters_is_as_requested(self, seed, weighted):
        source = np.random.default_rng(seed)
        num_groups = int(source.integers(2, 60))
        num_clusters = int(source.integers(1, num_groups + 1))
        groups = random_graph(num_groups, int(source.integers(0, 2 * num_groups)), seed)
        found = fluid_groups(groups, num_clusters, seed, weighted)
        self.assertEqual(found.tolist(), number_clusters(found).tolist())
        self.assertLen(set(found.tolist()), num_clusters)
        self.assertEqual(found.dtype, np.int32)

    @parameterized.parameters((4, 4), (4, 256), (1, 1), (0, 3))
    def test_each_group_is_a_cluster_if_there_are_few(self, num_groups, num_clusters):
        found = fluid_groups(group_graph(num_groups, {}), num_clusters, seed=0)
        self.assertEqual(found.tolist(), list(range(num_groups)))

    @parameterized.parameters(True, False)
    def test_same_seed_gives_the_same_clusters(self, weighted):
        groups = random_graph(100, 300, seed=5)
        first, again, other = (fluid_groups(groups, 9, seed, weighted) for seed in (3, 3, 4))
        self.assertEqual(first.tolist(), again.tolist())
        self.assertNotEqual(first.tolist(), other.tolist())

    def test_rejects_zero_clusters(self):
        with self.assertRaisesRegex(ValueError, "num_clusters must be at least 1, not -2"):
            fluid_groups(cliques(2, 3, 9, 1), -2, seed=0)


if __name__ == "__main__":
    absltest.main()
