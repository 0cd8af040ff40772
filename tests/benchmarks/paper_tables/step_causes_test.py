"""Tests of what steps lose where, on problems that are worked out by hand."""

from __future__ import annotations

import dataclasses
import itertools
import math

import numpy as np
from absl.testing import absltest

from benchmarks.paper_tables.step_causes import (
    StepCauses,
    break_even_factor,
    step_causes,
    with_slower_links,
)
from benchmarks.problems.small import SMALL_PROBLEMS
from tf_placer.machines.machine import Link
from tf_placer.problem.placement_problem import PlacementProblem, ProblemDevice
from tf_placer.simulation.lower_bounds import lower_bounds
from tf_placer.simulation.simulator import Simulator

_SENT = 100_000_000  # Bytes that take 0.1 s, and the latency 0.01 s.


def _problem(compute_secs, edges, memory_bytes=10**12, resident_bytes=0):
    """One group per operation; device 0 is a CPU, the others are GPUs."""
    secs = np.array(compute_secs, np.float64)
    count, num_devices = secs.shape
    names = ["/device:CPU:0", *(f"/device:GPU:{k}" for k in range(num_devices - 1))]
    return PlacementProblem(
        devices=tuple(ProblemDevice(name, "class", memory_bytes) for name in names),
        links=tuple(Link(one, two, 0.01, 1e9) for one, two in itertools.permutations(names, 2)),
        operation_names=tuple(f"operation_{k}" for k in range(count)),
        compute_secs=secs,
        resident_bytes=np.full(count, resident_bytes),
        temp_bytes=np.zeros(count, np.int64),
        groups=np.arange(count),
        tensor_producers=np.array([one for one, _ in edges]),
        tensor_bytes=np.full(len(edges), _SENT),
        consumer_start=np.arange(len(edges) + 1),
        consumers=np.array([two for _, two in edges], np.int64),
        control_edges=np.zeros([0, 2], np.int64),
    )


def _causes(problem, placement):
    bound_secs = lower_bounds(problem).step_secs
    return step_causes(problem, np.array(placement, np.int32), bound_secs)


def _two_chains():
    """Two chains of two operations, each of 1 s on a GPU and 10 s on the CPU."""
    return _problem([[10.0, 1.0, 1.0]] * 4, [(0, 1), (2, 3)])


class CauseTest(absltest.TestCase):
    def test_a_step_at_the_bound_needs_no_cause(self):
        causes = _causes(_two_chains(), [1, 1, 2, 2])
        self.assertAlmostEqual(causes.step_secs, 2.0)
        self.assertEqual(causes.cause, "at the bound")
        np.testing.assert_allclose(causes.busy, [0.0, 1.0, 1.0])
        self.assertEqual((causes.sent_bytes, causes.num_transfers), (0, 0))

    def test_everything_on_one_device_is_an_imbalance(self):
        causes = _causes(_two_chains(), [1, 1, 1, 1])
        self.assertEqual(causes.cause, "imbalance")
        np.testing.assert_allclose(list(causes.losses.values()), [0.0, 0.0, 2.0], atol=1e-9)

    def test_everything_on_the_cpu_is_a_slow_device(self):
        self.assertEqual(_causes(_two_chains(), [0, 0, 0, 0]).cause, "slow device")

    def test_a_chain_on_the_cpu_is_a_slow_device_although_it_is_not_busiest(self):
        # GPU 0 has 12 s of work, the chain with the operation of the CPU takes 12.5 s.
        problem = _problem([[12.0, 0.1, 0.1], [9.0, 0.5, 0.5], [99.0, 11.5, 11.5]], [(0, 1)])
        causes = _causes(problem, [0, 1, 1])
        self.assertAlmostEqual(causes.busiest_secs, 12.0)
        self.assertAlmostEqual(causes.chain_secs, 12.5)
        self.assertTrue(causes.on_cpu)

    def test_a_chain_that_is_sent_to_and_fro_loses_to_transfers(self):
        problem = _problem([[9.0, 0.1, 0.1]] * 4, [(0, 1), (1, 2), (2, 3)])
        causes = _causes(problem, [1, 2, 1, 2])
        self.assertEqual(causes.cause, "transfers")
        self.assertAlmostEqual(causes.step_secs, 0.4 + 3 * 0.11)
        self.assertAlmostEqual(causes.losses["transfers"], 3 * 0.11)
        self.assertEqual((causes.sent_bytes, causes.num_transfers), (3 * _SENT, 3))

    def test_parts_that_could_run_at_once_but_follow_each_other_lose_to_turns(self):
        # Two chains, cut across: the second halves are on the second device.
        secs = [[99.0, 1.0, 1.0]] * 8
        edges = [(0, 1), (1, 2), (2, 3), (4, 5), (5, 6), (6, 7)]
        causes = _causes(_problem(secs, edges), [1, 1, 2, 2, 1, 1, 2, 2])
        free_secs = causes.step_secs - causes.losses["transfers"]
        self.assertAlmostEqual(causes.losses["turns"], free_secs - 4.0)
        self.assertGreater(causes.losses["turns"], 0.5)
        self.assertEqual(causes.cause, "turns")

    def test_memory_comes_before_all_else(self):
        problem = _problem([[1.0, 0.5]] * 2, [], memory_bytes=10, resident_bytes=6)
        causes = _causes(problem, [1, 1])
        self.assertEqual(causes.cause, "out of memory")
        self.assertAlmostEqual(causes.full, 1.2)
        self.assertEqual(causes.fullest, "/device:GPU:0")

    def test_what_no_placement_can_avoid_is_not_lost_to_turns(self):
        causes = StepCauses(9.0, 6.0, True, 8.0, 5.0, 4.0, False, [1.0], 0, 0, "GPU:0", 0.5)
        self.assertEqual(causes.losses, {"transfers": 1.0, "turns": 2.0, "imbalance": 0.0})

    def test_losses_add_up_for_every_kind_of_problem(self):
        generator = np.random.default_rng(0)
        for name, problem in SMALL_PROBLEMS.items():
            with self.subTest(name):
                placement = generator.integers(problem.num_devices, size=problem.num_groups)
                allowed = np.isfinite(problem.compute_secs)
                legal = np.array(
                    [allowed[problem.groups == g].all(0) for g in range(len(placement))]
                )
                placement = np.where(
                    legal[np.arange(len(placement)), placement], placement, legal.argmax(1)
                )
                causes = _causes(problem, placement)
                self.assertAlmostEqual(
                    sum(causes.losses.values()), causes.step_secs - causes.bound_secs
                )

    def test_where_an_operation_may_not_go_is_refused(self):
        problem = _problem([[1.0, math.inf]], [])
        with self.assertRaisesRegex(ValueError, "may not go"):
            step_causes(problem, np.array([1], np.int32), 1.0)


class LinksTest(absltest.TestCase):
    def test_transfers_take_as_many_times_as_long(self):
        problem = _problem([[9.0, 0.1, 0.1]] * 2, [(0, 1)])
        for factor in (0.0, 0.5, 3.0):
            slower = with_slower_links(problem, factor)
            secs = Simulator(slower).simulate(np.array([[1, 2]])).step_secs[0]
            self.assertAlmostEqual(secs, 0.2 + factor * 0.11)

    def test_the_factor_is_where_both_are_as_fast(self):
        # Apart, 1 s and two transfers; on one device, 2 s.
        problem = _problem([[9.0, 0.5, 0.5], [9.0, 0.5, 0.5], [9.0, 0.0, 0.0]], [(0, 2), (1, 2)])
        problem = dataclasses.replace(problem, tensor_bytes=np.array([_SENT, _SENT]))
        apart, together = np.array([1, 2, 1], np.int32), np.array([1, 1, 1], np.int32)
        factor = break_even_factor(problem, apart, together)
        self.assertBetween(factor, 0.5 / 0.11 / 1.011, 0.5 / 0.11)
        self.assertIsNone(break_even_factor(problem, together, apart))

    def test_what_sends_nothing_stays_faster(self):
        problem = _two_chains()
        apart, together = np.array([1, 1, 2, 2], np.int32), np.array([1, 1, 1, 1], np.int32)
        self.assertEqual(break_even_factor(problem, apart, together), math.inf)


if __name__ == "__main__":
    absltest.main()
