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
        with_gpu = dataclasses.replace(
            problem, devices=(cpu, dataclasses.replace(gpu, is_asynchronous=True))
        )
        self.assertEqual(find_accelerators(with_gpu).tolist(), [1])
        self.assertEqual(find_accelerators(problem).tolist(), [0, 1])


if __name__ == "__main__":
    absltest.main()
