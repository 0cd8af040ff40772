"""Tests of placers on GPUs of unequal speed and memory, beside all placements there are."""

from __future__ import annotations

import dataclasses
import functools
import itertools
from unittest import mock

import numpy as np
from absl.testing import absltest, parameterized

from benchmarks.problems.small import all_step_secs, is_optimal
from tests.tf_placer.simulation.mixed_problems import make_mixed_problem
from tf_placer.placers.auto import auto_search as auto_search_module
from tf_placer.placers.auto.auto_search import auto_search
from tf_placer.placers.auto.candidate import Candidate
from tf_placer.placers.making import make_placer
from tf_placer.problem.placement_problem import PlacementProblem
from tf_placer.problem.problem_groups import device_secs, group_graph, legal_devices
from tf_placer.simulation.lower_bounds import lower_bounds
from tf_placer.simulation.simulator import Simulator

# The placers of the registry that propose a few placements of their own.
_PLACERS = (
    *("single_device", "expert", "branches", "stretches", "greedy_fill", "topological", "metis"),
    *("scotch", "mincut", "m_topo", "m_etf", "m_sct", "heft"),
)
_MIXES = ("1xV100+1xT4", "1xV100+1xK80+1xT4", "1xP100+1xT4+1xV100-PCIe")
_CASES = tuple(itertools.product(_MIXES, (2, 3), (0.0, 0.6, 0.8)))


@functools.cache
def build_problem(mix: str, seed: int, filled_share: float) -> PlacementProblem:
    rng = np.random.default_rng(seed)
    return make_mixed_problem(rng, mix, 6, filled_share=filled_share)


@functools.cache
def find_fastest_secs(mix: str, seed: int, filled_share: float) -> float:
    return float(all_step_secs(build_problem(mix, seed, filled_share))[0])


def search(problem: PlacementProblem, max_simulated: int) -> Candidate:
    found = auto_search(
        problem, group_graph(problem), max_secs=600.0, max_simulated=max_simulated, threads=1
    )
    return found.best


class UnequalDevicesTest(parameterized.TestCase):
    @parameterized.parameters(*_CASES)
    def test_auto_finds_the_optimum(self, *case):
        best = search(build_problem(*case), 4**6)
        self.assertEqual(best.excess_bytes, 0)
        self.assertTrue(is_optimal(best.step_secs, find_fastest_secs(*case)))

    @parameterized.parameters(*(case for case in _CASES if case[-1] < 0.8))
    def test_auto_finds_the_optimum_without_trying_every_placement(self, *case):
        problem = build_problem(*case)
        limits = dataclasses.replace(auto_search_module._LIMITS, max_exhaustive_placements=0)
        with mock.patch.object(auto_search_module, "_LIMITS", limits):
            best = search(problem, 1500)
        self.assertEqual(best.excess_bytes, 0)
        self.assertTrue(is_optimal(best.step_secs, find_fastest_secs(*case)))

    @parameterized.parameters(*_CASES)
    def test_the_optimum_is_on_several_gpus(self, *case):
        # Otherwise these problems would not tell whether unequal devices are used well.
        problem = build_problem(*case)
        on_one = np.tile(np.arange(problem.num_devices, dtype=np.int32)[:, None], 6)
        batch = Simulator(problem, threads=1).simulate(on_one)
        secs = np.where(batch.feasible, batch.step_secs, np.inf)
        self.assertGreater(secs.min(), 1.2 * find_fastest_secs(*case))

    @parameterized.parameters(*_CASES)
    def test_no_placer_and_no_bound_contradicts_the_optimum(self, *case):
        problem, fastest_secs = build_problem(*case), find_fastest_secs(*case)
        self.assertLessEqual(lower_bounds(problem).step_secs, fastest_secs * (1 + 1e-9))
        groups, legal = group_graph(problem), legal_devices(problem)
        for name in _PLACERS:
            proposed = make_placer(name, groups, legal, seed=0, problem=problem).propose(64)
            self.assertNotEmpty(proposed, name)
            batch = Simulator(problem, threads=1).simulate(proposed.astype(np.int32))
            secs = np.where(batch.feasible, batch.step_secs, np.inf)
            self.assertGreaterEqual(secs.min(), fastest_secs * (1 - 1e-9), name)

    @parameterized.parameters("greedy_fill", "m_topo", "m_etf", "m_sct", "heft")
    def test_placers_that_know_memory_fit_unequal_memories(self, name):
        for seed, mix in itertools.product(range(5), _MIXES):
            rng = np.random.default_rng(seed)
            problem = make_mixed_problem(rng, mix, 24, filled_share=0.6)
            placer = make_placer(
                name, group_graph(problem), legal_devices(problem), seed=0, problem=problem
            )
            proposed = placer.propose(64).astype(np.int32)
            batch = Simulator(problem, threads=1).simulate(proposed)
            self.assertTrue(batch.feasible.any(), (name, mix, seed))

    @parameterized.parameters("metis", "mincut")
    def test_a_faster_gpu_gets_more_work(self, name):
        # A V100 is twice as fast as a T4.
        for mix in ("1xV100+1xT4", "1xT4+1xV100"):
            problem = make_mixed_problem(np.random.default_rng(0), mix, 400)
            placer = make_placer(
                name, group_graph(problem), legal_devices(problem), seed=0, problem=problem
            )
            secs = device_secs(problem)
            for row in placer.propose(2):
                busy = [secs[row == device, device].sum() for device in (1, 2)]
                self.assertLess(max(busy), 1.3 * min(busy), (name, mix, busy))


if __name__ == "__main__":
    absltest.main()
