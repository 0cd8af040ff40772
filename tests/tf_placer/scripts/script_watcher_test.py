"""Tests that a failing watcher does not affect the script."""

from __future__ import annotations

import os
import sys
from unittest import mock

from absl.testing import absltest

from tf_placer.scripts.script_watcher import ScriptWatcher


class ScriptWatcherTest(absltest.TestCase):
    def setUp(self):
        super().setUp()
        self.other, self.said = mock.Mock(is_explained=False, may_have_broken=True), []
        self.watcher = ScriptWatcher(lambda: self.other, self.said.append)

    def test_forwards_events(self):
        self.assertFalse(self.watcher.may_have_broken)  # Nothing was watched yet.
        placed = self.watcher.before_function_call("function", (1,), {"b": 2})
        self.assertIs(placed, self.other.before_function_call.return_value)
        self.other.before_function_call.assert_called_once_with("function", (1,), {"b": 2})
        self.assertTrue(self.watcher.may_have_broken)
        self.assertFalse(self.watcher.is_explained)

    def test_reports_the_first_error_and_stops(self):
        self.other.before_training.side_effect = KeyError("node")
        for _ in range(2):
            self.watcher.before_training("model", None)
        self.assertLen(self.said, 1)
        self.assertIn("could not be watched: KeyError: 'node'", self.said[0])
        self.assertIsNone(self.watcher.before_function_call("function", (), {}))
        self.other.before_function_call.assert_not_called()
        self.assertTrue(self.watcher.is_explained)

    def test_reports_an_error_of_the_constructor(self):
        watcher = ScriptWatcher(mock.Mock(side_effect=OSError("no memory")), self.said.append)
        watcher.before_graph_extension("session")
        self.assertIn("OSError: no memory", self.said[0])

    def test_an_interrupt_is_the_scripts(self):
        self.other.before_session_run.side_effect = KeyboardInterrupt
        with self.assertRaises(KeyboardInterrupt):
            self.watcher.before_session_run("session", [], None)
        self.assertEmpty(self.said)

    def test_an_interrupt_of_tf_placer_that_ends_the_process_is_one_line(self):
        error = KeyboardInterrupt()
        self.other.before_training.side_effect = error
        with mock.patch.object(sys, "excepthook") as show:
            with self.assertRaises(KeyboardInterrupt):
                self.watcher.before_training("model", None)
            sys.excepthook(KeyboardInterrupt, error, error.__traceback__)
            show.assert_not_called()
            self.assertEqual(
                self.said, ["interrupted while the training step was read or searched for"]
            )
        other = ValueError()
        with mock.patch.object(sys, "excepthook") as show:
            with self.assertRaises(KeyboardInterrupt):
                self.watcher.before_training("model", None)
            sys.excepthook(ValueError, other, None)
            show.assert_called_once_with(ValueError, other, None)

    def test_a_forked_process_is_left_alone(self):
        with mock.patch.object(os, "getpid", lambda: -1):
            self.assertIsNone(self.watcher.before_function_call("function", (), {}))
        self.other.before_function_call.assert_not_called()


if __name__ == "__main__":
    absltest.main()
