"""Tests of the errors of a search that runs in a process of its own."""

from __future__ import annotations

import math
import signal
import time
from unittest import mock

from absl.testing import absltest

from tests.tf_placer.scripted import trial
from tf_placer.errors import SearchError
from tf_placer.live import process
from tf_placer.live.messages import MessageSender
from tf_placer.report.progress import ProgressPrinter
from tf_placer.runs.run_directory import RunDirectory
from tf_placer.search.budget import Budget, Progress
from tf_placer.search.callbacks import Callback
from tf_placer.search.trial_log import TrialLog


class RunSearchTest(absltest.TestCase):
    def setUp(self):
        super().setUp()
        self.directory = RunDirectory(self.create_tempdir().full_path)
        self.enter_context(mock.patch.object(process, "ChildProcess"))

    def fail_with(self, kind: str, **more) -> Exception:
        """Runs a search that sends an error, and returns the error for users."""
        answer = [{"error": "the workers do not start", "kind": kind, **more}]
        with (
            mock.patch.object(process, "await_message", return_value=answer),
            self.assertRaises(process._ERRORS.get(kind, SearchError)) as raised,
        ):
            process.run_search(self.directory, "asked", Callback(), 0.0)
        return raised.exception

    def test_a_failed_search_names_the_log_of_its_trials(self):
        with TrialLog(self.directory.trials, {"seed": 0}) as log:
            log.append(trial(0, None))
            log.append(trial(1, [0]))
        path = str(self.directory.path)
        self.assertEqual(
            str(self.fail_with("")),
            f"the workers do not start; every finished trial is in {self.directory.trials}: the "
            f"same call with log_dir={path!r} resumes there",
        )
        # Another error is about the request.
        self.assertEqual(str(self.fail_with("ValueError")), "the workers do not start")

    def test_the_notes_of_an_error_are_passed_on(self):
        self.assertEqual(self.fail_with("", notes=["line 5"]).__notes__, ["line 5"])
        self.assertFalse(hasattr(self.fail_with(""), "__notes__"))

    def test_a_search_without_placements_names_no_log(self):
        self.assertEqual(str(self.fail_with("")), "the workers do not start")


class _Child:
    """A child process that records the commands it receives."""

    def __init__(self):
        self.received = []

    def send(self, message, deadline):
        self.received.append(message)


class EndRequestsTest(absltest.TestCase):
    def setUp(self):
        super().setUp()
        self.child, self.lines = _Child(), []
        self.callback = ProgressPrinter(self.lines.append)
        self.requests = process._EndRequests(self.child, self.callback, time.monotonic() + 35.0)
        self.enter_context(process._interrupts_sent_to(self.requests))

    def test_an_interrupt_is_heard_at_once(self):
        signal.raise_signal(signal.SIGINT)
        [line] = self.lines
        self.assertRegex(
            line,
            "^interrupted: ending with the best so far, at most 3[45] s to confirm it; interrupt "
            "again to keep the original$",
        )
        signal.raise_signal(signal.SIGINT)
        self.assertEqual(self.lines[1:], ["interrupted again: the original stays"])
        self.assertEqual(self.child.received, [{"command": "end"}] * 2)
        with self.assertRaises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        self.assertLen(self.child.received, 2)

    def test_an_interrupt_in_a_callback_is_reported_after_it(self):
        class Interrupted(ProgressPrinter):
            def on_note(self, line):
                if line == "a note":
                    signal.raise_signal(signal.SIGINT)
                super().on_note(line)

        requests = process._EndRequests(self.child, Interrupted(self.lines.append), math.inf)
        with mock.patch.object(self.requests, "interrupt", requests.interrupt):
            requests.pass_on({"line": "a note"})
        again = "interrupt again to keep the original"
        self.assertEqual(
            self.lines, ["a note", f"interrupted: ending with the best so far; {again}"]
        )

    def test_a_callback_ends_the_search_once_and_a_first_interrupt_then_the_confirmation(self):
        self.callback.on_trial = lambda *_: True
        sender = MessageSender(self.requests.pass_on)
        for index in range(2):
            each = trial(index, None)
            sender.on_trial(each, Progress(index + 1, Budget(9, 60.0), each, 1.0, 9.0))
        [line] = self.lines
        self.assertStartsWith(line, "a callback ends the search: ending with the best so far, at m")
        signal.raise_signal(signal.SIGINT)
        self.assertEqual(self.lines[1:], ["interrupted again: the original stays"])
        self.assertLen(self.child.received, 2)


if __name__ == "__main__":
    absltest.main()
