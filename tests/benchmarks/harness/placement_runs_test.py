"""Tests of runs that are kept in files, on small problems that stand for models."""

from __future__ import annotations

import dataclasses
import json
import pathlib
from unittest import mock

from absl.testing import absltest

from benchmarks.harness import placement_runs
from benchmarks.harness.placement_runs import Run, RunKey, run_all
from benchmarks.harness.run_pool import Ended
from benchmarks.harness.timed_search import SearchBudget
from benchmarks.problems.paper import ProblemKey
from benchmarks.problems.small import SMALL_PROBLEMS, all_step_secs
from tests.benchmarks.made_up_runs import write_small_problem
from tf_placer.problem.assignment_file import read_assignment

_BUDGET = SearchBudget(600.0, 200)
_RANDOM = RunKey("rnnlm_2", "2xK80", "random")
_SINGLE = RunKey("rnnlm_2", "2xK80", "single_device")


def _here(calls, jobs):
    """Runs calls in this process."""
    for index, call in enumerate(calls):
        call.function(*call.args)
        yield Ended(index, None)


class PlacementRunsTest(absltest.TestCase):
    def setUp(self):
        super().setUp()
        self.folder = pathlib.Path(self.create_tempdir().full_path)
        self.lines = []
        self.write_problem("heterogeneous")

    def write_problem(self, name, granularity="coarse"):
        key = ProblemKey("rnnlm_2", "2xK80", granularity)
        write_small_problem(key, self.folder / "problems", name)

    def run_all(self, keys, budget=_BUDGET, **settings):
        self.lines = []
        with mock.patch.object(placement_runs, "run_calls", _here):
            return run_all(keys, budget, self.folder, jobs=1, report=self.lines.append, **settings)

    def new_runs(self):
        """Which runs the last call made."""
        return [line.split(": ")[0].split("] ")[1] for line in self.lines if "] " in line]

    def test_a_run_finds_the_optimum_and_says_how(self):
        run = self.run_all([_RANDOM])[_RANDOM]
        problem = SMALL_PROBLEMS["heterogeneous"]
        self.assertAlmostEqual(run.found.best_secs, all_step_secs(problem)[0])
        self.assertLessEqual(run.lower_bound_secs, run.found.best_secs)
        self.assertAlmostEqual(run.lower_bound_secs + sum(run.losses.values()), run.found.best_secs)
        self.assertIn("tf_placer", run.versions)
        self.assertIsNone(run.failure)

    def test_auto_gets_all_of_the_budget_and_both_kinds_of_groups(self):
        self.write_problem("heterogeneous", "fine")
        run = self.run_all([RunKey("rnnlm_2", "2xK80", "auto")])
        [run] = run.values()
        self.assertIsNone(run.failure)
        problem = SMALL_PROBLEMS["heterogeneous"]
        self.assertAlmostEqual(run.found.best_secs, all_step_secs(problem)[0])
        self.assertEqual(run.found.curve[-1][-1], run.found.best_secs)

    def test_a_run_comes_back_from_its_file(self):
        run = self.run_all([_RANDOM])[_RANDOM]
        text = json.dumps(run.to_json())
        again = Run.from_json(json.loads(text))
        self.assertEqual(again, run)
        self.assertEqual(json.dumps(again.to_json()), text)
        # Those of earlier versions have no losses.
        before = {name: value for name, value in json.loads(text).items() if name != "losses"}
        self.assertEqual(Run.from_json(before), dataclasses.replace(run, losses=None))
        with self.assertRaisesRegex(ValueError, "format is 2"):
            Run.from_json({**run.to_json(), "format": 2})

    def test_the_file_of_a_run_is_an_assignment_for_simulate(self):
        run = self.run_all([_RANDOM])[_RANDOM]
        path = self.folder / _BUDGET.folder / _RANDOM.file_name
        problem = SMALL_PROBLEMS["heterogeneous"]
        assignment = read_assignment(str(path), problem, "problem.json")
        self.assertEqual(assignment.tolist(), list(run.found.assignment))

    def test_what_is_there_is_not_repeated_and_the_rest_is_made(self):
        seeds = [dataclasses.replace(_RANDOM, seed=seed) for seed in range(3)]
        first = self.run_all(seeds)
        self.assertLen(self.new_runs(), 3)
        (self.folder / _BUDGET.folder / seeds[1].file_name).unlink()
        again = self.run_all(seeds)
        self.assertEqual(self.new_runs(), ["rnnlm_2 2xK80 random (seed 1)"])
        self.assertEqual(list(again), seeds)
        for key in seeds:
            self.assertEqual(first[key].found.best_secs, again[key].found.best_secs)

    def test_each_run_is_handed_over_when_it_ended_or_was_found(self):
        self.run_all([_SINGLE])
        wrong = RunKey("rnnlm_2", "2xK80", "no_such_placer")
        given = []
        runs = self.run_all([_RANDOM, wrong, _SINGLE], ended=given.append)
        self.assertEqual([run.key for run in given], [_SINGLE, _RANDOM, wrong])
        for run in given:
            self.assertEqual(run, runs[run.key])

    def test_a_file_that_is_not_whole_is_made_again(self):
        self.run_all([_RANDOM])
        (self.folder / _BUDGET.folder / _RANDOM.file_name).write_text('{"format": 1, "ke')
        self.run_all([_RANDOM])
        self.assertLen(self.new_runs(), 1)

    def test_runs_of_another_problem_are_made_again(self):
        self.run_all([_RANDOM])
        self.write_problem("heterogeneous")
        self.run_all([_RANDOM])
        self.assertEmpty(self.new_runs())
        self.write_problem("fork and join")
        self.run_all([_RANDOM])
        self.assertLen(self.new_runs(), 1)

    def test_another_budget_has_runs_of_its_own(self):
        self.run_all([_RANDOM])
        few = self.run_all([_RANDOM], SearchBudget(600.0, 5))[_RANDOM]
        self.assertEqual(few.found.samples, 5)
        self.assertEqual(self.run_all([_RANDOM])[_RANDOM].found.samples, 200)
        self.assertEmpty(self.new_runs())

    def test_a_placer_that_cannot_be_made_is_a_row_with_its_message_and_tried_again(self):
        wrong = RunKey("rnnlm_2", "2xK80", "no_such_placer")
        runs = self.run_all([wrong, _SINGLE])
        self.assertIn("no placer 'no_such_placer'", runs[wrong].failure)
        self.assertIsNone(runs[wrong].found)
        self.assertIsNotNone(runs[_SINGLE].found)
        self.run_all([wrong, _SINGLE])
        self.assertEqual(self.new_runs(), ["rnnlm_2 2xK80 no_such_placer (seed 0)"])

    def test_a_missing_library_is_a_row_with_its_message(self):
        error = ImportError("pip install 'tf_placer[cpu]'")
        with mock.patch.object(placement_runs, "make_run_placer", side_effect=error):
            run = self.run_all([_SINGLE])[_SINGLE]
        self.assertEqual(run.failure, "pip install 'tf_placer[cpu]'")

    def test_a_process_that_dies_is_a_row_with_what_happened(self):
        def dies(calls, jobs):
            yield Ended(0, "its process died of SIGKILL")

        with mock.patch.object(placement_runs, "run_calls", dies):
            runs = run_all([_SINGLE], _BUDGET, self.folder, jobs=1, report=self.lines.append)
        self.assertEqual(runs[_SINGLE].failure, "its process died of SIGKILL")
        self.assertIn("died of SIGKILL", self.lines[-1])

    def test_a_model_that_cannot_be_built_fails_all_of_its_runs(self):
        with mock.patch.object(
            placement_runs, "make_problems", return_value={"rnnlm_2": "could not be made"}
        ):
            runs = self.run_all([_SINGLE, _RANDOM])
        self.assertEqual({run.failure for run in runs.values()}, {"could not be made"})

    def test_runs_are_made_in_processes_of_their_own(self):
        runs = run_all([_SINGLE, _RANDOM], _BUDGET, self.folder, jobs=2, report=self.lines.append)
        self.assertEqual([run.failure for run in runs.values()], [None, None])
        here = self.run_all([dataclasses.replace(_RANDOM)], SearchBudget(601.0, 200))
        self.assertEqual(here[_RANDOM].found.assignment, runs[_RANDOM].found.assignment)
        self.assertIn("left", self.lines[-1])

    def test_equal_time_is_for_one_run_at_a_time(self):
        with self.assertRaisesRegex(ValueError, "jobs must be 1"):
            run_all([_SINGLE], SearchBudget(1.0, is_wall=True), self.folder, jobs=2)

    def test_file_names_of_keys_that_differ_differ(self):
        keys = [
            _RANDOM,
            dataclasses.replace(_RANDOM, small=True),
            dataclasses.replace(_RANDOM, seed=1),
            dataclasses.replace(_RANDOM, options=(("file", "a/b"),)),
            dataclasses.replace(_RANDOM, options=(("file", "a b"),)),
            dataclasses.replace(_RANDOM, options=(("file", "a"),)),
        ]
        names = {key.file_name for key in keys}
        self.assertLen(names, len(keys))
        self.assertFalse(any("/" in name or " " in name for name in names))


if __name__ == "__main__":
    absltest.main()
