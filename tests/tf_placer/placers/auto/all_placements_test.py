import itertools
import math

import numpy as np
from absl.testing import absltest

from benchmarks.problems.small import SMALL_PROBLEMS
from tests.tf_placer.simulation.random_problems import random_problem
from tests.tf_placer.simulation.traces import make_problem
from tf_placer.placers.auto.all_placements import AllPlacements
from tf_placer.problem.problem_groups import legal_devices
from tf_placer.simulation.simulator import Simulator


def list_placements(problem):
    devices = [np.flatnonzero(row) for row in legal_devices(problem)]
    return np.array(list(itertools.product(*devices)), np.int32)


def list_promising(problem, limit_secs=math.inf):
    return np.concatenate(
        [
            np.zeros([0, problem.num_groups], np.int32),
            *AllPlacements(problem).generate_promising(lambda: limit_secs),
        ]
    )


def as_set(placements):
    return {tuple(placement) for placement in placements.tolist()}


class AllPlacementsTest(absltest.TestCase):
    def test_without_limits_every_legal_placement_comes_once(self):
        # 3 devices for 9 groups and 2 for one: more than fit into one batch.
        secs = np.ones([10, 3])
        secs[4, 1] = np.inf
        problem = make_problem(secs)
        found = list_promising(problem)
        self.assertLen(found, 2 * 3**9)
        self.assertEqual(as_set(found), as_set(list_placements(problem)))

    def test_everything_that_fits_within_the_limit_is_promising(self):
        random = np.random.default_rng(0)
        for _ in range(30):
            problem = random_problem(random, max_operations=7)
            every = list_placements(problem)
            batch = Simulator(problem, threads=1).simulate(every)
            limit_secs = float(np.median(batch.step_secs))
            good = every[batch.feasible & (batch.step_secs <= limit_secs)]
            found = list_promising(problem, limit_secs)
            self.assertLen(as_set(found), len(found))
            self.assertLessEqual(as_set(good), as_set(found))

    def test_rejects_placements_over_the_limit_or_over_memory(self):
        problem = make_problem(
            [[1.0, 2.0]] * 3, resident_bytes=[10, 10, 10], memory_bytes=[20, 100], slots=[1, 2]
        )
        found = as_set(list_promising(problem, 2.0))
        # At most two on the first device, by time and memory; at most two on the second, by time.
        self.assertEqual(
            found, {p for p in itertools.product([0, 1], repeat=3) if 1 <= sum(p) <= 2}
        )

    def test_rejects_placements_over_peak_memory(self):
        # While it runs, the reader holds its 10 bytes and its input, the writer its output.
        problem = make_problem(
            [[1.0, 1.0]] * 3,
            tensors=[(0, 5, [1])],
            resident_bytes=[0, 10, 10],
            memory_bytes=[20, 100],
        )
        found = as_set(list_promising(problem))
        # Both groups of 10 bytes are on the first device only if nothing runs there with more.
        self.assertEqual(
            found,
            {p for p in itertools.product([0, 1], repeat=3) if not (p[1] == 0 and p[2] == 0)},
        )

    def test_a_falling_limit_rejects_more_placements(self):
        problem = make_problem([[1.0] * 3] * 10)
        limits = itertools.chain([math.inf], itertools.repeat(4.0))
        placements = AllPlacements(problem).generate_promising(lambda: next(limits))
        num_found = sum(map(len, placements))
        self.assertBetween(num_found, len(list_promising(problem, 4.0)) + 1, 3**10 - 1)

    def test_a_sample_estimates_the_number_of_promising_placements(self):
        problem = make_problem([[1.0] * 3] * 11)
        expected = list_promising(problem, 5.0)
        rows, count = AllPlacements(problem).sample(5.0, 400, np.random.default_rng(0))
        self.assertAlmostEqual(count / len(expected), 1.0, delta=0.1)
        self.assertLessEqual(as_set(rows), as_set(expected))

    def test_the_optimum_of_small_problems_is_promising(self):
        for problem in SMALL_PROBLEMS.values():
            batch = Simulator(problem, threads=1).simulate(list_placements(problem))
            fastest = np.where(batch.feasible, batch.step_secs, np.inf).min()
            found = Simulator(problem, threads=1).simulate(list_promising(problem, fastest))
            self.assertEqual(found.step_secs[found.feasible].min(), fastest)


if __name__ == "__main__":
    absltest.main()
