"""Tests of the errors of a search that runs in a process of its own."""

from __future__ import annotations

from unittest import mock

from absl.testing import absltest

from tests.tf_placer.scripted import trial
from tf_placer.errors import SearchError
from tf_placer.live import process
from tf_placer.runs.run_directory import RunDirectory
from tf_placer.search.callbacks import Callback
from tf_placer.search.trial_log import TrialLog


class RunSearchTest(absltest.TestCase):
    def setUp(self):
        super().setUp()
        self.directory = RunDirectory(self.create_tempdir().full_path)
        self.enter_context(mock.patch.object(process, "ChildProcess"))

    def fail_with(self, kind: str) -> str:
        """Runs a search that sends an error, and returns the message for users."""
        answer = [{"error": "the workers do not start", "kind": kind}]
        with (
            mock.patch.object(process, "await_message", return_value=answer),
            self.assertRaises(process._ERRORS.get(kind, SearchError)) as raised,
        ):
            process.run_search(self.directory, "asked", Callback(), 0.0)
        return str(raised.exception)

    def test_a_failed_search_names_the_log_of_its_trials(self):
        with TrialLog(self.directory.trials, {"seed": 0}) as log:
            log.append(trial(0, None))
            log.append(trial(1, [0]))
        path = str(self.directory.path)
        self.assertEqual(
            self.fail_with(""),
            f"the workers do not start; every finished trial is in {self.directory.trials}: the "
            f"same call with log_dir={path!r} resumes there",
        )
        # Another error is about the request.
        self.assertEqual(self.fail_with("ValueError"), "the workers do not start")

    def test_a_search_without_placements_names_no_log(self):
        self.assertEqual(self.fail_with(""), "the workers do not start")


if __name__ == "__main__":
    absltest.main()
