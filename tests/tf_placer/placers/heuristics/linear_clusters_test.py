import itertools

import numpy as np
from absl.testing import absltest

from tests.tf_placer.placers import graphs
from tf_placer.placers.heuristics.linear_clusters import (
    find_bands,
    find_chains,
    find_linear_clusters,
    find_longest_paths,
)


def list_grid_edges(num_layers, num_steps):
    """Lists the edges of a grid whose cell (layer, step) is group layer + step * num_layers."""
    cells = [(layer, step) for step in range(num_steps) for layer in range(num_layers)]
    upwards = [(layer + step * num_layers, 1) for layer, step in cells if layer < num_layers - 1]
    onwards = [(layer + step * num_layers, num_layers) for layer, step in cells[:-num_layers]]
    return [(group, group + distance) for group, distance in [*upwards, *onwards]]


def parts(membership):
    return {tuple(np.flatnonzero(membership == part).tolist()) for part in set(membership.tolist())}


class LinearClustersTest(absltest.TestCase):
    def test_the_clusters_of_a_grid_are_its_layers_in_any_numbering(self):
        layers = np.arange(3 * 7) % 3
        numbers = np.random.default_rng(0).permutation(3 * 7)
        edges = [(int(numbers[a]), int(numbers[b])) for a, b in list_grid_edges(3, 7)]
        [clusters] = find_linear_clusters(graphs.group_graph(21, edges))
        self.assertEqual(parts(clusters[numbers]), parts(layers))

    def test_the_short_side_of_a_grid_is_never_cut(self):
        # With five layers and three steps, the smaller classes of edges are contracted.
        [clusters] = find_linear_clusters(graphs.group_graph(15, list_grid_edges(5, 3)))
        self.assertEqual(parts(clusters), parts(np.arange(15) // 5))

    def test_cells_may_be_chains(self):
        # Every cell is two groups; other cells read the second.
        edges = [(2 * a + 1, 2 * b) for a, b in list_grid_edges(3, 7)]
        edges += [(2 * cell, 2 * cell + 1) for cell in range(21)]
        [clusters] = find_linear_clusters(graphs.group_graph(42, edges))
        self.assertEqual(parts(clusters), parts(np.arange(42) // 2 % 3))

    def test_towers_that_share_parameters_are_clusters(self):
        # All groups of two chains of five read parameter 0.
        edges = [(0, group) for group in range(1, 11)]
        edges += [(group, group + 1) for group in range(1, 10) if group != 5]
        [clusters] = find_linear_clusters(graphs.group_graph(11, edges))
        self.assertEqual(parts(clusters), {(0,), (1, 2, 3, 4, 5), (6, 7, 8, 9, 10)})

    def test_graphs_without_repetition_have_no_clusters(self):
        tree = [(group, (group - 1) // 2) for group in range(1, 15)]
        for groups in (graphs.chain(6), graphs.group_graph(15, tree), graphs.group_graph(1)):
            self.assertEqual(find_linear_clusters(groups), [])

    def test_coarser_clusters_follow_and_are_unions_of_finer_ones(self):
        # Two parallel grids of 40 steps and 20 layers, connected by one edge.
        edges = [
            *list_grid_edges(20, 40),
            *((a + 800, b + 800) for a, b in list_grid_edges(20, 40)),
        ]
        some = find_linear_clusters(graphs.group_graph(1600, [*edges, (5, 805)]))
        self.assertNotEmpty(some)
        for finer, coarser in itertools.pairwise(some):
            self.assertLess(coarser.max(), finer.max())
            self.assertEqual(len(set(zip(finer, coarser, strict=True))), finer.max() + 1)

    def test_accepts_cycles_between_groups(self):
        edges = [(0, 1), (1, 2), (2, 0), (0, 2), (2, 1), (1, 0)]
        self.assertLessEqual(len(find_linear_clusters(graphs.group_graph(3, edges))), 1)


class BandsTest(absltest.TestCase):
    def test_consecutive_clusters_are_separate_bands(self):
        clusters = np.array([0, 1, 0, 1, 2, 3, 2, 3])
        bands = find_bands(clusters, np.arange(8.0))
        self.assertEqual(bands.tolist(), [0, 0, 1, 1])

    def test_a_cluster_belongs_to_the_band_that_contains_its_middle(self):
        clusters = np.array([0, 0, 1, 1, 2, 2])
        bands = find_bands(clusters, np.array([0.0, 10.0, 7.0, 12.0, 9.0, 14.0]))
        self.assertEqual(bands.tolist(), [0, 0, 1])


class ChainsTest(absltest.TestCase):
    def test_a_chain_ends_at_branches_and_joins(self):
        # 0 -> 1 -> 2 -> {3, 4}; 3 -> 5; 4 -> 5; 5 -> 6.
        edges = [(0, 1), (1, 2), (2, 3), (2, 4), (3, 5), (4, 5), (5, 6)]
        chain_of, count = find_chains(graphs.group_graph(7, edges))
        self.assertEqual(count, 4)
        self.assertEqual(parts(chain_of), {(0, 1, 2), (3,), (4,), (5, 6)})


class LongestPathsTest(absltest.TestCase):
    def test_a_path_follows_the_longest_rest(self):
        # A chain 0, 1, 2, in which each group has a head.
        edges = [(0, 1), (1, 2), (0, 3), (1, 4), (2, 5)]
        rests = np.array([4.0, 3.0, 2.0, 1.0, 1.0, 1.0])
        paths = find_longest_paths(graphs.group_graph(6, edges), rests)
        self.assertEqual(parts(paths), {(0, 1, 2, 5), (3,), (4,)})

    def test_a_join_continues_the_path_with_the_longer_rest(self):
        paths = find_longest_paths(
            graphs.group_graph(3, [(0, 2), (1, 2)]), np.array([3.0, 5.0, 1.0])
        )
        self.assertEqual(parts(paths), {(0,), (1, 2)})


if __name__ == "__main__":
    absltest.main()
