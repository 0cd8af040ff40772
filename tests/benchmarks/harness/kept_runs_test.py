"""Tests of runs that are kept beside their tables."""

from __future__ import annotations

import dataclasses
import lzma
import pathlib
from unittest import mock

from absl.testing import absltest

from benchmarks.harness import kept_runs
from benchmarks.harness.kept_runs import KeptRuns, read_or_make_runs
from benchmarks.harness.placement_runs import RunKey
from benchmarks.harness.timed_search import SearchBudget
from tests.benchmarks.made_up_runs import BUDGET, make_failed_run, run

_POST = RunKey("nmt_2", "2xK80", "post", (("optimizer", "adam"),), seed=1)
_HEFT = RunKey("nmt_2", "2xK80", "heft")


class KeptRunsTest(absltest.TestCase):
    def setUp(self):
        super().setUp()
        self._path = pathlib.Path(self.create_tempdir().full_path) / "runs.jsonl.xz"

    def test_another_process_finds_what_was_kept_but_the_placement(self):
        kept = KeptRuns(self._path)
        made = run(_POST, 0.5)
        kept.add(made)
        kept.add(run(_HEFT, None))
        again = KeptRuns(self._path)
        without = dataclasses.replace(made.found, assignment=None)
        self.assertEqual(again.get(_POST, BUDGET), dataclasses.replace(made, found=without))
        self.assertIsNone(again.get(_HEFT, BUDGET).found.best_secs)

    def test_runs_with_former_names_of_options_are_found(self):
        former = (("penalty_secs", "9"), ("signal", "sqrt"), ("start", "best"))
        today = (("failure_secs", "9"), ("reward", "sqrt"), ("start", "best"))
        KeptRuns(self._path).add(run(dataclasses.replace(_POST, options=former), 0.5))
        kept = KeptRuns(self._path).get(dataclasses.replace(_POST, options=today), BUDGET)
        self.assertEqual(kept.found.best_secs, 0.5)

    def test_a_run_takes_the_place_of_one_with_the_same_key(self):
        KeptRuns(self._path).add(run(_POST, 0.5))
        KeptRuns(self._path).add(run(_POST, 0.4))
        [kept] = KeptRuns(self._path).runs
        self.assertEqual(kept.found.best_secs, 0.4)

    def test_runs_with_another_budget_or_key_are_not_found(self):
        kept = KeptRuns(self._path)
        kept.add(run(_POST, 0.5))
        self.assertIsNone(kept.get(_POST, SearchBudget(10.0)))
        self.assertIsNone(kept.get(dataclasses.replace(_POST, seed=2), BUDGET))

    def test_a_line_that_is_no_run_is_named(self):
        for line in ("{", "{}", "3", '{"format": 99}'):
            KeptRuns(self._path).add(run(_POST, 0.5))
            with lzma.open(self._path, "at") as file:
                file.write(line + "\n")
            with self.assertRaisesRegex(ValueError, "jsonl.xz, line 2: no run of this version"):
                KeptRuns(self._path)
            self._path.unlink()

    def test_what_is_kept_is_not_made_again_but_what_failed_is(self):
        asked = []

        def run_all(keys, budget, runs_dir, *, jobs, ended):
            asked.append(keys)
            runs = {_POST: make_failed_run(_POST, "not installed"), _HEFT: run(_HEFT, 0.5, budget)}
            for key in keys:
                ended(runs[key])
            return {key: runs[key] for key in keys}

        with mock.patch.object(kept_runs, "run_all", run_all):
            for _ in range(2):
                runs = read_or_make_runs([_POST, _HEFT, _POST], BUDGET, self._path, "", jobs=1)
                self.assertEqual(runs[_POST].failure, "not installed")
                self.assertEqual(runs[_HEFT].found.best_secs, 0.5)
            runs = read_or_make_runs([_POST, _HEFT], BUDGET, self._path, "", jobs=1, only_kept=True)
        self.assertEqual(asked, [[_POST, _HEFT], [_POST]])
        self.assertEqual(list(runs), [_HEFT])


if __name__ == "__main__":
    absltest.main()
