import collections
import math

import numpy as np
from absl.testing import absltest

from tests.tf_placer.simulation.traces import make_problem
from tf_placer.placers.auto.chain import Chain, ChainParameters
from tf_placer.placers.auto.levels import make_levels
from tf_placer.placers.auto.moves import KINDS, make_drawn_move, make_move_tables
from tf_placer.problem.problem_groups import group_graph, legal_devices
from tf_placer.simulation.simulator import Simulator

INF = math.inf
NUM_OTHERS = 20


def make_critical_pair(secs):
    """Makes operations 0 to 2 on two devices, beside many short ones on another two.

    Operation 0 sends its output to 2 for a second; operation 1 is on the device of 2.
    """
    problem = make_problem(
        [[each, each, INF, INF] for each in secs] + [[INF, INF, 0.1, 0.1]] * NUM_OTHERS,
        tensors=[(0, 1, [2])],
    )
    return problem, [0, 1, 1] + [2, 3] * (NUM_OTHERS // 2)


def count_first_groups(problem, placement, *, follows_critical_path=True):
    """Counts the groups of 600 moves of one group, drawn at that placement."""
    simulator, drawn = Simulator(problem, threads=1), make_drawn_move(problem.num_groups)
    legal = legal_devices(problem)
    chain = Chain(
        simulator.tables,
        make_move_tables(make_levels(group_graph(problem), []), legal, np.ones(len(legal))),
        drawn,
        np.random.default_rng(0),
        np.array([device.memory_bytes for device in problem.devices]),
        follows_critical_path=follows_critical_path,
    )
    groups = collections.Counter()
    while groups.total() < 600:
        chain.restart(np.array(placement, np.int32))
        chain.anneal(ChainParameters(1e-9, 0.0), 1, is_given=False, fitting_steps=0)
        if KINDS[drawn["kind"][0]] == "one":
            groups[int(drawn["groups"][0])] += 1
    return groups


class ChainTest(absltest.TestCase):
    def test_most_moves_begin_on_the_critical_path_by_duration(self):
        # The input of operation 2 arrives after 2 s, and its device is free after 3 s.
        groups = count_first_groups(*make_critical_pair([1.0, 3.0, 6.0]))
        self.assertGreater(groups[1] + groups[2], 0.7 * groups.total())
        self.assertBetween(groups[2] / groups[1], 1.5, 2.7)
        self.assertLess(groups[0], 0.1 * groups.total())

    def test_the_critical_path_includes_senders(self):
        # The device of operation 2 is free after 0.5 s, and its input arrives after 2 s, half of
        # which is the transfer.
        groups = count_first_groups(*make_critical_pair([1.0, 0.5, 2.0]))
        self.assertGreater(groups[0] + groups[2], 0.7 * groups.total())
        self.assertBetween(groups[2] / groups[0], 0.7, 1.4)
        self.assertLess(groups[1], 0.1 * groups.total())

    def test_moves_may_ignore_the_critical_path(self):
        groups = count_first_groups(
            *make_critical_pair([1.0, 3.0, 6.0]), follows_critical_path=False
        )
        self.assertLess(groups[1] + groups[2], 0.2 * groups.total())
        self.assertLen(groups, 3 + NUM_OTHERS)


if __name__ == "__main__":
    absltest.main()
