"""Tests of what steps lose where, on problems that are worked out by hand."""

from __future__ import annotations

import dataclasses
import itertools
import math

import numpy as np
from absl.testing import absltest

from benchmarks.harness.step_losses import fold_losses, step_losses
from benchmarks.problems.small import SMALL_PROBLEMS
from tf_placer.machines.machine import Link
from tf_placer.problem.placement_problem import PlacementProblem, ProblemDevice
from tf_placer.problem.problem_groups import legal_devices
from tf_placer.simulation.lower_bounds import lower_bounds
from tf_placer.simulation.simulator import Simulator


def _problem(compute_secs, edges):
    """One group per operation; a transfer takes 0.11 s."""
    secs = np.array(compute_secs, np.float64)
    count, num_devices = secs.shape
    names = ["/device:CPU:0", *(f"/device:GPU:{k}" for k in range(num_devices - 1))]
    return PlacementProblem(
        devices=tuple(ProblemDevice(name, "class", 10**12) for name in names),
        links=tuple(Link(one, two, 0.01, 1e9) for one, two in itertools.permutations(names, 2)),
        operation_names=tuple(f"operation_{k}" for k in range(count)),
        compute_secs=secs,
        resident_bytes=np.zeros(count, np.int64),
        temp_bytes=np.zeros(count, np.int64),
        groups=np.arange(count),
        tensor_producers=np.array([one for one, _ in edges]),
        tensor_bytes=np.full(len(edges), 100_000_000),
        consumer_start=np.arange(len(edges) + 1),
        consumers=np.array([two for _, two in edges], np.int64),
        control_edges=np.zeros([0, 2], np.int64),
    )


def _losses(problem, placement):
    bound_secs = lower_bounds(problem).step_secs
    return step_losses(problem, np.array(placement, np.int32), bound_secs)


class StepLossesTest(absltest.TestCase):
    def test_everything_on_one_device_is_an_imbalance(self):
        two_chains = _problem([[10.0, 1.0, 1.0]] * 4, [(0, 1), (2, 3)])
        losses = _losses(two_chains, [1, 1, 1, 1])
        self.assertEqual(list(losses), ["transfers", "turns", "imbalance"])
        np.testing.assert_allclose(list(losses.values()), [0.0, 0.0, 2.0], atol=1e-9)

    def test_a_chain_may_be_longer_than_what_the_busiest_device_does(self):
        # GPU 0 has 12 s of work, the chain with the operation of the CPU takes 12.5 s.
        problem = _problem([[12.0, 0.1, 0.1], [9.0, 0.5, 0.5], [99.0, 11.5, 11.5]], [(0, 1)])
        self.assertIn("chain", _losses(problem, [0, 1, 1]))

    def test_a_chain_that_is_sent_to_and_fro_loses_to_transfers(self):
        problem = _problem([[9.0, 0.1, 0.1]] * 4, [(0, 1), (1, 2), (2, 3)])
        self.assertAlmostEqual(_losses(problem, [1, 2, 1, 2])["transfers"], 3 * 0.11)

    def test_parts_that_could_run_at_once_but_follow_each_other_lose_to_turns(self):
        # Two chains, cut across: the second halves are on the second device.
        edges = [(0, 1), (1, 2), (2, 3), (4, 5), (5, 6), (6, 7)]
        losses = _losses(_problem([[99.0, 1.0, 1.0]] * 8, edges), [1, 1, 2, 2, 1, 1, 2, 2])
        self.assertGreater(losses["turns"], 0.5)

    def test_losses_add_up_for_every_kind_of_problem(self):
        generator = np.random.default_rng(0)
        for name, problem in SMALL_PROBLEMS.items():
            with self.subTest(name):
                legal = legal_devices(problem)
                draws = np.where(legal, generator.random(legal.shape), -1.0)
                placement = draws.argmax(axis=1).astype(np.int32)
                bound_secs = lower_bounds(problem).step_secs
                losses = step_losses(problem, placement, bound_secs)
                [step_secs] = Simulator(problem).simulate(placement[None]).step_secs
                self.assertAlmostEqual(sum(losses.values()), step_secs - bound_secs)

    def test_asynchronous_devices_lose_to_the_same(self):
        problem = _problem([[99.0, 1.0, 1.0]] * 4, [(0, 1), (1, 2), (2, 3)])
        gpus = (dataclasses.replace(each, is_asynchronous=True) for each in problem.devices[1:])
        asynchronous = dataclasses.replace(problem, devices=(problem.devices[0], *gpus))
        losses = _losses(asynchronous, [1, 1, 2, 2])
        np.testing.assert_allclose(
            [losses["transfers"], losses["turns"], losses["chain"]],
            [0.11, 0.0, 4.0 - lower_bounds(asynchronous).step_secs],
            atol=1e-9,
        )

    def test_a_step_that_is_longer_without_transfers_loses_the_less_to_turns(self):
        parts = {"transfers": -0.4, "turns": 0.5, "chain": 0.2}
        folded = fold_losses(parts)
        self.assertEqual(list(folded), list(parts))
        np.testing.assert_allclose(list(folded.values()), [0.0, 0.1, 0.2])
        parts = {"transfers": 0.3, "turns": -0.1, "imbalance": 0.2}
        np.testing.assert_allclose(list(fold_losses(parts).values()), [0.2, 0.0, 0.2])
        self.assertEqual(fold_losses(folded), folded)

    def test_where_an_operation_may_not_go_is_refused(self):
        problem = _problem([[1.0, math.inf]], [])
        with self.assertRaisesRegex(ValueError, "may not go"):
            step_losses(problem, np.array([1], np.int32), 1.0)


if __name__ == "__main__":
    absltest.main()
