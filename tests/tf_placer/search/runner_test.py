"""Tests of the runners that measure in the process of the search."""

from __future__ import annotations

import numpy as np
from absl.testing import absltest

from tests.tf_placer import doubles
from tests.tf_placer.small_problem import BEST, ILLEGAL, STEPS, small_problem
from tf_placer.environments.environment import FailureKind
from tf_placer.environments.simulated import SimulatedEnvironment
from tf_placer.search.runner import UNLIMITED, SequentialRunner, SimulatedRunner


class RunnerTest(absltest.TestCase):
    def test_wait_measures_one_placement_after_the_other(self):
        environment = doubles.FakeEnvironment()
        runner = SequentialRunner(environment)
        rows = [(0,) * doubles.NUM_GROUPS, (1,) * doubles.NUM_GROUPS]
        for key, row in enumerate(rows):
            runner.submit(key, np.array(row, np.int32))
        self.assertEqual((runner.capacity, environment.asked), (1, []))
        for key, row in enumerate(rows):
            [completed] = runner.wait()
            self.assertEqual(completed, (key, doubles.measurement_of(row), None))
            self.assertEqual(environment.asked, rows[: key + 1])

    def test_all_submitted_placements_are_simulated_at_once(self):
        told = []
        runner = SimulatedRunner(
            SimulatedEnvironment(small_problem()),
            lambda placements, batch: told.append((placements.tolist(), batch.feasible.tolist())),
        )
        rows = [BEST, ILLEGAL, (0, 0, 0)]
        for key, row in zip("abc", rows, strict=True):
            runner.submit(key, np.array(row, np.int32))
        completed = runner.wait()
        self.assertEqual(told, [([list(row) for row in rows], [True, False, True])])
        self.assertEqual([each.key for each in completed], ["a", "b", "c"])
        best, illegal, last = (each.measurement for each in completed)
        self.assertEqual((best.median_secs, last.median_secs), (STEPS[BEST], STEPS[0, 0, 0]))
        self.assertEqual(illegal.failure.kind, FailureKind.INVALID_PLACEMENT)
        self.assertEqual(runner.capacity, UNLIMITED)


if __name__ == "__main__":
    absltest.main()
