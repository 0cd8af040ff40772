"""Tests of searches that keep what they found when."""

from __future__ import annotations

import pathlib
import time
from unittest import mock

import numpy as np
from absl.testing import absltest

from benchmarks.harness import timed_search
from benchmarks.harness.timed_search import SearchBudget, thin_curve, time_search
from benchmarks.problems.small import SMALL_PROBLEMS, all_step_secs
from tf_placer.placers import make_placer
from tf_placer.placers.heuristics.candidate_list import CandidateList
from tf_placer.problem.problem_groups import group_graph, legal_devices
from tf_placer.simulation.simulator import Simulator

_LONG_SECS = 600.0
_CHAIN, _MEMORY = SMALL_PROBLEMS["two chains"], SMALL_PROBLEMS["memory"]


def _placer(name, problem, seed=0):
    return lambda: make_placer(name, group_graph(problem), legal_devices(problem), seed=seed)


def _make_listing(problem, rows):
    """A placer that proposes these placements one at a time."""
    candidates = np.array(rows, np.int32)
    return lambda: CandidateList(
        group_graph(problem), legal_devices(problem), seed=0, candidates=candidates
    )


def _step_secs(problem, rows):
    return Simulator(problem).simulate(np.array(rows, np.int32)).step_secs.tolist()


class TimedSearchTest(absltest.TestCase):
    def test_all_random_samples_find_the_optimum_of_a_small_problem(self):
        found = time_search(_CHAIN, _placer("random", _CHAIN), SearchBudget(_LONG_SECS, 3000))
        self.assertAlmostEqual(found.best_secs, all_step_secs(_CHAIN)[0])
        self.assertEqual((found.samples, found.ended), (3000, "samples"))

    def test_the_curve_has_the_sample_of_each_faster_step_and_no_other(self):
        rows = [[0] * 8, [0, 1] * 4, [0] * 4 + [1] * 4, [1] * 8]
        slow, worse, fast, slow_again = _step_secs(_CHAIN, rows)
        self.assertLess(fast, slow)
        self.assertLess(slow, worse)
        self.assertAlmostEqual(slow, slow_again)
        found = time_search(_CHAIN, _make_listing(_CHAIN, rows), SearchBudget(_LONG_SECS))
        self.assertEqual([(n, step) for n, _, step in found.curve], [(1, slow), (3, fast)])
        self.assertEqual((found.samples, found.ended), (4, "nothing more"))
        self.assertEqual(found.samples_to_best, 3)
        self.assertEqual(list(found.assignment), rows[2])
        self.assertAlmostEqual(found.mean_secs[0], np.mean([slow, worse, fast, slow_again]))

    def test_where_nothing_fits_nothing_is_found_and_all_samples_failed(self):
        found = time_search(
            _MEMORY, _make_listing(_MEMORY, [[0] * 8, [1] * 8]), SearchBudget(_LONG_SECS, 10)
        )
        self.assertEqual((found.samples, found.failures), (2, 2))
        self.assertEqual(list(found.window_failures), [2])
        self.assertIsNone(found.best_secs)
        self.assertIsNone(found.assignment)
        self.assertEqual((list(found.curve), list(found.mean_secs)), ([], [None]))

    def test_the_same_seed_finds_the_same_at_the_same_samples(self):
        runs = [
            time_search(_MEMORY, _placer("random", _MEMORY, 7), SearchBudget(_LONG_SECS, 200))
            for _ in range(2)
        ]
        curves = [[(n, step) for n, _, step in run.curve] for run in runs]
        self.assertEqual(*curves)
        self.assertEqual(runs[0].assignment, runs[1].assignment)

    def test_a_killed_search_of_a_learned_placer_goes_on_from_its_checkpoint(self):
        make = _placer("post", _CHAIN, 3)
        budget = SearchBudget(_LONG_SECS, 200)
        whole = time_search(_CHAIN, make, budget)

        class Killed(Exception):
            pass

        def make_killed():
            placer = make()
            observe = placer.observe

            def observe_or_kill(placements, measurements):
                if placer.state()["num_observed"] >= 100:
                    raise Killed
                observe(placements, measurements)

            placer.observe = observe_or_kill
            return placer

        checkpoint = pathlib.Path(self.create_tempdir().full_path, "run.npz")
        with mock.patch.object(timed_search, "_CHECKPOINT_SECS", 0.0):
            with self.assertRaises(Killed):
                time_search(_CHAIN, make_killed, budget, checkpoint=checkpoint)
            rest = time_search(_CHAIN, make, budget, checkpoint=checkpoint)
        for name in ("samples", "best_secs", "mean_secs", "assignment", "window_failures"):
            self.assertEqual(getattr(rest, name), getattr(whole, name), name)
        self.assertEqual(
            [(n, step) for n, _, step in rest.curve], [(n, step) for n, _, step in whole.curve]
        )
        self.assertFalse(checkpoint.exists())

    def test_samples_end_the_search_within_a_batch(self):
        found = time_search(_CHAIN, _placer("random", _CHAIN), SearchBudget(_LONG_SECS, 3))
        self.assertEqual((found.samples, found.ended), (3, "samples"))

    def test_what_is_found_after_the_time_does_not_count(self):
        def make():
            time.sleep(0.2)
            return _make_listing(_CHAIN, [[0] * 8])()

        found = time_search(_CHAIN, make, SearchBudget(0.1, is_wall=True))
        self.assertEqual((found.samples, found.ended), (0, "secs"))
        self.assertIsNone(found.best_secs)
        self.assertGreaterEqual(found.make_secs, 0.2)

    def test_a_curve_is_thinned_to_its_first_and_last_points_and_some_between(self):
        curve = [(n, float(n), 1000.0 - n) for n in range(1, 1001)]
        points = thin_curve(curve)
        self.assertLen(points, 200)
        self.assertEqual((points[0], points[-1]), (list(curve[0]), list(curve[-1])))
        self.assertEqual(thin_curve(curve[:2]), [list(point) for point in curve[:2]])
        self.assertEqual(thin_curve([]), [])

    def test_a_curve_has_no_gains_that_do_not_show_but_its_last(self):
        slow, hardly, faster, last = (1, 0.1, 1.0), (2, 0.2, 0.997), (3, 0.3, 0.99), (4, 0.4, 0.989)
        points = thin_curve([slow, hardly, faster, last])
        self.assertEqual(points, [list(slow), list(faster), list(last)])


if __name__ == "__main__":
    absltest.main()
