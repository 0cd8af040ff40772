"""Tests of the comparison of searches of two checkouts, on answers made up by hand."""

from __future__ import annotations

import contextlib
import io
import json
import pathlib
from unittest import mock

from absl.testing import absltest

from benchmarks.speed import same_trials


class SameTrialsTest(absltest.TestCase):
    def setUp(self):
        super().setUp()
        self.folder = pathlib.Path(self.create_tempdir().full_path)

    def keep(self, checkout: int, steps: list[float], **changes) -> None:
        """Keeps a search, so that none is run."""
        answer = {"trials": 3, "assignment": [0, 1], "elapsed_secs": 1.0 + checkout} | changes
        directory = self.folder / str(checkout) / "chain-heft"
        (directory / "log").mkdir(parents=True, exist_ok=True)
        (directory / "answer.json").write_text(json.dumps(answer))
        samples = [[number, 0.1 * checkout, secs] for number, secs in enumerate(steps, 1)]
        (directory / "log" / "search.json").write_text(json.dumps({"samples": samples}))

    def compare(self) -> tuple[int, str]:
        argv = ["same_trials", "--checkouts", "a", "b", "--problems", "chain.json"]
        argv += ["--placers", "heft", "--out_dir", str(self.folder)]
        text = io.StringIO()
        with (
            mock.patch("sys.argv", argv),
            contextlib.redirect_stdout(text),
            self.assertRaises(SystemExit) as ended,
        ):
            same_trials.main()
        return int(ended.exception.code), text.getvalue()

    def test_searches_that_differ_in_time_only_are_the_same(self):
        self.keep(0, [3.0, 2.0, 2.5])
        self.keep(1, [3.0, 2.0, 2.5])
        status, text = self.compare()
        self.assertEqual(status, 0)
        self.assertRegex(text, r"chain +same 3\n")

    def test_other_results_and_other_steps_are_different(self):
        for steps, changes in (([3.0, 2.0, 2.6], {}), ([3.0, 2.0, 2.5], {"assignment": [1, 1]})):
            self.keep(0, [3.0, 2.0, 2.5])
            self.keep(1, steps, **changes)
            status, text = self.compare()
            self.assertEqual(status, 1)
            self.assertRegex(text, r"chain +DIFFERENT\n")


if __name__ == "__main__":
    absltest.main()
