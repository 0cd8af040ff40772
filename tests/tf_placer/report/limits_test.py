"""Tests of the limits of a simulated step."""

from __future__ import annotations

import dataclasses

import numpy as np
from absl.testing import absltest

from benchmarks.problems.small import SMALL_PROBLEMS
from benchmarks.problems.synthetic import unroll_lstm
from tf_placer.problem.problem_groups import legal_devices
from tf_placer.report.limits import find_limits
from tf_placer.simulation.lower_bounds import lower_bounds
from tf_placer.simulation.simulator import Simulator


def everything_on(problem, device):
    legal = legal_devices(problem)
    return np.where(legal[:, device], device, legal.argmax(axis=1)).astype(np.int32)


def shares(limits, kind):
    return {limit.where: limit.share for limit in limits.limits if limit.kind == kind}


class LimitsTest(absltest.TestCase):
    def test_step_and_bounds_are_those_of_the_simulator(self):
        problem = unroll_lstm(3, 3)
        placement = everything_on(problem, 1)
        limits = find_limits(problem, placement)
        [secs] = Simulator(problem).simulate(placement[None]).step_secs
        self.assertAlmostEqual(limits.step_secs, secs)
        self.assertAlmostEqual(limits.lower_bound_secs, lower_bounds(problem).step_secs)

    def test_one_device_alone_is_busy_all_the_time_and_no_link_is(self):
        problem = SMALL_PROBLEMS["fork and join"]
        limits = find_limits(problem, everything_on(problem, 0))
        compute = shares(limits, "compute")
        self.assertAlmostEqual(compute[problem.devices[0].name], 1.0)
        self.assertEqual(compute[problem.devices[1].name], 0.0)
        self.assertEmpty(shares(limits, "link"))
        self.assertEqual(shares(limits, "transfers on it")[""], 0.0)

    def test_the_critical_path_fills_the_step(self):
        problem = unroll_lstm(3, 3)
        placement = (np.arange(problem.num_groups) % problem.num_devices).astype(np.int32)
        legal = legal_devices(problem)
        placement = np.where(
            legal[np.arange(len(legal)), placement], placement, legal.argmax(axis=1)
        ).astype(np.int32)
        limits = find_limits(problem, placement)
        path = shares(limits, "critical path")[""] + shares(limits, "transfers on it")[""]
        self.assertAlmostEqual(path, 1.0)
        self.assertLen(shares(limits, "link"), 1)

    def test_memory_is_the_peak_relative_to_the_limit(self):
        problem = unroll_lstm(3, 3)
        placement = everything_on(problem, 1)
        [peaks] = Simulator(problem).simulate(placement[None]).peak_bytes
        tight = dataclasses.replace(
            problem,
            devices=tuple(
                dataclasses.replace(device, memory_bytes=max(2 * int(peak), 1))
                for device, peak in zip(problem.devices, peaks, strict=True)
            ),
        )
        memory = shares(find_limits(tight, placement), "memory")
        self.assertAlmostEqual(memory[problem.devices[1].name], 0.5)


if __name__ == "__main__":
    absltest.main()
