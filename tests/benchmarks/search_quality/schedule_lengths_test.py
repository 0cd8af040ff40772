import random

import numpy as np
from absl.testing import absltest

from benchmarks.search_quality.published_graphs import TaskGraph
from benchmarks.search_quality.published_optima import make_problem
from benchmarks.search_quality.schedule_lengths import (
    compute_bound,
    compute_length,
    fifo_length,
    list_by_priority,
)
from tests.benchmarks.search_quality.task_graphs import DIAMOND, random_graph, shortest_length
from tf_placer.simulation.simulator import Simulator


class ScheduleLengthsTest(absltest.TestCase):
    def test_lengths_of_a_diamond(self):
        # All on one processor; the light branch elsewhere: 3 + 1 + 2 + 2 + 2; the heavy one:
        # 3 + 5 + 4 + 7 + 2; the sink elsewhere: 3 + 2 + 4 + 7 + 2, or the heavy branch first.
        for placement, order, length in (
            ((0, 0, 0, 0), (0, 1, 2, 3), 11),
            ((0, 0, 1, 0), (0, 1, 2, 3), 10),
            ((0, 1, 0, 0), (0, 1, 2, 3), 21),
            ((0, 0, 0, 1), (0, 2, 1, 3), 18),
            ((0, 0, 0, 1), (0, 1, 2, 3), 16),
        ):
            self.assertEqual(compute_length(DIAMOND, placement, order), length)

    def test_longer_schedules_need_no_length(self):
        placement, order = (0, 0, 0, 0), (0, 1, 2, 3)
        self.assertEqual(compute_length(DIAMOND, placement, order, 11), 11)
        self.assertIsNone(compute_length(DIAMOND, placement, order, 10.5))

    def test_messages_do_not_wait_for_each_other(self):
        # Both messages take 10 from time 1 on.
        graph = TaskGraph("two messages", 2, (1, 1, 1), ((0, 1, 10), (0, 2, 10)), 0)
        self.assertEqual(compute_length(graph, (0, 1, 1), (0, 1, 2)), 13)
        self.assertEqual(fifo_length(graph, (0, 1, 1)), 13)

    def test_fifo_runs_first_what_arrives_first(self):
        # Task 2 is ready at 0, before the urgent task 1 at 1.
        graph = TaskGraph("urgent", 2, (1, 1, 9, 9), ((0, 1, 0), (1, 3, 0)), 0)
        self.assertEqual(fifo_length(graph, (1, 0, 0, 1)), 19)
        self.assertEqual(compute_length(graph, (1, 0, 0, 1), (0, 1, 2, 3)), 11)

    def test_fifo_is_the_order_of_the_simulator(self):
        # A pair of tasks at most sends over a link at a time, so that nothing waits for a link.
        checked = 0
        for seed in range(300):
            graph = random_graph(seed, num_tasks=8, num_processors=3)
            placement = np.array([random.Random(seed).randrange(3) for _ in range(8)], np.int32)
            pairs = [(placement[a], placement[b]) for a, b, _ in graph.edges]
            pairs = [pair for pair in pairs if pair[0] != pair[1]]
            if len(set(pairs)) == len(pairs):
                batch = Simulator(make_problem(graph), threads=1).simulate(placement[None])
                self.assertEqual(fifo_length(graph, placement.tolist()), batch.step_secs[0])
                checked += 1
        self.assertGreater(checked, 30)

    def test_no_order_is_shorter_than_the_bound(self):
        for seed in range(10):
            graph = random_graph(seed, num_tasks=5)
            self.assertLessEqual(compute_bound(graph), shortest_length(graph))
        # The work of a graph without edges, and the chain of the diamond.
        self.assertEqual(compute_bound(TaskGraph("work", 2, (1, 2, 2), (), 0)), 3)
        self.assertEqual(compute_bound(DIAMOND), 9)

    def test_lists_the_largest_priority_first(self):
        self.assertEqual(list_by_priority(DIAMOND, (0, 1, 2, 9)), [0, 2, 1, 3])
        self.assertEqual(list_by_priority(DIAMOND, DIAMOND.rests), [0, 1, 2, 3])


if __name__ == "__main__":
    absltest.main()
