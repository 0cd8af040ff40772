import math

import numpy as np
from absl.testing import absltest

from benchmarks.problems.small import SMALL_PROBLEMS, all_step_secs
from tests.tf_placer.simulation.random_problems import random_problem
from tf_placer.placers.auto.exhaustive import ExhaustiveSearch
from tf_placer.problem.problem_groups import legal_devices
from tf_placer.simulation.simulator import Simulator


def make_search(problem):
    return ExhaustiveSearch(problem, Simulator(problem, threads=1), 0)


def find_fastest(problem, limit_secs):
    found = [each for each, _ in make_search(problem).run(limit_secs) if each is not None]
    return found[-1] if found else None


class ExhaustiveSearchTest(absltest.TestCase):
    def test_finds_the_fastest_of_all_placements_that_fit(self):
        random = np.random.default_rng(0)
        problems = [random_problem(random, max_operations=7) for _ in range(30)]
        for problem in [*SMALL_PROBLEMS.values(), *problems]:
            fastest_secs = all_step_secs(problem)[0]
            found = find_fastest(problem, math.inf)
            if found is None:
                self.assertEqual(fastest_secs, np.inf)
            else:
                self.assertEqual(found.step_secs, fastest_secs)
                simulated = Simulator(problem, threads=1).simulate(found.placement[None])
                self.assertTrue(simulated.feasible[0])
                self.assertEqual(simulated.step_secs[0], found.step_secs)
                self.assertEqual(simulated.peak_bytes[0].tolist(), found.peak_bytes.tolist())

    def test_finds_only_placements_below_the_limit(self):
        for problem in SMALL_PROBLEMS.values():
            fastest_secs = all_step_secs(problem)[0]
            self.assertIsNone(find_fastest(problem, fastest_secs))
            self.assertEqual(find_fastest(problem, fastest_secs * 1.001).step_secs, fastest_secs)

    def test_simulates_no_more_than_estimated_and_fewer_with_a_limit(self):
        for problem in SMALL_PROBLEMS.values():
            search = make_search(problem)
            num_placements = legal_devices(problem).sum(axis=1).prod()
            for limit_secs in (math.inf, all_step_secs(problem)[0] * 1.1):
                count, secs = search.estimate_effort(limit_secs)
                simulated = sum(number for _, number in search.run(limit_secs))
                self.assertLessEqual(simulated, count)
                self.assertLessEqual(count, num_placements)
                self.assertGreater(secs, 0.0)


if __name__ == "__main__":
    absltest.main()
