import numpy as np
from absl.testing import absltest

from benchmarks.search_quality.random_steps import random_step
from tf_placer.problem.problem_groups import legal_devices
from tf_placer.simulation.simulator import Simulator


def some_steps(count, num_groups=10, num_devices=3):
    return [
        random_step(np.random.default_rng(seed), num_groups, num_devices) for seed in range(count)
    ]


class RandomStepTest(absltest.TestCase):
    def test_all_groups_are_connected(self):
        for problem in some_steps(50):
            reached = {0}
            for _ in range(problem.num_groups):
                for a, b in problem.groups[problem.edges].tolist():
                    if a in reached or b in reached:
                        reached |= {a, b}
            self.assertLen(reached, problem.num_groups)

    def test_every_placement_fits(self):
        for problem in some_steps(20):
            placement = legal_devices(problem).argmax(axis=1)[None]
            self.assertTrue(Simulator(problem, threads=1).simulate(placement).feasible[0])


if __name__ == "__main__":
    absltest.main()
