"""Tests of the order in which asynchronous devices are handed operations."""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np
from absl.testing import absltest

from tests.tf_placer.placers.problems import build_task_problem
from tests.tf_placer.simulation.random_problems import random_placement, random_problem
from tf_placer.problem.placement_problem import PlacementProblem
from tf_placer.simulation.operation_order import find_order
from tf_placer.simulation.simulator import Simulator

_SEARCH_SECS = 0.2


def on_gpus(problem: PlacementProblem) -> PlacementProblem:
    """Makes all devices asynchronous."""
    devices = (dataclasses.replace(each, is_asynchronous=True) for each in problem.devices)
    return dataclasses.replace(problem, devices=tuple(devices))


def simulate(problem: PlacementProblem, placement: np.ndarray, edges: np.ndarray) -> float:
    edges = np.concatenate([problem.control_edges, edges])
    changed = dataclasses.replace(problem, control_edges=edges)
    batch = Simulator(changed).simulate(placement[np.newaxis].astype(np.int32))
    return float(batch.step_secs[0]) if batch.feasible[0] else np.inf


def build_branches() -> PlacementProblem:
    """Builds a first operation with a long and a short reader; another device reads the short one.

    The long one is handed over first, so that the copy waits for it.
    """
    return on_gpus(
        build_task_problem(
            [(1.0, 1.0), (10.0, 10.0), (2.0, 2.0), (5.0, 5.0)],
            [(0, 1, 1), (0, 2, 1), (2, 3, 1)],
            memory_bytes=[100, 100],
        )
    )


def find_shortest(problem: PlacementProblem, placement: np.ndarray) -> float:
    """Tries all orders of each device, as control edges between neighbors."""
    num = problem.num_operations
    orders = [
        itertools.permutations(np.flatnonzero(placement[problem.groups] == device).tolist())
        for device in range(problem.num_devices)
    ]
    before = np.zeros([num, num], bool)
    before[tuple(problem.edges.T)] = True
    for _ in range(num):
        before |= before @ before
    best_secs = np.inf
    for order in itertools.product(*map(list, orders)):
        edges = [pair for each in order for pair in itertools.pairwise(each)]
        if any(before[after, first] for first, after in edges):
            continue
        try:
            secs = simulate(problem, placement, np.array(edges, np.int32).reshape(-1, 2))
        except ValueError:  # The orders of two devices contradict each other.
            continue
        best_secs = min(best_secs, secs)
    return best_secs


class FindOrderTest(absltest.TestCase):
    def test_a_copy_no_longer_waits_for_an_operation_that_has_time(self):
        placement = np.array([0, 0, 0, 1], np.int32)
        found = find_order(build_branches(), placement, np.ones(4, bool), max_secs=_SEARCH_SECS)
        # Handed over as 0, 1, 2: 2 ends after 1 + 10 + 2 s, its copy 1 s later, 3 after 5 s more.
        self.assertEqual(found.unordered_secs, 19.0)
        # Handed over as 0, 2, 1: 1 ends after 1 + 2 + 10 s, long after 3 does.
        self.assertEqual(found.step_secs, 13.0)
        self.assertIn([2, 1], found.edges.tolist())

    def test_finds_most_of_the_best_of_all_orders(self):
        rng = np.random.default_rng(5)
        num_improvable = num_found = 0
        for _ in range(40):
            problem = random_problem(rng, max_operations=7, asynchronous_share=1.0)
            devices = (dataclasses.replace(each, memory_bytes=10**9) for each in problem.devices)
            problem = dataclasses.replace(problem, devices=tuple(devices))
            placement = random_placement(rng, problem)
            may_wait = np.ones(problem.num_operations, bool)
            found = find_order(problem, placement, may_wait, max_secs=0.02)
            best_secs = min(found.unordered_secs, find_shortest(problem, placement))
            self.assertGreaterEqual(found.step_secs, best_secs - 1e-9)
            if best_secs < found.unordered_secs - 1e-9:
                num_improvable += 1
                num_found += found.step_secs < best_secs + 1e-9
        self.assertGreater(num_improvable, 3)
        self.assertGreaterEqual(num_found, 0.75 * num_improvable)

    def test_the_step_is_that_of_the_control_edges(self):
        rng = np.random.default_rng(6)
        found_any = 0
        for _ in range(30):
            problem = random_problem(rng, max_operations=40, asynchronous_share=0.8)
            placement = random_placement(rng, problem)
            may_wait = rng.random(problem.num_operations) < 0.8
            found = find_order(problem, placement, may_wait, max_secs=0.02)
            self.assertLessEqual(found.step_secs, found.unordered_secs)
            if not len(found.edges):
                continue
            found_any += 1
            self.assertEqual(found.step_secs, simulate(problem, placement, found.edges))
            self.assertTrue(may_wait[found.edges].all())
            on = placement[problem.groups][found.edges]
            self.assertEqual(on[:, 0].tolist(), on[:, 1].tolist())
            asynchronous = [each.is_asynchronous for each in problem.devices]
            self.assertTrue(np.array(asynchronous)[on].all())
        self.assertGreater(found_any, 3)

    def test_nothing_is_ordered_on_devices_that_are_not_handed_operations_ahead(self):
        devices = (
            dataclasses.replace(each, is_asynchronous=False) for each in build_branches().devices
        )
        problem = dataclasses.replace(build_branches(), devices=tuple(devices))
        placement = np.array([0, 0, 0, 1], np.int32)
        found = find_order(problem, placement, np.ones(4, bool), max_secs=0.01)
        self.assertEqual(len(found.edges), 0)
        self.assertEqual(found.step_secs, found.unordered_secs)

    def test_operations_that_may_not_wait_are_not_ordered(self):
        placement = np.array([0, 0, 0, 1], np.int32)
        may_wait = np.array([True, False, True, True])
        found = find_order(build_branches(), placement, may_wait, max_secs=_SEARCH_SECS)
        self.assertEqual(len(found.edges), 0)


if __name__ == "__main__":
    absltest.main()
