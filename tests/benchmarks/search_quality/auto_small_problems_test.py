import numpy as np
from absl.testing import absltest

from benchmarks.problems.small import all_step_secs
from benchmarks.search_quality.auto_small_problems import (
    fastest_step_secs,
    run_one,
    small_problem,
)
from tf_placer.problem.problem_groups import legal_devices


def some_problems(count, most_placements=7000):
    random = np.random.default_rng(0)
    problems = []
    while len(problems) < count:
        problem = small_problem(random)
        if legal_devices(problem).sum(axis=1).prod() <= most_placements:
            problems.append(problem)
    return problems


class AutoSmallProblemsTest(absltest.TestCase):
    def test_the_fastest_is_that_of_all_placements(self):
        for problem in some_problems(5):
            self.assertEqual(fastest_step_secs(problem), all_step_secs(problem)[0])

    def test_auto_finds_the_fastest(self):
        for number in range(15):
            run = run_one(number, 600.0, max_simulated=100_000, max_groups=10)
            self.assertTrue(run.is_optimal, run)


if __name__ == "__main__":
    absltest.main()
