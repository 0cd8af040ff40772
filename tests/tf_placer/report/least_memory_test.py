"""Tests of the least memory with which a placement fits, against all placements."""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np
from absl.testing import absltest

from tests.tf_placer.small_problem import build_layered_problem, small_problem
from tf_placer.problem.placement_problem import PlacementProblem
from tf_placer.problem.problem_groups import group_graph, legal_devices
from tf_placer.report.least_memory import (
    describe_least_memory,
    describe_offload,
    find_least_memory,
)
from tf_placer.simulation.host_offload import HostOffload
from tf_placer.simulation.simulator import Simulator


def set_memory(problem: PlacementProblem, *sizes: int) -> PlacementProblem:
    devices = tuple(
        dataclasses.replace(device, memory_bytes=size)
        for device, size in zip(problem.devices, sizes, strict=True)
    )
    return dataclasses.replace(problem, devices=devices)


def find_by_trying_all(problem: PlacementProblem) -> int:
    """Finds the least memory of each device with less, from the peaks of all placements."""
    rows = itertools.product(range(problem.num_devices), repeat=problem.num_groups)
    placements = np.array(list(rows), np.int32)
    legal = legal_devices(problem)[np.arange(problem.num_groups), placements].all(axis=1)
    peaks = Simulator(problem).simulate(placements[legal]).peak_bytes
    memory_bytes = np.array([device.memory_bytes for device in problem.devices])
    return int(np.where(peaks > memory_bytes, peaks, 0).max(axis=1).min())


class LeastMemoryTest(absltest.TestCase):
    def find(self, problem: PlacementProblem) -> int | None:
        start = legal_devices(problem).argmax(axis=1).astype(np.int32)
        return find_least_memory(problem, group_graph(problem), start, search_secs=1.5)

    def test_finds_what_all_placements_together_need(self):
        # By hand: [0, 0, 1] and [0, 1, 1] hold 20 and 30 bytes, the other two 40 on the CPU.
        self.assertEqual(self.find(small_problem(0, 0)), 30)
        self.assertEqual(self.find(small_problem(19, 100)), 20)
        for seed in range(3):
            problem = set_memory(build_layered_problem(7, 2, seed), 2000, 5000)
            least, found = find_by_trying_all(problem), self.find(problem)
            self.assertGreater(least, 5000)
            self.assertBetween(found, least, 1.03 * least, f"seed {seed}")
        problem = set_memory(build_layered_problem(5, 3), 10**9, 100, 1000)
        fits = dataclasses.replace(
            problem, compute_secs=np.where([False, True, True], problem.compute_secs, np.inf)
        )
        least, found = find_by_trying_all(fits), self.find(fits)
        self.assertBetween(found, least, 1.03 * least)

    def test_what_fits_needs_no_more(self):
        self.assertIsNone(self.find(small_problem()))

    def test_the_group_that_is_too_large_for_any_device_is_a_bound(self):
        problem = dataclasses.replace(
            small_problem(100, 50), resident_bytes=np.array([10, 0, 10**6], np.int64)
        )
        self.assertBetween(self.find(problem), 10**6, 10**6 + 100)

    def test_the_clause_names_the_devices_that_have_less(self):
        for problem, least_bytes, expected in (
            (small_problem(20, 10), 30, "30 B on each of cpu, gpu would do"),
            (small_problem(40, 10), 30, "30 B on gpu would do"),
            (
                set_memory(build_layered_problem(2, 6), 9, 1, 1, 1, 1, 1),
                2048,
                "2.000 KiB on each of the 6 devices with less would do",
            ),
        ):
            self.assertEqual(describe_least_memory(problem, least_bytes), expected)

    def test_describes_activations_that_wait_on_the_cpu(self):
        self.assertStartsWith(
            describe_offload(HostOffload(3, 2**31, 66.0, 60.0)),
            "with 2.000 GiB of activations moved to the CPU and back it would fit: 66.00 s a step, "
            "10% slower than with enough memory",
        )


if __name__ == "__main__":
    absltest.main()
