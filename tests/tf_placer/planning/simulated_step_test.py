"""Tests of simulating one step of a placement."""

from __future__ import annotations

import dataclasses
import pathlib

import numpy as np
from absl.testing import absltest

import tf_placer
from tests.tf_placer.placers.problems import build_task_problem
from tests.tf_placer.small_problem import rename_devices, small_problem
from tests.tf_placer.two_chains import two_chain_problem
from tf_placer.problem.problem_file import write_problem


class SimulateTest(absltest.TestCase):
    def test_two_chains_on_one_device_take_the_sum_of_their_times(self):
        problem = two_chain_problem(2)
        together = tf_placer.simulate(problem, [0, 0, 0, 0])
        path = pathlib.Path(self.create_tempdir().full_path, "problem.json")
        write_problem(problem, path)
        from_file = tf_placer.simulate(path, [0, 0, 0, 0])
        self.assertEqual(from_file.trace.step_secs, together.trace.step_secs)
        self.assertIsNone(together.failure)
        self.assertAlmostEqual(
            together.to_json()["step_secs"], float(problem.compute_secs[:, 0].sum())
        )
        self.assertIn("critical path", together.table())
        self.assertEqual(together.step_secs, together.to_json()["step_secs"])
        self.assertRegex(repr(together), "^<SimulatedStep: [0-9.]+ m?s>$")

    def test_a_placement_that_does_not_fit_has_a_step_and_a_reason(self):
        problem = small_problem(cpu_bytes=31, gpu_bytes=5)
        step = tf_placer.simulate(problem, np.zeros(problem.num_groups, np.int64))
        value = step.to_json()
        self.assertFalse(value["feasible"])
        self.assertFalse(step.feasible)
        self.assertIn("cannot run", repr(step))
        self.assertIsNotNone(value["step_secs"])
        self.assertIn("has room for 31", value["reason"])

    def test_places_by_names_what_may_go_there(self):
        # The GPU takes 1 s for what the CPU does in 9 s; `b` has no kernel on it.
        problem = build_task_problem([(9.0, 1.0), (9.0, np.inf), (9.0, 1.0)], [])
        problem = dataclasses.replace(problem, operation_names=("a/x", "a/b", "c"))
        problem = rename_devices(problem, ["/device:CPU:0", "/device:GPU:0"])
        for devices, expected in (
            ({}, [1, 0, 1]),
            ({"a/*": "CPU:0"}, [0, 0, 1]),
            ({"*": "CPU:0", "re:a/.": "GPU:0"}, [1, 0, 0]),
        ):
            step = tf_placer.simulate(problem, devices)
            self.assertEqual(step.trace.operation_devices.tolist(), expected)
            explained = tf_placer.explain(problem, devices, max_secs=0.1)
            self.assertEqual(explained.limits.step_secs, step.step_secs)
        alone = tf_placer.simulate(problem)
        self.assertEqual(alone.trace.operation_devices.tolist(), [1, 0, 1])
        self.assertEqual(list(alone.peak_bytes), alone.to_json()["peak_bytes"])
        with self.assertRaisesRegex(ValueError, r"no operation is called 'b/\*': did you mean"):
            tf_placer.simulate(problem, {"b/*": "CPU:0"})
        with self.assertRaisesRegex(ValueError, "'GPU:1' is not on the machine"):
            tf_placer.simulate(problem, {"c": "GPU:1"})

    def test_refuses_an_assignment_of_another_problem(self):
        problem = two_chain_problem(2)
        for assignment, message in (
            ([0, 0], "for each of 4 groups"),
            ([0, 0, 0, 2], "from 0 to 1"),
            ([0, 0, 0, -1], "from 0 to 1"),
            ([0.0, 0.0, 0.0, 0.0], "float64"),
            (object(), "such as `PlanResult.assignment`, .* not one of type object"),
        ):
            with self.assertRaisesRegex(ValueError, message):
                tf_placer.simulate(problem, assignment)


if __name__ == "__main__":
    absltest.main()
