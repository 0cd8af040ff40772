import numpy as np
from absl.testing import absltest

from tests.tf_placer.placers import graphs, problems
from tf_placer.environments.environment import Failure, FailureKind, Measurement
from tf_placer.placers.heuristics.local_search import LocalSearch

_GROUPS = graphs.chain(4)
_EVERYWHERE = np.ones([4, 2], np.bool_)
_STARTS = [[1, 1, 1, 1], [0, 0, 0, 0], [0, 0, 1, 1], [1, 1, 0, 0]]


class _Recorder(LocalSearch):
    """Accepts every better placement, and records the arguments of `_judge`."""

    name = "recorder"

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.judged = []

    def _judge(self, placement, value, current):
        self.judged.append((placement.tolist(), value, current))
        if value < current:
            self._take(placement, value)


def _make_success(secs):
    return Measurement((secs,))


def _make_failure(kind=FailureKind.OUT_OF_MEMORY, peaks=None):
    return Measurement(failure=Failure(kind, "made up"), peak_bytes=peaks)


def _count_moved_groups(placements, start):
    return np.count_nonzero(placements != np.array(start), axis=1)


class LocalSearchTest(absltest.TestCase):
    def test_proposes_single_devices_and_contiguous_cuts_first(self):
        placer = _Recorder(_GROUPS, _EVERYWHERE)
        self.assertEqual(placer.propose(99).tolist(), _STARTS)
        placer.observe(placer.propose(3), [_make_success(1.0)] * 3)
        self.assertEqual(placer.propose(99).tolist(), _STARTS[3:])

    def test_moves_from_the_best_start(self):
        placer = _Recorder(_GROUPS, _EVERYWHERE)
        placer.observe(
            placer.propose(4),
            [_make_success(4.0), _make_success(3.0), _make_success(2.0), _make_success(3.0)],
        )
        self.assertEmpty(placer.judged)
        self.assertEqual(placer.best[1], (0, 2.0))
        moves = placer.propose(99)
        self.assertLen(moves, 99)
        self.assertGreater(_count_moved_groups(moves, _STARTS[2]).min(), 0)
        self.assertLessEqual(_count_moved_groups(moves, _STARTS[2]).max(), 3)
        self.assertGreater(len(np.unique(moves, axis=0)), 6)

    def test_judges_a_batch_in_order_against_the_current_placement(self):
        placer = _Recorder(_GROUPS, _EVERYWHERE)
        placer.observe(
            placer.propose(4),
            [_make_success(2.0), _make_success(3.0), _make_success(4.0), _make_success(3.0)],
        )
        moves = placer.propose(3)
        placer.observe(moves, [_make_success(1.5), _make_success(1.8), _make_success(1.0)])
        currents = [(0, 2.0), (0, 1.5), (0, 1.5)]
        self.assertEqual([current for _, _, current in placer.judged], currents)
        after = placer.propose(50)
        self.assertGreater(_count_moved_groups(after, moves[2]).min(), 0)
        self.assertEqual(placer.best[0].tolist(), moves[2].tolist())

    def test_placements_that_run_are_better_than_failures(self):
        problem = problems.build_task_problem([(1, 1)] * 4, memory_bytes=10)
        placer = _Recorder(_GROUPS, _EVERYWHERE, problem=problem)
        failures = [
            _make_failure(peaks=(12, 0)),
            _make_success(1e9),
            _make_failure(FailureKind.TIMEOUT),
            _make_failure(),
        ]
        placer.observe(placer.propose(4), failures)
        self.assertEqual(placer.best[1], (0, 1e9))
        self.assertEqual(placer.best[0].tolist(), _STARTS[1])

    def test_compares_failures_by_their_excess_bytes(self):
        problem = problems.build_task_problem([(1, 1)] * 4, memory_bytes=[10, 20])
        placer = _Recorder(_GROUPS, _EVERYWHERE, problem=problem)
        # The excess is 15, 30, 1 and 4 bytes.
        peaks = [(25, 0), (0, 50), (11, 20), (13, 21)]
        placer.observe(placer.propose(4), [_make_failure(peaks=each) for each in peaks])
        self.assertEqual(placer.best[1], (1, 1.0))
        self.assertEqual(placer.best[0].tolist(), _STARTS[2])

    def test_failures_are_equal_without_the_memory_of_the_devices(self):
        placer = _Recorder(_GROUPS, _EVERYWHERE)
        placer.observe(
            placer.propose(4), [_make_failure(peaks=(25, 0)), *[_make_failure(peaks=(1, 1))] * 3]
        )
        self.assertEqual(placer.best[1], (2, 0.0))
        self.assertEqual(placer.best[0].tolist(), _STARTS[0])

    def test_the_median_step_counts(self):
        placer = _Recorder(_GROUPS, _EVERYWHERE)
        placer.observe(placer.propose(1), [Measurement((9.0, 1.0, 2.0))])
        self.assertEqual(placer.best[1], (0, 2.0))

    def test_a_group_graph_without_choice_has_one_placement(self):
        legal = np.array([[1, 0], [0, 1], [1, 0], [0, 1]], np.bool_)
        placer = _Recorder(_GROUPS, legal)
        placements = placer.propose(9)
        self.assertEqual(placements.tolist(), [[0, 1, 0, 1]])
        placer.observe(placements, [_make_success(1.0)])
        self.assertEqual(placer.propose(9).shape, (0, 4))

    def test_moves_depend_on_the_seed_and_the_number_of_the_placement(self):
        placers = [_Recorder(_GROUPS, _EVERYWHERE, seed=seed) for seed in (1, 1, 2)]
        for placer in placers:
            placer.observe(placer.propose(4), [_make_success(1.0)] * 4)
        first, same, other = (placer.propose(20).tolist() for placer in placers)
        self.assertEqual(first, same)
        self.assertNotEqual(first, other)
        # A rejected move does not change the next ones.
        placers[0].observe(placers[0].propose(1), [_make_success(2.0)])
        self.assertEqual(placers[0].propose(19).tolist(), first[1:])


if __name__ == "__main__":
    absltest.main()
