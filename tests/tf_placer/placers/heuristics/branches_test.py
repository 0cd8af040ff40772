import numpy as np
from absl.testing import absltest

from tests.tf_placer.placers import placer_conformance, problems
from tests.tf_placer.placers.heuristics.known_problems import measure_known_and_best
from tf_placer.placers.heuristics.branches import Branches
from tf_placer.problem.problem_groups import group_graph, legal_devices
from tf_placer.simulation.simulator import Simulator


def propose(problem):
    placer = Branches(group_graph(problem), legal_devices(problem), problem=problem)
    return placer.propose(99)


class BranchesTest(placer_conformance.PlacerConformance, absltest.TestCase):
    def new_placer(self, groups, legal, seed):
        problem = problems.build_group_problem(groups, np.ones([groups.num_groups, 3], np.bool_))
        return Branches(groups, legal, seed=seed, problem=problem)

    def test_matches_the_known_placements_of_experts_and_trees(self):
        for family in ("experts", "tree"):
            known_secs, found_secs = measure_known_and_best(family, 1500, propose)
            self.assertLessEqual(found_secs, 1.01 * known_secs, family)

    def test_balances_the_heads_of_a_long_chain_over_the_whole_step(self):
        # Balancing each window alone leaves some device with a few of 2,500 heads too many.
        known_secs, found_secs = measure_known_and_best("chain_with_heads", 20_000, propose)
        self.assertLessEqual(found_secs, 1.001 * known_secs)

    def test_the_largest_branch_has_a_device_of_its_own(self):
        # Independent chains of 3, 2 and 1 seconds.
        problem = problems.build_task_problem([(9, 1, 1)] * 6, [(0, 1, 0), (1, 2, 0), (3, 4, 0)])
        self.assertIn([1, 1, 1, 2, 2, 2], propose(problem).tolist())

    def test_a_faster_device_gets_more_branches(self):
        # Twelve equal branches of two operations; one device takes three times as long.
        edges = [(2 * k, 2 * k + 1, 0) for k in range(12)]
        for secs, numbers in (((9, 1, 3), [0, 18, 6]), ((9, 3, 1), [0, 6, 18])):
            problem = problems.build_task_problem([secs] * 24, edges)
            counts = [np.bincount(row, minlength=3).tolist() for row in propose(problem)]
            self.assertIn(numbers, counts)
            self.assertNotIn([0, 12, 12], counts)

    def test_a_chain_has_a_device_of_its_own_and_its_heads_share_the_other(self):
        # Operations 0 to 3 are a chain; each has a head of the same duration, 4 to 7.
        edges = [(k, k + 1, 0) for k in range(3)] + [(k, k + 4, 0) for k in range(4)]
        problem = problems.build_task_problem([(9, 1, 1)] * 8, edges)
        simulator = Simulator(problem, threads=1)
        self.assertEqual(simulator.simulate(propose(problem)).step_secs.min(), 5.0)


if __name__ == "__main__":
    absltest.main()
