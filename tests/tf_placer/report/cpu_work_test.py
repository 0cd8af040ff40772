"""Tests of sentences about the work of CPUs beside GPUs."""

from __future__ import annotations

import dataclasses

import numpy as np
from absl.testing import absltest

from tests.tf_placer.placers.problems import build_task_problem
from tf_placer.report.cpu_work import (
    describe_cpu_work,
    find_cpu_work,
    find_secs_without_cpus,
    is_shorter_by_cpus,
)
from tf_placer.report.limits import find_limits


def two_products(gpu_secs=1.0, gpu_memory_bytes=100):
    """Two products that take 1.5 s each on the CPU, and 1 s on the GPU, the second maybe longer."""
    problem = build_task_problem(
        [(1.5, 1.0), (1.5, gpu_secs)], resident_bytes=[1, 1], memory_bytes=[100, gpu_memory_bytes]
    )
    return dataclasses.replace(problem, operation_types=("MatMul",) * 2)


def describe(problem, placement):
    placement = np.array(placement, np.int32)
    return describe_cpu_work(problem, placement, find_limits(problem, placement))


class CpuWorkTest(absltest.TestCase):
    def test_says_that_a_step_leans_on_the_cpu_and_how_long_it_is_without(self):
        # One on each takes 1.5 s, both on the GPU 2 s.
        self.assertEqual(
            describe(two_products(), [0, 1]),
            "computes in 100% of the step, mostly matrix products, because the step is shorter so "
            "on the CPU of the machine's description; with all of that on a GPU the step is "
            "2.000 s; to plan without the CPU, pin '*' to '/GPU:*'",
        )

    def test_says_that_its_work_fits_on_no_gpu(self):
        found = describe(two_products(gpu_memory_bytes=1), [0, 1])
        self.assertIn("matrix products, which fit on no GPU in addition", found)

    def test_gives_no_reason_where_a_gpu_is_faster(self):
        self.assertEqual(
            describe(two_products(gpu_secs=0.1), [0, 1]),
            "computes in 100% of the step, mostly matrix products; with all of that on a GPU the "
            "step is even shorter: 1.100 s",
        )

    def test_says_nothing_without_a_choice(self):
        self.assertIsNone(describe(two_products(), [1, 1]))
        only_on_cpu = two_products(gpu_secs=np.inf)
        self.assertIsNone(describe(only_on_cpu, [1, 0]))
        self.assertEqual(find_cpu_work(only_on_cpu, np.array([1, 0], np.int32)), "")

    def test_all_that_may_move_is_moved_to_one_gpu_that_has_room(self):
        # The CPU has the first; the second GPU has no room for both.
        problem = build_task_problem(
            [(1.5, 1.0, 0.1), (1.5, 1.0, 1.0)],
            resident_bytes=[1, 1],
            memory_bytes=[100, 100, 1],
        )
        placement = np.array([0, 2], np.int32)
        self.assertAlmostEqual(find_secs_without_cpus(problem, placement), 1.0)
        self.assertAlmostEqual(find_secs_without_cpus(problem, np.zeros(2, np.int32)), 2.0)
        self.assertTrue(is_shorter_by_cpus(1.0, 1.02))
        self.assertTrue(is_shorter_by_cpus(1.0, None))
        self.assertFalse(is_shorter_by_cpus(1.0, 1.005))

    def test_leaves_want_of_memory_to_its_own_sentence(self):
        # The GPU has room for one of two products, of 10 s each on the CPU.
        problem = build_task_problem(
            [(10.0, 1.0)] * 2, resident_bytes=[10, 10], memory_bytes=[100, 10]
        )
        self.assertIsNone(describe(problem, [0, 1]))

    def test_says_nothing_of_a_machine_without_gpus(self):
        problem = two_products()
        cpus = tuple(
            dataclasses.replace(each, kind="CPU", is_asynchronous=False) for each in problem.devices
        )
        self.assertIsNone(describe(dataclasses.replace(problem, devices=cpus), [0, 1]))


if __name__ == "__main__":
    absltest.main()
