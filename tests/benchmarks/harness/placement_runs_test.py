"""Tests of runs, on small problems that stand for models."""

from __future__ import annotations

import contextlib
import dataclasses
import io
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


def _dies(calls, jobs):
    yield Ended(0, "its process died of SIGKILL")


class PlacementRunsTest(absltest.TestCase):
    def setUp(self):
        super().setUp()
        self.folder = pathlib.Path(self.create_tempdir().full_path)
        for granularity in ("coarse", "fine"):
            key = ProblemKey("rnnlm_2", "2xK80", granularity)
            write_small_problem(key, self.folder / "problems", "heterogeneous")
        self.optimum_secs = all_step_secs(SMALL_PROBLEMS["heterogeneous"])[0]

    def run_all(self, *keys, calls=_here, **settings):
        with (
            mock.patch.object(placement_runs, "run_calls", calls),
            contextlib.redirect_stdout(io.StringIO()),
        ):
            return run_all(keys, _BUDGET, self.folder, jobs=1, **settings)

    def test_a_run_finds_the_optimum_and_says_how(self):
        run = self.run_all(_RANDOM)[_RANDOM]
        self.assertAlmostEqual(run.found.best_secs, self.optimum_secs)
        self.assertLessEqual(run.lower_bound_secs, run.found.best_secs)
        self.assertAlmostEqual(run.lower_bound_secs + sum(run.losses.values()), run.found.best_secs)
        self.assertIsNone(run.failure)

    def test_auto_gets_all_of_the_budget_and_both_kinds_of_groups(self):
        [run] = self.run_all(RunKey("rnnlm_2", "2xK80", "auto")).values()
        self.assertIsNone(run.failure)
        self.assertAlmostEqual(run.found.best_secs, self.optimum_secs)
        self.assertEqual(run.found.curve[-1][-1], run.found.best_secs)

    def test_a_run_comes_back_from_its_file(self):
        run = self.run_all(_RANDOM)[_RANDOM]
        text = json.dumps(run.to_json())
        again = Run.from_json(json.loads(text))
        self.assertEqual(again, run)
        self.assertEqual(json.dumps(again.to_json()), text)
        # Those of earlier versions have neither losses nor a commit.
        before = json.loads(text)
        del before["losses"], before["commit"]
        self.assertEqual(Run.from_json(before), dataclasses.replace(run, losses=None, commit=None))

    def test_the_file_of_a_run_is_an_assignment_for_simulate(self):
        run = self.run_all(_RANDOM)[_RANDOM]
        path = self.folder / _BUDGET.folder / _RANDOM.file_name
        problem = SMALL_PROBLEMS["heterogeneous"]
        assignment = read_assignment(str(path), problem, "problem.json")
        self.assertEqual(assignment.tolist(), list(run.found.assignment))

    def test_what_fails_is_a_run_with_its_message_and_stops_no_other(self):
        wrong = RunKey("rnnlm_2", "2xK80", "no_such_placer")
        given = []
        runs = self.run_all(wrong, _SINGLE, ended=given.append)
        self.assertIn("no_such_placer", runs[wrong].failure)
        self.assertIsNone(runs[wrong].found)
        self.assertIsNotNone(runs[_SINGLE].found)
        self.assertEqual(given, list(runs.values()))
        run = self.run_all(_SINGLE, calls=_dies)[_SINGLE]
        self.assertEqual(run.failure, "its process died of SIGKILL")
        broken = {"rnnlm_2": "could not be made"}
        with mock.patch.object(placement_runs, "make_problems", return_value=broken):
            run = self.run_all(_SINGLE)[_SINGLE]
        self.assertEqual(run.failure, "could not be made")

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
