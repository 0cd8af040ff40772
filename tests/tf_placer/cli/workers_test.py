"""Tests of commands with workers: errors before the start, and a search with two workers."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import json
import os
import unittest
from unittest import mock

from absl.testing import absltest

from tests.tf_placer.small_problem import small_problem
from tf_placer.cli import main as cli
from tf_placer.problem.problem_file import write_problem
from tf_placer.search.simulated_search import SIMULATED_TRIALS
from tf_placer.search.trial_log import read_log


class WorkersTest(absltest.TestCase):
    def setUp(self):
        super().setUp()
        self.directory = self.create_tempdir().full_path
        self.problem = os.path.join(self.directory, "problem.json")
        write_problem(small_problem(), self.problem)

    def call(self, *args: str) -> tuple[str, str]:
        """Runs a command; returns its output, and its error if it failed."""
        with contextlib.redirect_stdout(io.StringIO()) as output:
            try:
                cli.main(args)
            except SystemExit as error:
                return output.getvalue(), str(error.code)
        return output.getvalue(), ""

    def search(self, *args: str) -> tuple[dict, str]:
        result = os.path.join(self.directory, "result.json")
        _, error = self.call("search", f"--problem={self.problem}", f"--output={result}", *args)
        if error:
            return {}, error
        with open(result) as file:
            return json.load(file), ""

    def test_names_impossible_workers(self):
        found = mock.patch.object(importlib.util, "find_spec", return_value=object())
        self.enter_context(found)
        for args, message in (
            (["--workers=rays"], "there are no workers 'rays'"),
            (
                ["--workers=ray", "--num_workers=0"],
                "num_workers is a whole number, 1 at least, not 0",
            ),
            (["--num_workers=2"], "num_workers is for searches with workers"),
            (["--workers=ray", "--placer=random"], "--workers is for 'auto'"),
            (["--controllers=2"], "controllers is for searches with workers"),
            (
                ["--workers=ray", "--controllers=0"],
                "controllers is a whole number, 1 at least, not 0",
            ),
            (
                ["--workers=ray", "--controllers=2", "--placer=random"],
                "controllers=2 train a placer that learns, and 'random' does not",
            ),
            (
                ["--workers=ray", "--controllers=2", "--placer=warm_softmax"],
                "controllers=2 have no first placements to measure, which start='best' of ",
            ),
        ):
            self.assertIn(message, self.search(*args)[1])

    def test_names_the_package_to_install_if_ray_is_missing(self):
        with mock.patch.object(importlib.util, "find_spec", return_value=None):
            self.assertIn("pip install 'tf_placer[ray]'", self.search("--workers=ray")[1])
            self.assertIn("pip install 'tf_placer[ray]'", self.call("cluster", "start")[1])

    @unittest.skipIf(importlib.util.find_spec("ray") is None, "Ray is not installed")
    def test_two_workers_find_what_one_computer_finds(self):
        alone, _ = self.search("--max_trials=400")
        found, error = self.search("--max_trials=400", "--workers=ray", "--num_workers=2")
        self.assertEqual(error, "")
        self.assertEqual(found["step_secs"], alone["step_secs"])
        self.assertEqual(set(found), set(alone))

    @unittest.skipIf(importlib.util.find_spec("ray") is None, "Ray is not installed")
    def test_two_controllers_are_processes_of_their_own_and_leave_one_log(self):
        log_dir = os.path.join(self.directory, "run")
        options = ["--placer=post", "--placer_option=batch_size=4", f"--log_dir={log_dir}"]
        options += ["--workers=ray", "--controllers=2", "--placer_option=ce_samples=8"]
        found, error = self.search("--max_trials=30", *options)
        self.assertEqual(error, "")
        self.assertTrue(found["feasible"])
        _, trials = read_log(os.path.join(log_dir, SIMULATED_TRIALS))
        self.assertLen(trials, 30)
        best = min(t.measurement.median_secs for t in trials if t.measurement.step_secs)
        self.assertEqual(found["step_secs"], best)
        self.assertEqual({trial.controller for trial in trials[1:]}, {1, 2})
        shown, error = self.call("log", log_dir)
        self.assertEqual(error, "")
        self.assertRegex(shown, r"\d+ updates of the weights; staleness")


if __name__ == "__main__":
    absltest.main()
