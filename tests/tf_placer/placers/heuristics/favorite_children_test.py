import itertools

import numpy as np
from absl.testing import absltest

from tests.tf_placer.placers import problems
from tf_placer.placers.heuristics.favorite_children import find_favorite_children
from tf_placer.placers.heuristics.schedule_costs import read_schedule_costs
from tf_placer.problem.problem_groups import legal_devices


def solve(problem):
    return find_favorite_children(read_schedule_costs(problem), legal_devices(problem))


def find_shortest_makespan(secs, edges):
    """Finds the shortest of all schedules on as many devices as there are operations."""
    count = len(secs)
    orders = [
        order
        for order in itertools.permutations(range(count))
        if all(order.index(before) < order.index(after) for before, after, _ in edges)
    ]
    # The devices are equal, so operation i only needs to try the first i + 1.
    placements = itertools.product(*(range(i + 1) for i in range(count)))
    shortest = float("inf")
    for devices in placements:
        for order in orders:
            ends, free = [0.0] * count, [0.0] * count
            for operation in order:
                start = free[devices[operation]]
                for before, after, size in edges:
                    if after == operation:
                        sent = size * (devices[before] != devices[after])
                        start = max(start, ends[before] + sent)
                ends[operation] = free[devices[operation]] = start + secs[operation]
            shortest = min(shortest, max(ends))
    return shortest


def make_random_task_graph(rng, count):
    secs = rng.integers(3, 9, count).tolist()
    edges = [
        (before, after, int(rng.integers(1, 4)))
        for after in range(count)
        for before in range(after)
        if rng.random() < 0.5
    ]
    return secs, edges


class FavoriteChildrenTest(absltest.TestCase):
    def test_in_a_chain_each_is_the_favorite_of_the_one_before(self):
        favorites, length = solve(
            problems.build_task_problem([(2, 4), (1, 1), (5, 5)], [(0, 1, 7), (1, 2, 7)])
        )
        self.assertEqual(favorites, [1, 2, -1])
        self.assertAlmostEqual(length, 3 + 1 + 5)

    def test_the_longer_path_is_the_favorite(self):
        secs, edges = [1, 9, 2, 1], [(0, 1, 1), (0, 2, 1), (1, 3, 1), (2, 3, 1)]
        favorites, length = solve(
            problems.build_task_problem([(each,) * 3 for each in secs], edges)
        )
        self.assertEqual(favorites[:2], [1, 3])
        self.assertAlmostEqual(length, 11)

    def test_transfers_in_a_group_and_signals_need_no_favorites(self):
        problem = problems.build_task_problem(
            [(1, 1)] * 3, [(0, 1, 9), (1, 2, 0)], groups=[0, 0, 1], latency_secs=3.0
        )
        favorites, length = solve(problem)
        self.assertEqual(favorites, [-1] * 3)
        self.assertAlmostEqual(length, 3)

    def test_no_schedule_is_shorter_where_transfers_are_short(self):
        rng = np.random.default_rng(0)
        tight = 0
        for _ in range(25):
            secs, edges = make_random_task_graph(rng, 4)
            _, length = solve(problems.build_task_problem([(each,) * 2 for each in secs], edges))
            shortest = find_shortest_makespan(secs, edges)
            self.assertLessEqual(length, shortest + 1e-6)
            tight += length > shortest - 1e-6
        self.assertGreater(tight, 5)  # The bound is not trivial.

    def test_favorites_are_a_matching_of_edges(self):
        rng = np.random.default_rng(1)
        for _ in range(20):
            secs, edges = make_random_task_graph(rng, 15)
            favorites, _ = solve(problems.build_task_problem([(each,) * 3 for each in secs], edges))
            chosen = [favorite for favorite in favorites if favorite >= 0]
            self.assertLen(set(chosen), len(chosen))
            self.assertNotEmpty(chosen)
            pairs = {(before, after) for before, after, _ in edges}
            for before, favorite in enumerate(favorites):
                if favorite >= 0:
                    self.assertIn((before, favorite), pairs)

    def test_unconnected_operations_have_no_favorites(self):
        self.assertEqual(solve(problems.build_task_problem([(3, 1), (1, 1)])), ([-1, -1], 2.0))


if __name__ == "__main__":
    absltest.main()
