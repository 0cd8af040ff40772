"""Tests of the limits of a simulated step."""

from __future__ import annotations

import dataclasses

import numpy as np
from absl.testing import absltest

from benchmarks.problems.small import SMALL_PROBLEMS
from benchmarks.problems.synthetic import unroll_lstm
from tests.tf_placer.placers.problems import build_task_problem
from tf_placer.problem.problem_groups import legal_devices
from tf_placer.report.auto_table import describe_bound
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

    def test_work_on_the_cpu_for_want_of_memory_is_named(self):
        # Two operations of 10 s on the CPU and 1 s on the GPU, and one that the CPU does faster.
        for memory_bytes, share in ((10, 10 / 15), (20, None)):
            problem = build_task_problem(
                [(10.0, 1.0), (10.0, 1.0), (5.0, 6.0)],
                resident_bytes=[10, 10, 0],
                memory_bytes=[100, memory_bytes],
            )
            limits = find_limits(problem, np.array([1, 0, 0], np.int32))
            self.assertAlmostEqual(limits.step_secs, 15.0)
            displaced = shares(limits, "for want of memory")
            if share is None:
                self.assertEmpty(displaced)
                continue
            self.assertAlmostEqual(displaced["device_0"], share)
            self.assertAlmostEqual(limits.displaced_share, share)
            self.assertEqual(
                describe_bound(limits),
                "memory: 67% of the step is on device_0, because the memory of the GPUs is short",
            )

    def test_memory_is_not_short_where_the_cpu_computes_beside_the_gpu(self):
        # Apart, both take 1.5 s at once; the GPU alone would take 2 s, 1.48 s (a gain of less than
        # 2 %), or 1.4 s.
        for gpu_secs, share in ((1.0, None), (0.74, None), (0.7, 1.0)):
            problem = build_task_problem(
                [(1.5, gpu_secs)] * 2, resident_bytes=[10, 10], memory_bytes=[100, 10]
            )
            limits = find_limits(problem, np.array([0, 1], np.int32))
            self.assertEqual(limits.step_secs, 1.5)
            displaced = shares(limits, "for want of memory")
            self.assertEqual(displaced, {} if share is None else {"device_0": share})
            self.assertEqual("memory of the GPUs is short" in describe_bound(limits), bool(share))


if __name__ == "__main__":
    absltest.main()
