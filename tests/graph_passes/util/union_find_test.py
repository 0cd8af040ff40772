from __future__ import annotations

import random

import networkx as nx
from absl.testing import absltest

from graph_passes.util.union_find import UnionFind


class UnionFindTest(absltest.TestCase):
    def test_sets_begin_with_one_member_each(self):
        self.assertEqual(UnionFind(3).roots().tolist(), [0, 1, 2])
        self.assertEqual(UnionFind(0).roots().tolist(), [])

    def test_smallest_member_represents_its_set(self):
        sets = UnionFind(6)
        self.assertEqual(sets.union(5, 3), 3)
        self.assertEqual(sets.union(4, 5), 3)
        self.assertEqual(sets.union(4, 1), 1)
        self.assertEqual(sets.union(3, 5), 1)
        self.assertEqual(sets.find(5), 1)
        self.assertEqual(sets.roots().tolist(), [0, 1, 2, 1, 1, 1])

    def test_sets_equal_connected_components(self):
        rng = random.Random(0)
        for size in (2, 10, 100):
            for _ in range(20):
                pairs = [
                    (rng.randrange(size), rng.randrange(size)) for _ in range(rng.randrange(size))
                ]
                sets = UnionFind(size)
                for a, b in pairs:
                    sets.union(a, b)
                graph = nx.Graph(pairs)
                graph.add_nodes_from(range(size))
                expected = [min(nx.node_connected_component(graph, i)) for i in range(size)]
                self.assertEqual(sets.roots().tolist(), expected)

    def test_long_chain_needs_no_recursion(self):
        size = 100_000
        sets = UnionFind(size)
        for i in range(size - 1, 0, -1):
            sets.union(i, i - 1)
        self.assertEqual(set(sets.roots().tolist()), {0})


if __name__ == "__main__":
    absltest.main()
