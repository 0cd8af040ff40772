from __future__ import annotations

import collections
import itertools

import networkx as nx
import numpy as np
from absl.testing import absltest, parameterized

from graph_passes.util.topological_order import compute_longest_paths, find_cycle, topological_order


def make_edges(*pairs: tuple[int, int]) -> np.ndarray:
    return np.array(pairs, np.int32).reshape(-1, 2)


def draw_edges(random: np.random.Generator, count: int, *, cyclic: bool = False) -> np.ndarray:
    """Makes edges between randomly numbered nodes, some of them twice."""
    pairs = random.integers(0, count, [2 * count, 2])
    if not cyclic:
        pairs = np.sort(pairs[pairs[:, 0] != pairs[:, 1]], axis=1)
    pairs = np.concatenate([pairs, pairs[: count // 3]])
    return random.permutation(count)[pairs]


def sort_by_definition(count: int, edges: np.ndarray, prefers: str, breaks_cycles: bool):
    """Rescans all nodes before each choice."""
    since: dict[int, int] = {}
    order: list[int] = []
    for now in range(count):
        waiting = {int(b) for a, b in edges if a not in order}
        for node in set(range(count)) - waiting - set(order):
            since.setdefault(node, now)
        ready = [node for node in since if node not in order]
        if not ready:
            if not breaks_cycles:
                break
            ready = [min(set(range(count)) - set(order))]
        sign = {"lowest": 0, "newest": -1, "oldest": 1}[prefers]
        order.append(min(ready, key=lambda node: (sign * since.get(node, now), node)))
    return order


class TopologicalOrderTest(parameterized.TestCase):
    def test_takes_the_preferred_ready_node(self):
        # 1 -> 4, 1 -> 2 -> 5, 0 -> 3.
        edges = make_edges((1, 4), (1, 2), (2, 5), (0, 3), (5, 6), (3, 6))
        for prefers, expected in (
            ("lowest", [0, 1, 2, 3, 4, 5, 6]),
            ("newest", [0, 3, 1, 2, 5, 6, 4]),
            ("oldest", [0, 1, 3, 2, 4, 5, 6]),
        ):
            order = topological_order(7, edges, prefers)
            self.assertEqual((order.tolist(), order.dtype), (expected, np.int32))

    @parameterized.product(
        prefers=("lowest", "newest", "oldest"), cyclic=(False, True), breaks_cycles=(False, True)
    )
    def test_agrees_with_the_definition_on_random_graphs(self, prefers, cyclic, breaks_cycles):
        random = np.random.default_rng(0)
        lengths = collections.Counter()
        for _ in range(60):
            count = int(random.integers(1, 14))
            edges = draw_edges(random, count, cyclic=cyclic)
            order = topological_order(count, edges, prefers, breaks_cycles=breaks_cycles).tolist()
            self.assertEqual(order, sort_by_definition(count, edges, prefers, breaks_cycles))
            lengths[len(order) < count] += 1
        self.assertEqual(lengths[True] > 10, cyclic and not breaks_cycles)

    def test_sorts_nodes_without_edges_by_number(self):
        for prefers in ("lowest", "newest", "oldest"):
            self.assertEqual(topological_order(3, make_edges(), prefers).tolist(), [0, 1, 2])
        self.assertEqual(topological_order(0, make_edges()).tolist(), [])


class FindCycleTest(absltest.TestCase):
    def test_finds_the_cycle_without_its_predecessors_and_successors(self):
        edges = make_edges((0, 3), (3, 1), (1, 4), (4, 3), (4, 2))
        cycle = find_cycle(5, edges)
        start = cycle.index(1)
        self.assertEqual(cycle[start:] + cycle[:start], [1, 4, 3])
        self.assertEqual(find_cycle(2, make_edges((1, 1))), [1])

    def test_finds_cycles_in_random_graphs(self):
        random = np.random.default_rng(1)
        found = 0
        for _ in range(50):
            edges = draw_edges(random, 8, cyclic=True)
            graph = nx.DiGraph(edges.tolist())
            if not nx.is_directed_acyclic_graph(graph):
                cycle = find_cycle(8, edges)
                self.assertLen(set(cycle), len(cycle))
                self.assertTrue(all(map(graph.has_edge, cycle, [*cycle[1:], cycle[0]])))
                found += 1
        self.assertGreater(found, 20)


class LongestBeforeTest(absltest.TestCase):
    def test_adds_times_of_nodes_and_edges(self):
        edges = make_edges((0, 2), (1, 2), (2, 3))
        secs = np.array([1.0, 3.0, 10.0, 100.0])
        self.assertEqual(compute_longest_paths(np.arange(4), edges, secs).tolist(), [0, 0, 3, 13])
        between = np.array([5.0, 0.0, 0.5])
        self.assertEqual(
            compute_longest_paths(np.arange(4), edges, secs, between).tolist(), [0, 0, 6, 16.5]
        )

    def test_agrees_with_all_paths_of_random_graphs(self):
        random = np.random.default_rng(0)
        for _ in range(20):
            count = int(random.integers(2, 7))
            edges = draw_edges(random, count)
            secs, between = random.random(count), random.random(len(edges))
            gaps: dict[tuple[int, int], float] = {}
            for (before, after), gap in zip(edges.tolist(), between, strict=True):
                gaps[before, after] = max(gap, gaps.get((before, after), 0.0))
            longest = [0.0] * count
            for length in range(2, count + 1):
                for chain in itertools.permutations(range(count), length):
                    pairs = list(itertools.pairwise(chain))
                    if all(pair in gaps for pair in pairs):
                        total = secs[list(chain[:-1])].sum() + sum(gaps[pair] for pair in pairs)
                        longest[chain[-1]] = max(longest[chain[-1]], total)
            order = topological_order(count, edges)
            np.testing.assert_allclose(compute_longest_paths(order, edges, secs, between), longest)


if __name__ == "__main__":
    absltest.main()
