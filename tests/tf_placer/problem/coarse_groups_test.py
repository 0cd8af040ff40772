import dataclasses

import numpy as np
from absl.testing import absltest

from tests.tf_placer.simulation.traces import make_problem
from tf_placer.problem.coarse_groups import coarse_assignment, coarse_problem, find_clusters
from tf_placer.simulation.simulator import Simulator


class FindClustersTest(absltest.TestCase):
    def test_finds_the_coarse_group_of_each_group(self):
        groups, coarse_groups = np.array([2, 0, 1, 2, 3, 0]), np.array([1, 0, 1, 1, 0, 0])
        clusters = find_clusters(groups, coarse_groups)
        self.assertEqual(clusters.tolist(), [0, 1, 1, 0])
        self.assertEqual(clusters.dtype, np.int32)
        np.testing.assert_array_equal(clusters[groups], coarse_groups)

    def test_a_group_without_operations_gets_the_coarse_group_of_operation_0(self):
        clusters = find_clusters(np.array([0, 0, 2, 2]), np.array([1, 1, 1, 1]))
        self.assertEqual(clusters.tolist(), [1, 1, 1])


class CoarseAssignmentTest(absltest.TestCase):
    def test_a_coarse_group_gets_the_device_with_most_of_its_groups(self):
        clusters = np.array([0, 0, 0, 1, 1, 2])
        found = coarse_assignment(np.array([2, 1, 2, 1, 0, 1]), clusters, 4, 3)
        # The last coarse group has no groups.
        self.assertEqual(found.tolist(), [2, 0, 1, 0])
        self.assertEqual(found.dtype, np.int32)


class CoarseProblemTest(absltest.TestCase):
    def test_a_coarse_placement_takes_the_time_of_the_groups_in_it(self):
        problem = dataclasses.replace(
            make_problem([[1.0, 2.0]] * 4, tensors=[(0, 8, [1]), (1, 8, [3])]),
            coarse_groups=[0, 2, 2, 0],
        )
        coarse, clusters = coarse_problem(problem)
        self.assertEqual(coarse.num_groups, 3)
        self.assertIsNone(coarse.coarse_groups)
        rows = np.array([[0, 0, 1], [1, 0, 0], [1, 0, 1]], np.int32)
        np.testing.assert_array_equal(
            Simulator(coarse).simulate(rows).step_secs,
            Simulator(problem).simulate(rows[:, clusters]).step_secs,
        )

    def test_a_problem_without_coarse_groups_is_returned_unchanged(self):
        problem = make_problem([[1.0, 2.0]] * 4, groups=[1, 0, 2, 0])
        coarse, clusters = coarse_problem(problem)
        self.assertIs(coarse, problem)
        self.assertEqual(clusters.tolist(), [0, 1, 2])


if __name__ == "__main__":
    absltest.main()
