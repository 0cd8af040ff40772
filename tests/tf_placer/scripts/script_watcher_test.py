"""Tests that a watcher which fails is not in the way of a script."""

from __future__ import annotations

import os
from unittest import mock

from absl.testing import absltest

from tf_placer.scripts.script_watcher import ScriptWatcher


class ScriptWatcherTest(absltest.TestCase):
    def setUp(self):
        super().setUp()
        self.other, self.said = mock.Mock(is_explained=False, may_have_broken=True), []
        self.watcher = ScriptWatcher(lambda: self.other, self.said.append)

    def test_it_passes_on_what_it_is_told(self):
        self.assertFalse(self.watcher.may_have_broken)  # Nothing was watched yet.
        placed = self.watcher.function_called("function", (1,), {"b": 2})
        self.assertIs(placed, self.other.function_called.return_value)
        self.other.function_called.assert_called_once_with("function", (1,), {"b": 2})
        self.assertTrue(self.watcher.may_have_broken)
        self.assertFalse(self.watcher.is_explained)

    def test_an_error_is_said_once_and_ends_the_watching(self):
        self.other.model_trains.side_effect = KeyError("node")
        for _ in range(2):
            self.watcher.model_trains("model", None)
        self.assertLen(self.said, 1)
        self.assertIn("could not be watched: KeyError: 'node'", self.said[0])
        self.assertIsNone(self.watcher.function_called("function", (), {}))
        self.other.function_called.assert_not_called()
        self.assertTrue(self.watcher.is_explained)

    def test_what_cannot_be_made_is_an_error_of_it(self):
        watcher = ScriptWatcher(mock.Mock(side_effect=OSError("no memory")), self.said.append)
        watcher.graph_extended("session")
        self.assertIn("OSError: no memory", self.said[0])

    def test_an_interrupt_is_the_scripts(self):
        self.other.session_runs.side_effect = KeyboardInterrupt
        with self.assertRaises(KeyboardInterrupt):
            self.watcher.session_runs("session", [], None)
        self.assertEmpty(self.said)

    def test_a_forked_process_is_left_alone(self):
        with mock.patch.object(os, "getpid", lambda: -1):
            self.assertIsNone(self.watcher.function_called("function", (), {}))
        self.other.function_called.assert_not_called()


if __name__ == "__main__":
    absltest.main()
