import dataclasses
import importlib.util
import math
import os
import sys
import tempfile
from unittest import mock

import numpy as np
from absl.testing import absltest

from tests.tf_placer.simulation import oracle
from tests.tf_placer.simulation.lower_bounds_test import all_placements
from tests.tf_placer.simulation.random_problems import random_problem
from tests.tf_placer.simulation.traces import make_problem
from tf_placer.problem.problem_groups import legal_devices
from tf_placer.simulation import solver_bounds
from tf_placer.simulation.lower_bounds import lower_bounds
from tf_placer.simulation.solver_bounds import solve_relaxed_schedule

INF = math.inf
has_solver = importlib.util.find_spec("ortools") is not None

# Three operations of 2 s on two devices: the work is 3 s each, but none can be split.
PIGEONHOLE = make_problem([[2.0, 2.0]] * 3)


def fitting_step_secs(problem):
    """Simulates all placements whose memory fits, by the reference simulator."""
    memory_bytes = [device.memory_bytes for device in problem.devices]
    steps = [oracle.simulate(problem, placement) for placement in all_placements(problem)]
    return [
        step.step_secs
        for step in steps
        if all(peak <= room for peak, room in zip(step.peak_bytes, memory_bytes, strict=True))
    ]


@absltest.skipUnless(has_solver, "OR-Tools is not installed")
class SolverBoundsTest(absltest.TestCase):
    def assert_bound(self, problem, secs):
        bounds = lower_bounds(problem)
        self.assertAlmostEqual(bounds.schedule_secs, secs, places=7)
        self.assertLessEqual(bounds.schedule_secs, secs)
        self.assertEqual(bounds.binding, "schedule")

    def test_no_simulated_step_that_fits_is_shorter(self):
        rng = np.random.default_rng(1)
        num_problems = num_bound = num_reached = num_unfit = 0
        while num_problems < 150:
            problem = random_problem(
                rng, max_operations=7, asynchronous_share=0.3, in_stream_share=0.3
            )
            if legal_devices(problem).sum(axis=1).prod() > 100:
                continue
            num_problems += 1
            bounds = lower_bounds(problem)
            step_secs = min(fitting_step_secs(problem), default=INF)
            self.assertGreaterEqual(step_secs, bounds.schedule_secs)
            if not bounds.fits:
                self.assertEqual(step_secs, INF)
            others = [secs for part, secs in bounds.by_part.items() if part != "schedule"]
            num_bound += bounds.schedule_secs > max(others) * 1.001
            num_reached += bounds.binding == "schedule" and step_secs <= bounds.step_secs * (
                1 + 1e-8
            )
            resident = problem.resident_bytes.sum()
            num_unfit += not bounds.fits and resident <= bounds.memory_bytes
        # The solver is of use, and proves that placements are optimal.
        self.assertGreater(num_bound, 5)
        self.assertGreater(num_reached, 5)
        self.assertGreater(num_unfit, 0)

    def test_an_operation_is_not_split(self):
        self.assert_bound(PIGEONHOLE, 4.0)

    def test_the_bound_is_that_of_the_fastest_placement(self):
        # Two of the three branches share a device; a transfer of the first's output takes 1 s.
        problem = make_problem(
            [[1.0, 1.0], *[[2.0, 2.0]] * 3, [1.0, 1.0]],
            tensors=[(0, 1, [1, 2, 3]), (1, 1, [4]), (2, 1, [4]), (3, 1, [4])],
        )
        self.assert_bound(problem, 1 + 4 + 1)
        self.assertAlmostEqual(min(fitting_step_secs(problem)), 6.0)

    def test_devices_may_be_unequal(self):
        # Either the fast device takes four of five, or the slow one two of them.
        self.assert_bound(make_problem([[2.0, 5.0]] * 5), 8.0)

    def test_a_device_may_have_several_slots(self):
        self.assert_bound(make_problem([[2.0, 9.0]] * 3, slots=[2, 1]), 4.0)

    def test_illegal_devices_take_nothing(self):
        self.assert_bound(make_problem([*[[2.0, 2.0, 2.0]] * 2, *[[2.0, 2.0, INF]] * 3]), 4.0)

    def test_resident_memory_must_fit(self):
        # The fast device has room for one of three operations.
        problem = make_problem([[1.0, 3.0]] * 3, resident_bytes=[5, 5, 5], memory_bytes=[9, 100])
        self.assert_bound(problem, 6.0)

    def test_some_sizes_fit_nowhere_together(self):
        problem = make_problem([[1.0, 1.0]] * 3, resident_bytes=[6, 6, 6], memory_bytes=[10, 10])
        bounds = lower_bounds(problem)
        self.assertFalse(bounds.fits)
        self.assertEqual(bounds.schedule_secs, 0.0)

    def test_bounds_are_below_steps_of_any_scale(self):
        rng = np.random.default_rng(2)
        for scale in (1e-12, 1e-3, 1e9):
            for _ in range(5):
                secs = scale * np.repeat(rng.integers(1, 9, [6, 1]) / 7.0, 2, axis=1)
                problem = make_problem(secs.tolist())
                step_secs = min(fitting_step_secs(problem))
                self.assertLessEqual(lower_bounds(problem).step_secs, step_secs)
                self.assertGreater(lower_bounds(problem).step_secs, step_secs * (1 - 1e-8))

    def test_large_problems_are_left_out(self):
        for limits in ({"max_groups": 2}, {"max_operations": 2}):
            limits = dataclasses.replace(solver_bounds._LIMITS, **limits)
            with mock.patch.object(solver_bounds, "_LIMITS", limits):
                self.assertEqual(solve_relaxed_schedule(PIGEONHOLE, 3.0), 0.0)
        self.assertGreater(solve_relaxed_schedule(PIGEONHOLE, 3.0), 3.9)

    def test_a_step_that_reaches_the_known_bound_needs_no_solver(self):
        with mock.patch.object(solver_bounds, "_RelaxedSchedule") as schedule:
            self.assertEqual(solve_relaxed_schedule(PIGEONHOLE, 4.0), 0.0)
        schedule.assert_not_called()

    def test_a_bound_without_a_proof_holds(self):
        limits = dataclasses.replace(solver_bounds._LIMITS, max_deterministic_time=1e-9)
        with mock.patch.object(solver_bounds, "_LIMITS", limits):
            self.assertLessEqual(solve_relaxed_schedule(PIGEONHOLE, 3.0), 4.0)

    def test_the_bound_is_the_same_again(self):
        rng = np.random.default_rng(3)
        problem = make_problem(rng.lognormal(0, 1, [9, 3]).tolist())
        again = dataclasses.replace(problem)
        self.assertEqual(lower_bounds(problem), lower_bounds(again))

    def test_prints_nothing(self):
        with tempfile.TemporaryFile() as file:
            kept = [os.dup(descriptor) for descriptor in (1, 2)]
            try:
                for descriptor in (1, 2):
                    os.dup2(file.fileno(), descriptor)
                solve_relaxed_schedule(PIGEONHOLE, 3.0)
            finally:
                for descriptor, copy in zip((1, 2), kept, strict=True):
                    os.dup2(copy, descriptor)
                    os.close(copy)
            file.seek(0)
            self.assertEqual(file.read(), b"")


class WithoutSolverTest(absltest.TestCase):
    def test_bounds_need_no_solver(self):
        with mock.patch.dict(sys.modules, {"ortools.sat.python": None}):
            bounds = lower_bounds(dataclasses.replace(PIGEONHOLE))
        self.assertEqual(bounds.schedule_secs, 0.0)
        self.assertAlmostEqual(bounds.step_secs, 3.0)
        with mock.patch.object(importlib.util, "find_spec", return_value=None):
            self.assertEqual(solve_relaxed_schedule(PIGEONHOLE, 3.0), 0.0)


if __name__ == "__main__":
    absltest.main()
