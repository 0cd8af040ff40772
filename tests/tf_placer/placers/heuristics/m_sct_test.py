import numpy as np
from absl.testing import absltest

from tests.tf_placer.placers import placer_conformance, problems
from tf_placer.placers.heuristics.m_etf import MEtf
from tf_placer.placers.heuristics.m_sct import MSct
from tf_placer.problem.problem_groups import group_graph, legal_devices


class MSctTest(placer_conformance.PlacerConformance, absltest.TestCase):
    def new_placer(self, groups, legal, seed):
        problem = problems.build_group_problem(groups, np.ones([groups.num_groups, 3], np.bool_))
        return MSct(groups, legal, seed=seed, problem=problem)

    def test_a_device_waits_for_a_favorite_child(self):
        # Operation 2 is the favorite of 0, and ready on device 1 at 4. Operation 3 is ready there
        # at 2, and on the other device at 22, which is before device 1 is free again.
        inf = float("inf")
        secs = [(inf, 2, inf), (inf, inf, 3), (inf, 20, 20), (inf, 9, 9)]
        problem = problems.build_task_problem(secs, [(0, 2, 5), (1, 2, 1), (0, 3, 20)])
        first = {
            placer.name: placer(group_graph(problem), legal_devices(problem), problem=problem)
            .propose(1)[0]
            .tolist()
            for placer in (MEtf, MSct)
        }
        self.assertEqual(first, {"m_etf": [1, 2, 2, 1], "m_sct": [1, 2, 1, 2]})


if __name__ == "__main__":
    absltest.main()
