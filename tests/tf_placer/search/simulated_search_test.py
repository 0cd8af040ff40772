"""Tests of the simulated search."""

from __future__ import annotations

import itertools
import os
from unittest import mock

import numpy as np
from absl.testing import absltest, parameterized

from tests.tf_placer import doubles
from tests.tf_placer.small_problem import (
    BEST,
    ILLEGAL,
    LOWER_BOUND_SECS,
    PEAKS,
    STEPS,
    build_layered_problem,
    small_problem,
    without_memory,
)
from tf_placer.environments.environment import FailureKind
from tf_placer.environments.simulated import SimulatedEnvironment
from tf_placer.errors import SearchError
from tf_placer.placers import make_placer
from tf_placer.placers.placer import Placer
from tf_placer.problem.problem_groups import group_graph, legal_devices
from tf_placer.search import simulated_search
from tf_placer.search.simulated_search import search_problem
from tf_placer.search.trial_log import TrialLog


class FakeClock:
    """A fake module `time` whose clock stands still until a test advances it."""

    def __init__(self):
        self.now_secs = 1000.0

    def monotonic(self):
        return self.now_secs


class Scripted(Placer):
    """A placer that proposes given batches, then nothing, and records its observations."""

    name = "scripted"

    def __init__(self, problem, *batches, before_batch=lambda: None):
        super().__init__(group_graph(problem), np.ones_like(legal_devices(problem)), seed=5)
        self.batch_size = max([1, *map(len, batches)])
        self._batches = batches
        self._before_batch = before_batch
        self.observed = []

    def propose(self, count):
        self._before_batch()
        if len(self.observed) == len(self._batches):
            return np.zeros([0, self.groups.num_groups], np.int32)
        return np.array(self._batches[len(self.observed)], np.int32)[:count]

    def observe(self, placements, measurements):
        self.observed.append((placements.tolist(), list(measurements)))


def build_placer(problem, name="random", seed=0):
    return make_placer(name, group_graph(problem), legal_devices(problem), seed=seed)


def search(problem, placer, max_trials=100, max_secs=3600.0, **kwargs):
    return search_problem(problem, placer, max_trials=max_trials, max_secs=max_secs, **kwargs)


class BestPlacementTest(parameterized.TestCase):
    @parameterized.parameters("random", "single_device")
    def test_finds_the_best_proposed_placement(self, name):
        problem = small_problem()
        outcome = search(problem, build_placer(problem, name))
        self.assertEqual(outcome.assignment, BEST)
        self.assertEqual(outcome.step_secs, STEPS[BEST])
        self.assertEqual(outcome.peak_bytes, PEAKS[BEST])
        self.assertAlmostEqual(outcome.lower_bound_secs, LOWER_BOUND_SECS)
        self.assertEqual((outcome.placer, outcome.seed), (name, 0))
        self.assertTrue(outcome.feasible)
        self.assertFalse(outcome.interrupted)

    def test_finds_the_best_of_all_placements_if_all_are_proposed(self):
        for seed in range(5):
            problem = build_layered_problem(4, 3, seed)
            everything = np.array(list(itertools.product(range(3), repeat=4)), np.int32)
            measured = SimulatedEnvironment(problem).measure(everything)
            expected = min(range(81), key=lambda i, m=measured: m[i].median_secs)
            outcome = search(problem, Scripted(problem, everything[:50], everything[50:]))
            self.assertEqual(outcome.assignment, tuple(everything[expected]))
            self.assertEqual(outcome.step_secs, measured[expected].median_secs)

    def test_ties_go_to_the_earlier_placement(self):
        problem = small_problem()
        for rows in itertools.permutations([(0, 0, 1), (0, 1, 0), (0, 0, 0)]):
            expected = next(row for row in rows if STEPS[row] == 5.0)
            for batches in ([rows], [[row] for row in rows]):
                outcome = search(problem, Scripted(problem, *batches))
                self.assertEqual(outcome.assignment, expected)

    def test_the_best_is_the_fastest_feasible_placement(self):
        problem = small_problem(gpu_bytes=29)
        outcome = search(problem, build_placer(problem))
        self.assertEqual((outcome.assignment, outcome.feasible), ((0, 1, 0), True))

    def test_a_feasible_placement_beats_an_infeasible_one_in_any_order(self):
        problem = small_problem(gpu_bytes=29)
        for rows in itertools.permutations([ILLEGAL, BEST, (0, 0, 1), (0, 0, 0)]):
            outcome = search(problem, Scripted(problem, *([row] for row in rows)))
            self.assertEqual((outcome.assignment, outcome.feasible), ((0, 0, 0), True))

    def test_without_a_feasible_placement_the_best_exceeds_memory_by_the_fewest_bytes(self):
        # The placements exceed the memories by 9 + 0, 0 + 25, 9 + 5 and 0 + 25 bytes.
        problem = small_problem(cpu_bytes=31, gpu_bytes=5)
        for rows in itertools.permutations([ILLEGAL, *STEPS]):
            outcome = search(problem, Scripted(problem, *([row] for row in rows)))
            self.assertEqual((outcome.assignment, outcome.feasible), ((0, 0, 0), False))
            self.assertEqual((outcome.step_secs, outcome.peak_bytes), (9.0, (40, 0)))

    def test_a_placement_that_cannot_be_simulated_has_no_step_time(self):
        problem = small_problem()
        outcome = search(problem, Scripted(problem, [ILLEGAL]))
        self.assertEqual((outcome.step_secs, outcome.feasible), (None, False))
        self.assertEqual(outcome.assignment, ILLEGAL)

    def test_json_has_the_entries_that_other_programs_read(self):
        problem = small_problem()
        value = search(problem, build_placer(problem, "single_device", seed=7)).to_json()
        elapsed_secs = value.pop("elapsed_secs")
        self.assertGreaterEqual(elapsed_secs, 0)
        self.assertAlmostEqual(value.pop("lower_bound_secs"), LOWER_BOUND_SECS)
        self.assertEqual(
            value,
            {
                "step_secs": 4.5,
                "feasible": True,
                "assignment": [0, 1, 1],
                "peak_bytes": [20, 30],
                "trials": 2,
                "placer": "single_device",
                "seed": 7,
            },
        )


class SearchLoopTest(parameterized.TestCase):
    def test_placers_observe_each_batch(self):
        problem = small_problem(gpu_bytes=29)
        placer = Scripted(problem, [(0, 0, 0), BEST], [ILLEGAL], [(0, 1, 0)])
        outcome = search(problem, placer)
        self.assertEqual(outcome.trials, 4)
        self.assertEqual(
            [rows for rows, _ in placer.observed],
            [[[0, 0, 0], [0, 1, 1]], [[1, 1, 1]], [[0, 1, 0]]],
        )
        first, second = placer.observed[0][1]
        self.assertEqual(first.step_secs, (9.0,))
        self.assertEqual(second.failure.kind, FailureKind.OUT_OF_MEMORY)
        self.assertEqual(placer.observed[1][1][0].failure.kind, FailureKind.INVALID_PLACEMENT)

    def test_observed_is_called_before_report(self):
        problem, told = small_problem(), []
        placer = Scripted(problem, [(0, 0, 0), BEST], [(0, 1, 0)])
        search(
            problem,
            placer,
            report=lambda outcome, _: told.append(outcome.trials),
            observed=lambda observer: told.append((observer.name, len(observer.observed))),
        )
        self.assertEqual(told, [("scripted", 1), 2, ("scripted", 2), 3])

    @parameterized.parameters(1, 7, 64, 65, 200)
    def test_the_budget_in_trials_is_exact(self, max_trials):
        problem = small_problem()
        self.assertEqual(search(problem, build_placer(problem), max_trials).trials, max_trials)

    def test_ends_when_nothing_more_is_proposed(self):
        problem = small_problem()
        outcome = search(problem, build_placer(problem, "single_device"), max_trials=1000)
        self.assertEqual(outcome.trials, 2)

    def test_no_batch_starts_after_the_seconds_are_over(self):
        problem, clock = build_layered_problem(6, 3), FakeClock()

        class Slow(doubles.AdaptivePlacer):
            def propose(self, count):
                clock.now_secs += 10
                return super().propose(count)

        with mock.patch.object(simulated_search, "time", clock):
            for max_secs, trials in ((15.0, 8), (25.0, 8), (28.0, 12)):
                # A batch may end up to a tenth after the limit; the first says half of its time.
                outcome = search(problem, Slow("slow", 4), max_secs=max_secs)
                self.assertEqual((outcome.trials, outcome.elapsed_secs), (trials, 2.5 * trials))

    def test_the_first_batch_always_runs(self):
        problem = small_problem()
        outcome = search(problem, build_placer(problem), max_secs=1e-9)
        self.assertEqual(outcome.trials, 64)

    def test_the_same_seed_gives_the_same_outcome(self):
        problem = build_layered_problem(30, 4)

        def run_seed(seed):
            outcome = search(problem, build_placer(problem, seed=seed), max_trials=150)
            return outcome.assignment, outcome.step_secs, outcome.peak_bytes, outcome.trials

        self.assertEqual(run_seed(3), run_seed(3))
        self.assertNotEqual(run_seed(3)[0], run_seed(4)[0])

    def test_more_trials_of_a_seed_are_never_worse(self):
        problem = build_layered_problem(30, 4)
        steps = [search(problem, build_placer(problem), n).step_secs for n in (10, 70, 300, 1000)]
        self.assertEqual(steps, sorted(steps, reverse=True))

    def test_reports_the_outcome_so_far_and_the_eta_after_each_batch(self):
        problem, clock, reports = build_layered_problem(6, 3), FakeClock(), []

        class Slow(doubles.AdaptivePlacer):
            def propose(self, count):
                clock.now_secs += 10
                return super().propose(count)

        def report(outcome, eta_secs):
            reports.append((outcome.trials, outcome.elapsed_secs, eta_secs))

        with mock.patch.object(simulated_search, "time", clock):
            outcome = search(problem, Slow("slow", 4), 14, 37.0, report=report)
        # The trials leave 25, 15, 5 and 0 s, and the clock 2 s more.
        self.assertEqual(
            reports, [(4, 10.0, 25.0), (8, 20.0, 15.0), (12, 30.0, 5.0), (14, 40.0, 0.0)]
        )
        self.assertEqual(outcome.trials, 14)

    def test_an_interrupt_ends_the_search_with_the_best_so_far(self):
        problem = small_problem()

        def report(outcome, eta_secs):
            if outcome.trials >= 3:
                raise KeyboardInterrupt

        batches = [[(0, 0, 0)], [BEST], [(0, 0, 1)], [(0, 1, 0)]]
        outcome = search(problem, Scripted(problem, *batches), report=report)
        self.assertEqual((outcome.assignment, outcome.trials), (BEST, 3))
        self.assertTrue(outcome.interrupted)

    def test_an_interrupt_during_the_first_batch_is_raised(self):
        problem = small_problem()

        def interrupt():
            raise KeyboardInterrupt

        with self.assertRaises(KeyboardInterrupt):
            search(problem, Scripted(problem, [BEST], before_batch=interrupt))

    def test_refuses_invalid_budgets(self):
        problem = small_problem()
        for max_trials, max_secs, message in (
            (0, 1.0, "max_trials must be at least 1, not 0"),
            (5, 0.0, "max_secs must be positive, not 0.0"),
            (5, float("nan"), "max_secs must be positive, not nan"),
        ):
            with self.assertRaisesRegex(ValueError, message):
                search(problem, build_placer(problem), max_trials, max_secs)

    def test_refuses_placers_that_propose_nothing_or_too_much(self):
        problem = small_problem()
        with self.assertRaisesRegex(ValueError, "'scripted' has no placement to propose"):
            search(problem, Scripted(problem))

        class Greedy(Scripted):
            def propose(self, count):
                return np.zeros([count + 1, 3], np.int32)

        with self.assertRaisesRegex(SearchError, r"'scripted' was asked for up to 1 .*\(2, 3\)"):
            search(problem, Greedy(problem))

    def test_without_memory_no_placement_is_feasible(self):
        problem = without_memory(build_layered_problem(6, 3))
        outcome = search(problem, build_placer(problem), max_trials=10)
        self.assertFalse(outcome.feasible)
        self.assertGreater(outcome.step_secs, 0)

    def test_a_search_resumes_from_its_log(self):
        problem = build_layered_problem(30, 4)
        directory = self.create_tempdir().full_path

        def run_search(name, max_trials):
            path = os.path.join(directory, name)
            with TrialLog(path, {}) as log:
                outcome = search(problem, build_placer(problem), max_trials, log=log)
                rows = [trial.assignment for trial in log.trials]
            return rows, (outcome.assignment, outcome.step_secs, outcome.trials)

        self.assertLen(run_search("cut", 40)[0], 40)
        expected = run_search("whole", 100)
        self.assertEqual(run_search("cut", 100), expected)
        rows, (best, step_secs, trials) = expected
        self.assertEqual((rows[0], trials), (None, 100))
        first = np.argmax(legal_devices(problem), axis=1)
        rows = [first, *rows[1:]]
        secs = [m.median_secs for m in SimulatedEnvironment(problem).measure(np.array(rows))]
        self.assertEqual((tuple(rows[int(np.argmin(secs))]), min(secs)), (best, step_secs))


if __name__ == "__main__":
    absltest.main()
