"""Tests of the devices that should do the work of a step."""

from __future__ import annotations

import dataclasses

from absl.testing import absltest

from tests.tf_placer.small_problem import small_problem
from tf_placer.problem.accelerators import find_accelerators


class AcceleratorsTest(absltest.TestCase):
    def test_gpus_are_the_accelerators_if_there_are_any(self):
        problem = small_problem()
        cpu, gpu = problem.devices
        self.assertEqual(find_accelerators(problem).tolist(), [1])
        for changed, expected in (
            (dataclasses.replace(gpu, kind="K80", is_asynchronous=True), [1]),
            (dataclasses.replace(gpu, kind="CPU"), [0, 1]),
        ):
            other = dataclasses.replace(problem, devices=(cpu, changed))
            self.assertEqual(find_accelerators(other).tolist(), expected)


if __name__ == "__main__":
    absltest.main()
