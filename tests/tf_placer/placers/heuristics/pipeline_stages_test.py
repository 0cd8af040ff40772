import numpy as np
from absl.testing import absltest

from tests.tf_placer.placers import placer_conformance, problems
from tests.tf_placer.placers.heuristics.known_problems import measure_known_and_best
from tf_placer.placers.heuristics.pipeline_stages import PipelineStages
from tf_placer.problem.problem_groups import group_graph, legal_devices


def propose(problem):
    placer = PipelineStages(group_graph(problem), legal_devices(problem), problem=problem)
    return placer.propose(99)


class PipelineStagesTest(placer_conformance.PlacerConformance, absltest.TestCase):
    def new_placer(self, groups, legal, seed):
        problem = problems.build_group_problem(groups, np.ones([groups.num_groups, 3], np.bool_))
        return PipelineStages(groups, legal, seed=seed, problem=problem)

    def test_finds_the_pipelines_of_layered_graphs_without_names(self):
        for family in ("grid", "slow_links", "wide_grid", "encoder_decoder"):
            known_secs, found_secs = measure_known_and_best(family, 1500, propose)
            self.assertLessEqual(found_secs, 1.001 * known_secs, family)

    def test_puts_the_two_sides_of_a_u_on_the_same_devices(self):
        known_secs, found_secs = measure_known_and_best("u_shape", 3000, propose)
        self.assertLessEqual(found_secs, 1.03 * known_secs)

    def test_only_cpu_only_groups_are_on_the_cpu(self):
        inf = float("inf")
        problem = problems.build_task_problem(
            [(1, inf, inf), (1, 1, 1), (1, 1, 1), (1, 1, 1)], [(0, 1, 0), (1, 2, 0), (2, 3, 0)]
        )
        for placement in propose(problem).tolist():
            self.assertEqual(placement[0], 0)
            self.assertNotIn(0, placement[1:])

    def test_balances_groups_without_edges(self):
        problem = problems.build_task_problem([(1, 1, 1)] * 4)
        for placement in propose(problem).tolist():
            self.assertEqual(sorted(placement), [1, 1, 2, 2])

    def test_a_faster_device_gets_a_larger_stage(self):
        # Twelve equal chains of two operations; one device takes three times as long as the other.
        edges = [(2 * k, 2 * k + 1, 0) for k in range(12)]
        for secs, numbers in (((9, 1, 3), [0, 18, 6]), ((9, 3, 1), [0, 6, 18])):
            problem = problems.build_task_problem([secs] * 24, edges)
            for row in propose(problem):
                self.assertEqual(np.bincount(row).tolist(), numbers)


if __name__ == "__main__":
    absltest.main()
