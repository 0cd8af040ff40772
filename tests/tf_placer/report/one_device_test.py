"""Tests of the steps that a placement is compared with."""

from __future__ import annotations

import numpy as np
from absl.testing import absltest

import tf_placer
from tests.tf_placer.placers.problems import build_task_problem
from tf_placer.report.machine_comparison import MachineComparison
from tf_placer.report.one_device import simulate_one_device


class OneDeviceTest(absltest.TestCase):
    def test_the_fastest_accelerator_with_room_counts(self):
        # On the GPUs two operations take 2 s and 4 s together; the faster one lacks room for both.
        seconds = [(9.0, 1.0, 2.0), (9.0, 1.0, 2.0)]
        for memory_bytes, expected in ((20, 2.0), (10, 4.0)):
            problem = build_task_problem(
                seconds, resident_bytes=[10, 10], memory_bytes=[100, memory_bytes, 20]
            )
            self.assertEqual(simulate_one_device(problem).secs, expected)

    def test_there_is_no_step_on_one_device_where_pins_divide_the_graph(self):
        # Each operation may be on one of the GPUs only.
        problem = build_task_problem(
            [(np.inf, 1.0, np.inf), (np.inf, np.inf, 1.0)],
            resident_bytes=[1, 1],
            memory_bytes=[100, 100, 100],
        )
        one = simulate_one_device(problem)
        self.assertTrue(one.is_divided)
        self.assertIsNone(one.secs)
        plan = tf_placer.plan(problem, max_secs=1.0)
        self.assertNotIn("vs 1 GPU", plan.table())
        [machine] = tf_placer.compare({"pinned": plan}).machines
        self.assertIsNone(machine.speedup)
        self.assertNotIn("too small", MachineComparison((machine,)).table())

    def test_what_only_a_cpu_can_run_divides_nothing(self):
        problem = build_task_problem(
            [(1.0, np.inf, np.inf), (9.0, 1.0, 1.0)],
            resident_bytes=[1, 1],
            memory_bytes=[100, 100, 100],
        )
        self.assertFalse(simulate_one_device(problem).is_divided)


if __name__ == "__main__":
    absltest.main()
