import math

import numpy as np
from absl.testing import absltest

from tests.tf_placer.simulation import oracle
from tests.tf_placer.simulation.random_problems import random_problem
from tests.tf_placer.simulation.traces import make_problem
from tf_placer.problem.problem_groups import legal_devices
from tf_placer.simulation.join_bounds import earliest_starts, latest_rests

INF = math.inf


def fork_and_join(secs=1.0, size=2, **keywords):
    """Makes a problem in which 0 sends to 1 and 2, which send to 3; a byte takes a second."""
    return make_problem(
        [[secs, secs]] * 4, tensors=[(0, size, [1, 2]), (1, size, [3]), (2, size, [3])], **keywords
    )


class JoinBoundsTest(absltest.TestCase):
    def test_bounds_hold_for_every_placement(self):
        rng = np.random.default_rng(3)
        num_problems = num_later = 0
        while num_problems < 80:
            problem = random_problem(rng, max_operations=8)
            legal = legal_devices(problem)
            if legal.sum(axis=1).prod() > 10**6:
                continue
            num_problems += 1
            starts, rests = earliest_starts(problem), latest_rests(problem)
            for _ in range(10):
                placement = np.array([rng.choice(np.flatnonzero(row)) for row in legal])
                step = oracle.simulate(problem, placement)
                begin, end = np.array(step.start_secs), np.array(step.end_secs)
                rounding = 1e-12 * step.step_secs
                self.assertTrue((begin >= starts - rounding).all())
                self.assertTrue((step.step_secs - end >= rests - rounding).all())
                num_later += (begin <= starts + rounding).all()
        # The bounds are exact for some placements.
        self.assertGreater(num_later, 20)

    def test_a_join_takes_the_shorter_of_computing_in_turn_and_a_transfer(self):
        for size, expected in ((0, 2.0), (0.5, 2.5), (7, 3.0)):
            problem = fork_and_join(size=0, latency_secs=size)
            self.assertEqual(earliest_starts(problem)[3], expected)

    def test_a_fork_is_bounded_as_a_join_of_the_reversed_graph(self):
        problem = fork_and_join(size=0, latency_secs=0.5)
        self.assertEqual(latest_rests(problem).tolist(), earliest_starts(problem)[::-1].tolist())

    def test_a_whole_chain_into_a_join_is_on_one_device_or_another(self):
        # Two chains of three seconds each end in operation 6; a transfer takes ten.
        problem = make_problem(
            [[1.0, 1.0]] * 7,
            control_edges=[(0, 1), (1, 2), (3, 4), (4, 5), (2, 6), (5, 6)],
            latency_secs=10.0,
        )
        self.assertEqual(earliest_starts(problem)[6], 6.0)

    def test_other_inputs_and_outputs_do_not_end_a_chain(self):
        # The chains of the test above, but operation 7 comes first, and 8 waits for all of them.
        problem = make_problem(
            [[1.0, 1.0]] * 7 + [[0.25, 0.25]] * 2,
            control_edges=[(0, 1), (1, 2), (3, 4), (4, 5), (2, 6), (5, 6)]
            + [(7, k) for k in (1, 2, 4, 5)]
            + [(k, 8) for k in range(6)],
            latency_secs=10.0,
        )
        self.assertEqual(earliest_starts(problem)[6], 6.0)

    def test_a_chain_may_be_sent_behind_its_first_operation(self):
        # One chain is cheap to send behind its first operation. The other device runs that
        # operation while this one runs the other chain.
        problem = make_problem(
            [[1.0, 1.0]] * 7,
            tensors=[
                (0, 1, [1]),
                (1, 10, [2]),
                (2, 10, [6]),
                (3, 10, [4]),
                (4, 10, [5]),
                (5, 10, [6]),
            ],
        )
        self.assertEqual(earliest_starts(problem)[6], 5.0)
        step = oracle.simulate(problem, np.array([1, 0, 0, 0, 0, 0, 0]))
        self.assertEqual(step.start_secs[6], 5.0)

    def test_slots_run_two_operations_at_a_time(self):
        problem = fork_and_join(size=0, latency_secs=9.0, slots=[2, 2])
        self.assertEqual(earliest_starts(problem)[3], 2.0)

    def test_a_group_is_on_one_device(self):
        problem = fork_and_join(size=0, latency_secs=0.25, groups=[0, 1, 1, 1])
        self.assertEqual(earliest_starts(problem)[3], 3.0)

    def test_operations_without_a_common_device_need_a_transfer(self):
        problem = make_problem([[1.0, INF], [INF, 1.0]], tensors=[(0, 3, [1])], latency_secs=0.5)
        self.assertGreaterEqual(earliest_starts(problem)[1], 1.5)
        self.assertEqual(latest_rests(problem)[0], earliest_starts(problem)[1])

    def test_one_device_has_no_links(self):
        problem = make_problem([[1.0]] * 3, control_edges=[(0, 2), (1, 2)])
        self.assertEqual(earliest_starts(problem).tolist(), [0.0, 0.0, 2.0])


if __name__ == "__main__":
    absltest.main()
