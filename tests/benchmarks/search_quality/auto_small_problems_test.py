import numpy as np
from absl.testing import absltest

from benchmarks.problems.small import all_step_secs
from benchmarks.search_quality.auto_small_problems import (
    SmallRun,
    fastest_step_secs,
    run_one,
    small_problem,
    table_of_runs,
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

    def test_the_table_counts_what_is_optimal(self):
        runs = [
            SmallRun(number, 9, 3, 9, placements, 1.0, ratio, 100, 0.5, 0.1)
            for number, (placements, ratio) in enumerate(
                [(19_683, 1.0), (20_001, 1.0 + 1e-12), (177_147, 1.01), (4_782_969, np.inf)]
            )
        ]
        lines = table_of_runs(runs).splitlines()[2:]
        self.assertEqual(
            [[cell.strip() for cell in line.split("|")[1:6]] for line in lines],
            [
                ["up to 20,000", "1", "1", "100.0%", "1.0000"],
                ["up to 200,000", "2", "1", "50.0%", "1.0100"],
                ["up to 4,782,969", "1", "0", "0.0%", "inf"],
                ["all", "4", "2", "50.0%", "inf"],
            ],
        )


if __name__ == "__main__":
    absltest.main()
