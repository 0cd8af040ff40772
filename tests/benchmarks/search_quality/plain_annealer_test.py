import shutil
import unittest

import numpy as np
from absl.testing import absltest

from benchmarks.problems.small import SMALL_PROBLEMS, all_step_secs, is_optimal
from benchmarks.search_quality.irregular_families import irregular_problem
from benchmarks.search_quality.plain_annealer import anneal
from tf_placer.simulation.simulator import Simulator

# Memory decides there, which the annealer does not simulate.
_WITH_LITTLE_MEMORY = "memory"


@unittest.skipUnless(shutil.which("g++"), "the benchmark compiles the annealer")
class PlainAnnealerTest(absltest.TestCase):
    def test_finds_the_optimum_of_small_problems(self):
        for name in SMALL_PROBLEMS.keys() - {_WITH_LITTLE_MEMORY}:
            problem = SMALL_PROBLEMS[name]
            # Some seeds end in a local optimum.
            steps = [
                anneal(problem, core_secs=60.0, seed=seed, max_steps=20_000).step_secs
                for seed in range(3)
            ]
            self.assertTrue(is_optimal(np.min(steps), all_step_secs(problem)[0]), name)

    def test_the_step_is_that_of_the_simulator(self):
        problem = irregular_problem("graph nets", 60, 0)
        found = anneal(problem, core_secs=60.0, seed=0, max_steps=5_000)
        batch = Simulator(problem, threads=1).simulate(found.placement[np.newaxis])
        self.assertEqual(found.step_secs, batch.step_secs[0])
        self.assertLess(found.step_secs, problem.compute_secs.sum(axis=0).min())
        self.assertEqual(found.num_simulated, 5_000)

    def test_the_seed_decides(self):
        problem = irregular_problem("attention", 60, 0)
        one, same, other = (
            anneal(problem, core_secs=60.0, seed=seed, max_steps=2_000) for seed in (0, 0, 1)
        )
        np.testing.assert_array_equal(one.placement, same.placement)
        self.assertFalse(np.array_equal(one.placement, other.placement))

    def test_stops_after_its_core_seconds(self):
        found = anneal(irregular_problem("U-nets", 60, 0), core_secs=0.1, seed=0)
        self.assertBetween(found.core_secs, 0.1, 0.2)


if __name__ == "__main__":
    absltest.main()
