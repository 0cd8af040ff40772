from __future__ import annotations

import numpy as np
from absl.testing import absltest, parameterized

from graph_passes.grouping.undirected import build_undirected_graph
from tests.graph_passes.grouping.group_graphs import group_graph, random_graph


class UndirectedGraphTest(parameterized.TestCase):
    def test_sums_both_directions(self):
        graph = build_undirected_graph(group_graph(4, {(0, 1): 5, (1, 0): 7, (3, 1): 2}))
        self.assertEqual(graph.start.tolist(), [0, 1, 3, 3, 4])
        self.assertEqual(graph.neighbors.tolist(), [1, 0, 3, 1])
        self.assertEqual(graph.pair_bytes.tolist(), [12, 12, 2, 2])

    @parameterized.parameters(0, 1, 5)
    def test_without_edges_there_are_no_neighbors(self, num_groups):
        graph = build_undirected_graph(group_graph(num_groups, {}))
        self.assertEqual(graph.start.tolist(), [0] * (num_groups + 1))
        self.assertEmpty(graph.neighbors)
        self.assertEmpty(graph.pair_bytes)

    @parameterized.parameters(*range(5))
    def test_rows_equal_the_symmetric_matrix(self, seed):
        groups = random_graph(12, 40, seed)
        matrix = np.zeros([12, 12], np.int64)
        linked = np.zeros([12, 12], bool)
        for (a, b), size in zip(groups.edges.tolist(), groups.edge_bytes.tolist(), strict=True):
            matrix[a, b] += size
            matrix[b, a] += size
            linked[a, b] = linked[b, a] = True
        graph = build_undirected_graph(groups)
        for group in range(12):
            row = slice(graph.start[group], graph.start[group + 1])
            wanted = np.flatnonzero(linked[group])
            self.assertEqual(graph.neighbors[row].tolist(), wanted.tolist())
            self.assertEqual(graph.pair_bytes[row].tolist(), matrix[group, wanted].tolist())


if __name__ == "__main__":
    absltest.main()
