"""Tests of runs that are kept beside their tables."""

from __future__ import annotations

import dataclasses
import gzip
import pathlib

from absl.testing import absltest

from benchmarks.harness.kept_runs import KeptRuns
from benchmarks.harness.placement_runs import RunKey
from benchmarks.harness.timed_search import SearchBudget
from tests.benchmarks.made_up_runs import BUDGET, failed_run, run

_POST = RunKey("nmt_2", "2xK80", "post", (("optimizer", "adam"),), seed=1)
_HEFT = RunKey("nmt_2", "2xK80", "heft")


class KeptRunsTest(absltest.TestCase):
    def setUp(self):
        super().setUp()
        self._path = pathlib.Path(self.create_tempdir().full_path) / "runs.jsonl.gz"

    def test_another_process_finds_what_was_kept_but_the_placement(self):
        kept = KeptRuns(self._path)
        made = run(_POST, 0.5)
        kept.add(made)
        kept.add(run(_HEFT, None))
        again = KeptRuns(self._path)
        without = dataclasses.replace(made.found, assignment=None)
        self.assertEqual(again.get(_POST, BUDGET), dataclasses.replace(made, found=without))
        self.assertIsNone(again.get(_HEFT, BUDGET).found.best_secs)

    def test_a_run_takes_the_place_of_one_with_the_same_key(self):
        KeptRuns(self._path).add(run(_POST, 0.5))
        KeptRuns(self._path).add(run(_POST, 0.4))
        self.assertEqual(KeptRuns(self._path).get(_POST, BUDGET).found.best_secs, 0.4)
        self.assertLen(gzip.decompress(self._path.read_bytes()).splitlines(), 1)

    def test_runs_with_another_budget_or_key_are_not_found(self):
        kept = KeptRuns(self._path)
        kept.add(run(_POST, 0.5))
        self.assertIsNone(kept.get(_POST, SearchBudget(10.0)))
        self.assertIsNone(kept.get(dataclasses.replace(_POST, seed=2), BUDGET))

    def test_a_run_that_had_nothing_more_to_propose_is_good_for_other_budgets(self):
        kept = KeptRuns(self._path)
        made = run(_HEFT, 0.5, ended="nothing more", samples=100, search_secs=2.0)
        kept.add(made)
        for budget in (SearchBudget(2.0), SearchBudget(10.0, 100)):
            found = kept.get(_HEFT, budget)
            self.assertEqual(found, dataclasses.replace(made, budget=budget))
        for budget in (
            SearchBudget(1.9),
            SearchBudget(600.0, 99),
            SearchBudget(600.0, is_wall=True),
        ):
            self.assertIsNone(kept.get(_HEFT, budget))
        self.assertEqual(kept.get(_HEFT, BUDGET), made)

    def test_a_run_ended_by_what_both_budgets_have_is_good_for_the_other(self):
        by_secs = {"ended": "secs", "samples": 300, "search_secs": 61.0}
        by_samples = {"ended": "samples", "samples": 400, "search_secs": 50.0}
        for budget, ended, same, others in (
            (
                SearchBudget(60.0),
                by_secs,
                SearchBudget(60.0, 301),
                (SearchBudget(60.0, 300), SearchBudget(61.0, 301), SearchBudget(59.0)),
            ),
            (
                SearchBudget(600.0, 400),
                by_samples,
                SearchBudget(50.0, 400),
                (SearchBudget(600.0), SearchBudget(49.0, 400), SearchBudget(50.0, 401)),
            ),
        ):
            kept = KeptRuns(self._path)
            made = run(_POST, 0.5, budget=budget, **ended)
            kept.add(made)
            self.assertEqual(kept.get(_POST, same), dataclasses.replace(made, budget=same))
            for other in others:
                self.assertIsNone(kept.get(_POST, other))
            # "auto" would have shared the other budget out differently.
            auto = RunKey("nmt_2", "2xK80", "auto")
            kept.add(run(auto, 0.5, budget=budget, **ended))
            self.assertIsNone(kept.get(auto, same))

    def test_failed_runs_are_to_be_made_again(self):
        kept = KeptRuns(self._path)
        kept.add(failed_run(_POST, "scotch is not installed"))
        self.assertIsNone(kept.get(_POST, BUDGET))
        self.assertFalse(self._path.exists())

    def test_the_file_does_not_depend_on_the_order_of_the_runs(self):
        texts = []
        for keys in ((_POST, _HEFT), (_HEFT, _POST)):
            self._path.unlink(missing_ok=True)
            for key in keys:
                KeptRuns(self._path).add(run(key, 0.5))
            texts.append(self._path.read_bytes())
        self.assertEqual(texts[0], texts[1])

    def test_a_line_that_is_no_run_is_named(self):
        for line in ("{", "{}", "3", '{"format": 99}'):
            KeptRuns(self._path).add(run(_POST, 0.5))
            with gzip.open(self._path, "at") as file:
                file.write(line + "\n")
            with self.assertRaisesRegex(ValueError, "jsonl.gz, line 2: no run of this version"):
                KeptRuns(self._path)
            self._path.unlink()


if __name__ == "__main__":
    absltest.main()
