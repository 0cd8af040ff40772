"""Tests of starting and resuming the search for a script's step."""

from __future__ import annotations

import dataclasses
import json
import os
from unittest import mock

import tensorflow as tf
from absl.testing import absltest

from tf_placer.confirmation.outcome import Outcome
from tf_placer.errors import NoAnswerError
from tf_placer.live import entry_points
from tf_placer.runs.run_directory import RunDirectory
from tf_placer.runs.run_result import RunResult
from tf_placer.scripts import step_cache
from tf_placer.scripts.script_search import (
    is_answer_wanted,
    is_search_wanted,
    needs_script,
    read_refusal,
    search_for_step,
)

_ENDED = RunResult(Outcome.NOT_FASTER, 3, 150, 25.0, None, None, None, {}, is_complete=True)


class ScriptSearchTest(absltest.TestCase):
    def setUp(self):
        super().setUp()
        self.directory = RunDirectory(self.create_tempdir().full_path)
        self.said = []

    def test_a_longer_time_limit_resumes_a_search(self):
        self.assertTrue(is_search_wanted(self.directory, None))
        self.directory.write_result(_ENDED)
        for secs, is_wanted in ((None, False), (10.0, False), (25.0, False), (26.0, True)):
            self.assertEqual(is_search_wanted(self.directory, secs), is_wanted, secs)
        self.directory.write_result(dataclasses.replace(_ENDED, max_secs=None))
        self.assertFalse(is_search_wanted(self.directory, 1e9))

    def test_an_interrupted_search_is_resumed(self):
        self.directory.write_result(dataclasses.replace(_ENDED, outcome=Outcome.INTERRUPTED))
        self.assertTrue(is_search_wanted(self.directory, None))

    def test_a_store_gets_the_answer_of_a_search_that_has_ended(self):
        self.assertFalse(is_answer_wanted(self.directory, "store", self.said.append))
        self.directory.write_result(_ENDED)
        self.assertTrue(is_answer_wanted(self.directory, "store", self.said.append))
        self.assertFalse(is_answer_wanted(self.directory, None, self.said.append))
        for change in ({"answer_kept": True}, {"kept": "2026-11-28", "is_complete": False}):
            self.directory.write_result(dataclasses.replace(_ENDED, **change))
            self.assertFalse(is_answer_wanted(self.directory, "store", self.said.append))
        # Another store gets it, too.
        kept_here = {"answer_kept": True, "answer_store": os.path.abspath("store")}
        self.directory.write_result(dataclasses.replace(_ENDED, **kept_here))
        self.assertFalse(is_answer_wanted(self.directory, "store", self.said.append))
        self.assertTrue(is_answer_wanted(self.directory, "other", self.said.append))
        self.assertTrue(is_answer_wanted(self.directory, "default", self.said.append))
        self.assertEmpty(self.said)
        self.directory.write_result(dataclasses.replace(_ENDED, outcome=Outcome.NO_TIME))
        self.assertFalse(is_answer_wanted(self.directory, "store", self.said.append))
        self.assertRegex(
            self.said[0], "keeps nothing .* no verdict, .*; a --search_secs of more than 25 resumes"
        )

    def test_reports_an_unreadable_step_once(self):
        (self.directory.path / "request.json").write_text("{}")
        search_for_step(self.directory, 5.0, self.said.append)
        self.assertRegex(self.said[0], "cannot be searched for: .*holds no step that can be read")
        self.assertFalse(is_search_wanted(self.directory, None))
        self.assertFalse(is_search_wanted(self.directory, 5.0))
        self.assertTrue(is_search_wanted(self.directory, 6.0))
        refusal = read_refusal(self.directory)
        self.assertIn("holds no step that can be read", refusal.reason)
        # A file that says something else refuses nothing.
        (self.directory.path / "refusal.json").write_text(json.dumps([1]))
        self.assertIsNone(read_refusal(self.directory))

    def test_looks_the_machine_up_again(self):
        session_config, source = tf.compat.v1.ConfigProto(), object()
        kept = mock.Mock(max_secs=20.0, max_trials=5, pin={}, keep_together=())
        kept.session_config = session_config
        kept.found_machine.spec = "attached"
        with (
            mock.patch.object(step_cache, "read_cached_workload", return_value=(source, kept)),
            mock.patch.object(entry_points, "optimize", side_effect=OSError("full")) as optimize,
        ):
            search_for_step(self.directory, None, self.said.append)
        self.assertEqual(optimize.call_args.args, (source,))
        asked = optimize.call_args.kwargs["config"]
        self.assertEqual((asked.machine, asked.max_trials, asked.max_secs), ("attached", 5, 20.0))
        self.assertIs(asked.session_config, session_config)

    def test_a_missing_answer_is_raised_and_not_recorded(self):
        kept = mock.Mock(max_secs=20.0, max_trials=5, session_config=None, pin={}, keep_together=())
        kept.found_machine.spec = "attached"
        error = NoAnswerError("there is none")
        with (
            mock.patch.object(step_cache, "read_cached_workload", return_value=(object(), kept)),
            mock.patch.object(entry_points, "optimize", side_effect=error) as optimize,
            self.assertRaisesRegex(NoAnswerError, "there is none"),
        ):
            search_for_step(
                self.directory, None, self.said.append, answers="store", require_answer=True
            )
        asked = optimize.call_args.kwargs["config"]
        self.assertEqual((asked.answers, asked.require_answer), ("store", True))
        self.assertIsNone(read_refusal(self.directory))

    def test_a_missing_answer_leaves_no_step_for_the_next_run(self):
        kept = mock.Mock(max_secs=20.0, max_trials=5, session_config=None, pin={}, keep_together=())
        kept.found_machine.spec = "attached"
        request = self.directory.path / "request.json"
        for has_begun in (True, False):
            request.write_text("{}")
            if has_begun:
                self.directory.trials.write_text("")
            else:
                self.directory.trials.unlink()
            with (
                mock.patch.object(step_cache, "read_cached_workload", return_value=(0, kept)),
                mock.patch.object(entry_points, "optimize", side_effect=NoAnswerError("none")),
                self.assertRaises(NoAnswerError),
            ):
                search_for_step(self.directory, None, self.said.append, require_answer=True)
            self.assertEqual(request.exists(), has_begun)
        self.assertFalse(self.directory.path.exists())

    def test_a_step_that_calls_python_needs_the_script(self):
        self.assertFalse(needs_script(self.directory))
        self.directory.graph.write_bytes(b"\n\x0eEagerPyFunc")
        self.assertTrue(needs_script(self.directory))


if __name__ == "__main__":
    absltest.main()
