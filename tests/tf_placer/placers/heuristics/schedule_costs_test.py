import dataclasses

import numpy as np
from absl.testing import absltest

from tests.tf_placer.placers import problems
from tf_placer.machines.machine import Link
from tf_placer.placers.heuristics.schedule_costs import (
    average_link,
    average_secs,
    read_schedule_costs,
)


class ScheduleCostsTest(absltest.TestCase):
    def test_adds_up_the_tensors_between_two_operations_and_counts_none_twice(self):
        problem = problems.build_task_problem([(1, 1)] * 3, [(0, 1, 5), (0, 1, 7), (0, 2, 9)])
        problem = dataclasses.replace(
            problem,
            consumer_start=np.array([0, 3, 4, 5]),
            consumers=np.array([1, 1, 2, 1, 2]),  # Operation 1 reads tensor 0 twice, 2 reads it.
            control_edges=np.array([[0, 1], [1, 2]]),
        )
        costs = read_schedule_costs(problem)
        self.assertEqual(costs.inputs, [[], [(0, 12)], [(0, 14), (1, 0)]])
        self.assertEqual(costs.followers, [[1, 2], [2], []])

    def test_reads_links_by_their_names_and_weighs_them(self):
        problem = problems.build_task_problem([(1, 1)])
        links = (
            Link("device_1", "device_0", 3.0, 2.0),
            Link("device_0", "device_1", 5.0, 4.0),
        )
        costs = read_schedule_costs(
            dataclasses.replace(problem, links=links), communication_weight=2.0
        )
        self.assertEqual(costs.latency_secs, [[0, 10], [6, 0]])
        self.assertEqual(costs.secs_per_byte, [[0, 0.5], [1, 0]])

    def test_the_last_input_determines_the_arrival(self):
        problem = problems.build_task_problem(
            [(1, 1)] * 3, [(0, 2, 10), (1, 2, 4)], latency_secs=1.0
        )
        costs = read_schedule_costs(problem)
        for device, arrival in ((0, 8 + 5), (1, 2 + 11)):
            self.assertEqual(costs.arrival_secs(2, device, [0, 1, -1], [2.0, 8.0, 0.0]), arrival)
        self.assertEqual(costs.arrival_secs(0, 1, [-1] * 3, [0.0] * 3), 0.0)

    def test_means_exclude_forbidden_devices(self):
        problem = problems.build_task_problem([(1, 5, 9), (float("inf"), 2, 4)], latency_secs=3.0)
        costs = read_schedule_costs(problem)
        allowed = np.array([[True, True, False], [False, True, False]])
        self.assertEqual(average_secs(costs, allowed), [3, 2])
        self.assertEqual(average_link(costs, allowed), (3, 1))
        self.assertEqual(average_link(costs, allowed[1:]), (0, 0))


if __name__ == "__main__":
    absltest.main()
