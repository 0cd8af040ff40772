import itertools
import math

import numpy as np
from absl.testing import absltest

from tests.tf_placer.simulation.random_problems import random_problem
from tests.tf_placer.simulation.traces import make_problem
from tf_placer.problem.path_secs import least_secs, longest_after, longest_before


class PathSecsTest(absltest.TestCase):
    def test_least_secs_is_the_time_on_the_fastest_legal_device_of_the_group(self):
        problem = make_problem([[5.0, 1.0], [2.0, math.inf], [7.0, 6.0]], groups=[0, 0, 1])
        self.assertEqual(least_secs(problem).tolist(), [5.0, 2.0, 6.0])

    def test_chains_follow_tensors_and_control_edges(self):
        problem = make_problem(
            [[1.0], [2.0], [4.0], [8.0]], tensors=[(0, 10, [1, 2])], control_edges=[(1, 3)]
        )
        secs = np.array([1.0, 2.0, 4.0, 8.0])
        self.assertEqual(longest_before(problem, secs).tolist(), [0.0, 1.0, 1.0, 3.0])
        self.assertEqual(longest_after(problem, secs).tolist(), [10.0, 8.0, 0.0, 0.0])

    def test_no_chain_is_longer(self):
        random = np.random.default_rng(0)
        for _ in range(20):
            problem = random_problem(random, max_operations=7)
            secs = least_secs(problem)
            edges = set(map(tuple, problem.edges.tolist()))
            longest = dict.fromkeys(range(problem.num_operations), 0.0)
            for length in range(2, problem.num_operations + 1):
                for chain in itertools.permutations(range(problem.num_operations), length):
                    if all(pair in edges for pair in itertools.pairwise(chain)):
                        longest[chain[-1]] = max(longest[chain[-1]], secs[list(chain[:-1])].sum())
            before = longest_before(problem, secs)
            np.testing.assert_allclose(before, list(longest.values()), rtol=1e-12)
            # The longest chain is equally long from both ends.
            whole = before + secs + longest_after(problem, secs)
            self.assertAlmostEqual(whole.max(), (before + secs).max())


if __name__ == "__main__":
    absltest.main()
