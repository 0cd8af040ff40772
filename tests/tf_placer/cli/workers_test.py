"""Commands with workers: what is refused before anything starts, and a search with two."""

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


class WorkersTest(absltest.TestCase):
    def setUp(self):
        super().setUp()
        self.directory = self.create_tempdir().full_path
        self.problem = os.path.join(self.directory, "problem.json")
        write_problem(small_problem(), self.problem)

    def call(self, *args: str) -> tuple[str, str]:
        """Runs a command; returns what it printed and the sentence of its error, if it failed."""
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

    def test_workers_that_there_cannot_be_are_named(self):
        found = mock.patch.object(importlib.util, "find_spec", return_value=object())
        self.enter_context(found)
        for args, message in (
            (["--workers=rays"], "there are no workers 'rays'"),
            (["--workers=ray", "--num_workers=0"], "num_workers must be at least 1, not 0"),
            (["--num_workers=2"], "num_workers is for searches with workers"),
            (["--workers=ray", "--placer=random"], "--workers is for 'auto'"),
        ):
            self.assertIn(message, self.search(*args)[1])

    def test_without_ray_it_is_said_how_to_get_it(self):
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


if __name__ == "__main__":
    absltest.main()
