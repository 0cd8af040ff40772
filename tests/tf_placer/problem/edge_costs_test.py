import dataclasses

import numpy as np
from absl.testing import absltest

from tests.tf_placer.small_problem import small_problem
from tf_placer.problem.edge_costs import edge_secs
from tf_placer.problem.problem_groups import group_graph


class EdgeCostsTest(absltest.TestCase):
    def test_an_edge_takes_latency_and_bytes_of_the_average_link(self):
        problem = small_problem()
        slow = dataclasses.replace(problem.links[1], latency_secs=1.5, bandwidth_bytes_per_sec=2.0)
        problem = dataclasses.replace(problem, links=(problem.links[0], slow))
        # The average latency is 1 s; 10 bytes take 0.1 or 0.5 s each.
        secs = edge_secs(problem, group_graph(problem))
        np.testing.assert_allclose(secs, [4.0, 4.0])

    def test_sending_takes_no_time_if_there_is_one_device(self):
        problem = small_problem()
        alone = dataclasses.replace(
            problem, devices=problem.devices[:1], links=(), compute_secs=problem.compute_secs[:, :1]
        )
        np.testing.assert_array_equal(edge_secs(alone, group_graph(alone)), [0.0, 0.0])


if __name__ == "__main__":
    absltest.main()
