"""Tests of the progress of a search in a notebook."""

from __future__ import annotations

import sys
import types
from unittest import mock

from absl.testing import absltest

from tf_placer.environments.environment import Measurement
from tf_placer.report import notebook_progress
from tf_placer.report.notebook_progress import NotebookProgress
from tf_placer.search.budget import Budget, Progress
from tf_placer.search.trial_log import Trial

TRIAL = Trial(4, "expert<1>", 0, (1, 1), Measurement((0.1,)), None, 30.0, "")
PROGRESS = Progress(5, Budget(10, 120.0), TRIAL, elapsed_secs=30.0, eta_secs=90.0)


class NotebookProgressTest(absltest.TestCase):
    def setUp(self):
        super().setUp()
        self.display = mock.Mock()
        module = types.SimpleNamespace(HTML=str, display=self.display)
        modules = {"IPython": types.SimpleNamespace(display=module), "IPython.display": module}
        self.enter_context(mock.patch.dict(sys.modules, modules))

    def test_updates_one_bar_in_place(self):
        progress = NotebookProgress()
        progress.on_note("searching")
        progress.on_trial(TRIAL, PROGRESS)
        self.display.assert_called_once_with(mock.ANY, display_id=True)
        self.assertIn("searching", self.display.call_args.args[0])
        [update] = self.display.return_value.update.call_args_list
        # Half of the trials and a quarter of the time are used.
        self.assertIn('value="0.500"', update.args[0])
        self.assertIn("[5/10] trial 4 expert&lt;1&gt;: 100.0 ms", update.args[0])

    def test_shows_the_stage_with_the_time_of_the_whole_search(self):
        progress = NotebookProgress()
        with mock.patch.object(notebook_progress, "time") as clock:
            clock.monotonic.return_value = 1000.0
            progress.on_stage("reading the graph")
            progress.on_trial(TRIAL, PROGRESS)
            clock.monotonic.return_value = 1030.0
            progress.on_stage("confirming: original, auto")
            progress.on_note("confirming: original, auto")
        self.assertIn("<small>reading the graph</small>", self.display.call_args.args[0])
        *_, confirming = self.display.return_value.update.call_args_list
        # The line of the trial has no times, because they are soon outdated.
        lines = confirming.args[0].partition("<small>")[2].split("<br>")
        self.assertEqual(
            lines,
            [
                "[5/10] trial 4 expert&lt;1&gt;: 100.0 ms ± 0 s | best so far",
                "confirming: original, auto | 1 min 00 s of at most 2 min 00 s</small>",
            ],
        )

    def test_what_was_said_of_an_interrupt_stays(self):
        progress = NotebookProgress()
        progress.on_trial(TRIAL, PROGRESS)
        progress.on_note("interrupted: ending with the best so far")
        progress.on_note("confirming: 1 round")
        progress.finish()
        _, confirming, ended = self.display.return_value.update.call_args_list
        self.assertIn("interrupted: ending with the best so far<br>confirming", confirming.args[0])
        self.assertIn("<br>interrupted, ended after ", ended.args[0])

    def test_a_stage_that_went_on_is_told_until_something_follows(self):
        progress = NotebookProgress()
        progress.on_stage("measuring")
        progress.on_note("still measuring: 10 s so far")
        progress.on_trial(TRIAL, PROGRESS)
        progress.finish()
        going_on, trial, ended = self.display.return_value.update.call_args_list
        self.assertIn("10 s so far", going_on.args[0])
        self.assertNotIn("10 s so far", trial.args[0])
        self.assertNotIn("10 s so far", ended.args[0])

    def test_all_notes_are_there_at_the_end(self):
        progress = NotebookProgress()
        progress.on_stage("reading the graph")
        progress.on_note("reading the graph")
        progress.on_note("40 s are little for <this> graph")
        progress.on_stage("confirming")
        progress.on_note("confirming")
        progress.on_note("auto ended: nothing more to try")
        progress.on_note("auto ended: nothing more to try")
        progress.finish()
        *_, running, ended = self.display.return_value.update.call_args_list
        self.assertNotIn("little", running.args[0])
        self.assertIn(
            "<details><summary>notes: 2</summary>40 s are little for &lt;this&gt; graph<br>"
            "auto ended: nothing more to try</details>",
            ended.args[0],
        )

    def test_the_bar_of_an_interrupted_search_stays_where_it_was(self):
        progress = NotebookProgress()
        progress.on_stage("reading the graph")
        progress.finish(is_complete=False)
        [ended] = self.display.return_value.update.call_args_list
        self.assertIn('value="0.000"', ended.args[0])
        self.assertIn("<small>ended after", ended.args[0])

    def test_a_search_that_failed_is_not_told_as_one_that_ended(self):
        progress = NotebookProgress()
        progress.on_stage("reading the graph")
        progress.finish(is_complete=False, is_failed=True)
        [failed] = self.display.return_value.update.call_args_list
        self.assertIn("<small>failed after", failed.args[0])

    def test_the_bar_moves_with_the_time_and_is_full_in_the_end(self):
        progress = NotebookProgress()
        with mock.patch.object(notebook_progress, "time") as clock:
            clock.monotonic.return_value = 1000.0
            progress.on_trial(TRIAL, PROGRESS)
            # 30 s of 120 s were used; a confirmation has notes, but no trials.
            clock.monotonic.return_value = 1060.0
            progress.on_note("confirming: 1 round")
            progress.finish()
        confirming, ended = self.display.return_value.update.call_args_list
        self.assertIn('value="0.750"', confirming.args[0])
        self.assertIn('value="1.000"', ended.args[0])
        self.assertIn("ended after 1 min 30 s", ended.args[0])
        self.assertIn("[5/10] trial 4", ended.args[0])

    def test_an_answer_without_a_search_shows_no_bar(self):
        NotebookProgress().finish()
        self.display.assert_not_called()


if __name__ == "__main__":
    absltest.main()
