"""Tests of steps within less memory, against all placements."""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np
from absl.testing import absltest

from tests.tf_placer.placers.problems import build_task_problem
from tests.tf_placer.small_problem import build_layered_problem
from tf_placer.problem.placement_problem import PlacementProblem
from tf_placer.problem.problem_groups import group_graph
from tf_placer.report.memory_curve import (
    MemoryPoint,
    MoreMemory,
    describe_memory_curve,
    describe_more_memory,
    find_smallest_within,
    search_memory_curve,
    search_more_memory,
)
from tf_placer.simulation.simulator import Simulator

_POINTS = (MemoryPoint(4000, 1.0), MemoryPoint(3000, 1.04), MemoryPoint(1000, 2.0))


def simulate_all(problem: PlacementProblem) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Simulates all placements: the placements, their steps and their peaks by device."""
    rows = itertools.product(range(problem.num_devices), repeat=problem.num_groups)
    placements = np.array(list(rows), np.int32)
    batch = Simulator(problem).simulate(placements)
    return placements, batch.step_secs.copy(), batch.peak_bytes.copy()


class MemoryCurveTest(absltest.TestCase):
    def test_no_placement_within_the_memory_of_a_point_is_faster(self):
        problem = build_layered_problem(8, 2)
        placements, step_secs, peak_bytes = simulate_all(problem)
        fullest = peak_bytes.max(axis=1)
        best = placements[step_secs.argmin()]
        points = search_memory_curve(problem, group_graph(problem), best, search_secs=6.0)
        self.assertAlmostEqual(points[0].step_secs, step_secs.min())
        # The time of the searches is limited, so a busy machine finds a little less.
        self.assertBetween(points[-1].peak_bytes, fullest.min(), 1.03 * fullest.min())
        self.assertGreater(len(points), 2)
        for point in points:
            within = step_secs[fullest <= point.peak_bytes]
            self.assertBetween(point.step_secs, within.min() - 1e-12, 1.1 * within.min())
        for before, after in itertools.pairwise(points):
            self.assertLess(after.peak_bytes, before.peak_bytes)
            self.assertGreater(after.step_secs, before.step_secs)

    def test_memory_of_the_cpu_does_not_count_beside_gpus(self):
        problem = build_layered_problem(6, 3)
        cpu, *gpus = problem.devices
        gpus = [dataclasses.replace(gpu, kind="GPU") for gpu in gpus]
        problem = dataclasses.replace(problem, devices=(cpu, *gpus))
        placements, step_secs, _ = simulate_all(problem)
        best = placements[step_secs.argmin()]
        points = search_memory_curve(problem, group_graph(problem), best, search_secs=6.0)
        self.assertEqual(points[-1].peak_bytes, 0)
        everything_on_cpu = np.zeros([1, problem.num_groups], np.int32)
        expected = Simulator(problem).simulate(everything_on_cpu).step_secs[0]
        self.assertAlmostEqual(points[-1].step_secs, expected)

    def test_finds_the_smallest_memory_within_a_share_of_the_step(self):
        for share, index in ((0.0, 0), (0.03, 0), (0.05, 1), (0.99, 1), (1.0, 2)):
            self.assertEqual(find_smallest_within(_POINTS, share), _POINTS[index])

    def test_the_sentence_has_the_memory_of_nearly_the_same_step_and_the_least(self):
        self.assertEqual(
            describe_memory_curve(_POINTS),
            "2.930 KiB on the fullest device, perhaps less, is enough for a step at most 5% "
            "longer, and 1000 B for one 100% longer; the shortest takes 3.906 KiB",
        )

    def test_a_step_on_the_cpu_is_no_step_with_less_memory(self):
        points = (MemoryPoint(4000, 1.0), MemoryPoint(0, 8.0))
        self.assertEqual(
            describe_memory_curve(points),
            "3.906 KiB on the fullest device is needed; nothing that was tried fits less; with "
            "everything on the CPU it takes 8.000 s",
        )
        self.assertEndsWith(
            describe_memory_curve((*_POINTS, MemoryPoint(0, 8.0))),
            "and 1000 B for one 100% longer; the shortest takes 3.906 KiB; with everything on the "
            "CPU it takes 8.000 s",
        )

    def test_says_how_much_memory_work_on_the_cpu_would_need(self):
        # Four operations of 10 s on the CPU and 1 s on either of two GPUs, which hold one each.
        problem = build_task_problem(
            [(10.0, 1.0, 1.0)] * 4, resident_bytes=[10] * 4, memory_bytes=[100, 10, 10]
        )
        now = np.array([1, 2, 0, 0], np.int32)
        more = search_more_memory(problem, group_graph(problem), now, search_secs=2.0)
        # Two on each GPU take 2 s and 20 bytes.
        self.assertEqual(more, MoreMemory(20, 2.0, 2.0))
        self.assertEqual(
            describe_more_memory(more, 20.0),
            "20 B on each GPU, perhaps less, would do for a step of 2.000 s, 10.00x as fast",
        )
        on_gpus = np.array([1, 1, 2, 2], np.int32)
        self.assertIsNone(
            search_more_memory(problem, group_graph(problem), on_gpus, search_secs=1.0)
        )

    def test_more_memory_is_that_of_a_spread_placement_not_of_everything_on_one_gpu(self):
        # One chain, and so no step is faster than everything on one of the three GPUs, 80 bytes.
        # The copies of 1 byte take 0.01 s, so that spread over all GPUs the step is as fast.
        problem = build_task_problem(
            [(100.0, 1.0, 1.0, 1.0)] * 8,
            [(index, index + 1, 1) for index in range(7)],
            resident_bytes=[10] * 8,
            memory_bytes=[1000, 10, 10, 10],
        )
        problem = dataclasses.replace(
            problem,
            links=tuple(
                dataclasses.replace(link, latency_secs=0.0, bandwidth_bytes_per_sec=100.0)
                for link in problem.links
            ),
        )
        now = np.array([1, 2, 3, 0, 0, 0, 0, 0], np.int32)
        _, step_secs, peak_bytes = simulate_all(problem)
        fullest = peak_bytes[:, 1:].max(axis=1)
        fits_cpu = peak_bytes[:, 0] <= 1000
        shortest_secs = step_secs[fits_cpu].min()
        enough_bytes = fullest[fits_cpu & (step_secs <= 1.1 * shortest_secs)].min()
        more = search_more_memory(problem, group_graph(problem), now, search_secs=3.0)
        self.assertAlmostEqual(more.unlimited_secs, shortest_secs)
        # Eight operations on three GPUs: three on the fullest of them, and a tensor that arrives.
        self.assertBetween(enough_bytes, 30, 40)
        self.assertEqual(more.peak_bytes, enough_bytes)
        self.assertLessEqual(more.step_secs, 1.1 * shortest_secs)
        [found] = Simulator(problem).simulate(np.array([more.assignment], np.int32)).step_secs
        self.assertAlmostEqual(more.step_secs, found)

    def test_names_the_step_with_unlimited_memory_where_it_is_shorter(self):
        self.assertEqual(
            describe_more_memory(MoreMemory(30 * 2**30, 6.3, 6.0), 9.0),
            "30.00 GiB on each GPU, perhaps less, would do for a step of 6.300 s, 1.43x as fast; "
            "with unlimited memory 6.000 s",
        )

    def test_offers_no_memory_that_gains_nothing(self):
        # Apart, both take 1.5 s at once; the GPU alone takes twice as long as for one of them.
        for gpu_secs, expected in ((1.0, None), (0.74, None), (0.7, MoreMemory(20, 1.4, 1.4))):
            problem = build_task_problem(
                [(1.5, gpu_secs)] * 2, resident_bytes=[10, 10], memory_bytes=[100, 10]
            )
            now = np.array([0, 1], np.int32)
            more = search_more_memory(problem, group_graph(problem), now, search_secs=1.0)
            self.assertEqual(more, expected)


if __name__ == "__main__":
    absltest.main()
