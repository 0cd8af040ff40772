"""Tests of searches that are interrupted in every phase and still return a result."""

from __future__ import annotations

import os
import pathlib
import signal
import subprocess
import sys
import threading
import time
from unittest import mock

import numpy as np
import tensorflow as tf

from graph_passes.placement import read_placement
from tests import graphs
from tests.tf_placer.process_tree import descendants, wait_until_gone
from tests.tf_placer.scripted import ORIGINAL_SECS, Script, request_directory, uses_two_devices
from tf_placer.confirmation.outcome import Outcome
from tf_placer.confirmation.round_statistics import LEAST_ROUNDS
from tf_placer.inputs.graph_files import write_graph
from tf_placer.inputs.workload import read_workload
from tf_placer.interrupts import Interrupts
from tf_placer.live import run as live_run
from tf_placer.live.time_plan import TimePlan
from tf_placer.placers import make_placer
from tf_placer.placers.heuristics.uniform_random import UniformRandom
from tf_placer.runs.run_directory import RunDirectory
from tf_placer.runs.run_page import read_run_view
from tf_placer.runs.verdict import verdict
from tf_placer.search.callbacks import Callback
from tf_placer.search.distributed import placer_setup
from tf_placer.search.trial_log import read_log

_CODE = """
import sys, tf_placer
result = tf_placer.optimize(sys.argv[1], machine="local:2", log_dir=sys.argv[2], max_secs=200)
print(result.reason)
print(len(result.trials), result.confirmation is not None)
"""


class InterruptedSearchTest(tf.test.TestCase):
    def setUp(self):
        super().setUp()
        self.addCleanup(signal.signal, signal.SIGINT, signal.getsignal(signal.SIGINT))
        self.interrupts = Interrupts()
        self.interrupts.listen()
        self.directory = RunDirectory(pathlib.Path(self.create_tempdir().full_path) / "run")
        self.script = Script()

    def run_search(
        self,
        interrupts: Interrupts | None = None,
        callback: Callback | None = None,
        **changes,
    ) -> Outcome:
        given = graphs.two_branches()
        workload = read_workload(given.graph, given.fetches)
        values = {"max_trials": 20, "max_secs": 600.0, **changes}
        return live_run.run(
            request_directory(self.create_tempdir().full_path, workload, **values),
            self.directory,
            callback or Callback(),
            self.script.environment,
            interrupts=interrupts or self.interrupts,
        )

    def interrupt_at(self, *moments: tuple[int, int]) -> None:
        """Interrupts at numbers of measurements of the search and of the confirmation."""

        def secs(assignment):
            if (len(self.script.measured), len(self.script.confirmed)) in moments:
                signal.raise_signal(signal.SIGINT)
            return ORIGINAL_SECS / 2 if uses_two_devices(assignment) else ORIGINAL_SECS

        self.script.secs = secs

    def test_an_interrupted_search_confirms_the_best_so_far(self):
        self.interrupt_at((7, 0))
        self.assertEqual(self.run_search(), Outcome.FASTER)
        _, trials = read_log(self.directory.trials)
        # The canceled trial is not in the log.
        self.assertEqual(sum(each.repeats is None for each in trials), 6)
        self.assertLess(len(trials), 20)
        self.assertLen(self.script.confirmed, 2 * LEAST_ROUNDS)
        self.assertTrue(uses_two_devices(read_placement(self.directory.placement).assignment))

    def test_repeated_requests_of_a_callback_count_once(self):
        class Enough(Callback):
            def on_trial(self, trial, progress):
                return progress.trial_count >= 4

        self.interrupt_at()
        self.assertEqual(self.run_search(callback=Enough()), Outcome.FASTER)
        self.assertLen(read_log(self.directory.trials)[1], 4)
        self.assertLen(self.script.confirmed, 2 * LEAST_ROUNDS)
        self.assertFalse(self.directory.read_result().is_complete)

    def test_an_interrupt_before_anything_is_faster_gives_no_verdict(self):
        def secs(assignment):
            if len(self.script.measured) == 4:
                signal.raise_signal(signal.SIGINT)
            return 1.5 * ORIGINAL_SECS if assignment else ORIGINAL_SECS

        self.script.secs = secs
        self.assertEqual(self.run_search(), Outcome.INTERRUPTED)
        self.assertEmpty(self.script.confirmed)
        result = self.directory.read_result()
        self.assertFalse(result.is_complete)
        self.assertEqual(
            verdict(result),
            "interrupted after 3 of 20 trials, before a placement was confirmed. No trial was "
            "faster, so none was measured again. The same call resumes it",
        )
        # Without the interrupt there is a verdict.
        self.script.secs = lambda a: 1.5 * ORIGINAL_SECS if a else ORIGINAL_SECS
        self.assertEqual(self.run_search(Interrupts()), Outcome.NOT_FASTER)

    def test_no_verdict_rests_on_the_few_trials_before_a_callback_ended_the_search(self):
        class Enough(Callback):
            def on_trial(self, trial, progress):
                return progress.trial_count >= 4

        for slowness, values, reason in (
            (2, lambda assignment: {}, "The best is at most 1.00 times as fast"),
            (1, lambda assignment: {"loss:0@1": np.float32(len(assignment))}, "not compute the"),
        ):
            self.directory = RunDirectory(pathlib.Path(self.create_tempdir().full_path) / "run")
            self.script = script = Script(values=values)

            def secs(assignment, script=script, slowness=slowness):
                ratio = 2 if uses_two_devices(assignment) else 1
                return ORIGINAL_SECS / ratio * (slowness if script.confirmed and assignment else 1)

            script.secs = secs
            self.assertEqual(self.run_search(Interrupts(), Enough()), Outcome.INTERRUPTED)
            self.assertNotEmpty(self.script.confirmed)
            text = verdict(self.directory.read_result())
            self.assertStartsWith(text, "interrupted after 4 of 20 trials, before a placement")
            self.assertIn(reason, text)
            self.assertEndsWith(text, ". The same call resumes it")

    def test_the_confirmation_after_an_interrupt_takes_only_the_time_that_is_left(self):
        left_secs = [600.0]

        def secs(assignment):
            if len(self.script.measured) == 7 and not self.interrupts.count:
                left_secs[0] = 1.0
                signal.raise_signal(signal.SIGINT)
            if self.script.confirmed:
                time.sleep(10.0)
            return ORIGINAL_SECS / 2 if uses_two_devices(assignment) else ORIGINAL_SECS

        self.script.secs = secs
        with mock.patch.object(TimePlan, "compute_secs_left", lambda _: left_secs[0]):
            self.assertEqual(self.run_search(), Outcome.INTERRUPTED)
        self.assertIn("no time left of 600 s", verdict(self.directory.read_result()))
        self.assertLen(self.script.confirmed, 1)
        self.assertFalse(self.directory.placement.exists())

    def test_the_same_call_resumes_an_interrupted_search(self):
        self.interrupt_at((7, 0))
        self.run_search()
        self.run_search(Interrupts())
        self.assertLen(read_log(self.directory.trials)[1], 20)

    def test_an_interrupt_before_any_measurement_gives_a_result_without_trials(self):
        self.interrupt_at((1, 0))
        self.assertEqual(self.run_search(), Outcome.INTERRUPTED)
        result = self.directory.read_result()
        self.assertEqual(result.num_trials, 0)
        self.assertFalse(result.is_complete)

    def test_the_first_interrupt_of_a_confirmation_ends_it_at_the_first_possible_verdict(self):
        self.interrupt_at((5, 2))
        self.assertEqual(self.run_search(max_trials=5), Outcome.FASTER)
        self.assertBetween(self.script.confirmed.count({}), LEAST_ROUNDS, LEAST_ROUNDS + 1)

    def test_an_interrupted_confirmation_does_not_say_that_nothing_is_faster(self):
        def secs(assignment):
            if (len(self.script.measured), len(self.script.confirmed)) == (5, 2):
                signal.raise_signal(signal.SIGINT)
            is_faster = uses_two_devices(assignment) and not self.script.confirmed
            return ORIGINAL_SECS / 2 if is_faster else ORIGINAL_SECS

        self.script.secs = secs
        self.assertEqual(self.run_search(max_trials=5), Outcome.INTERRUPTED)
        text = verdict(self.directory.read_result())
        self.assertStartsWith(text, "interrupted after 5 of 5 trials, before a placement was")
        view = read_run_view(self.directory.path)
        self.assertStartsWith(view.verdict, "No verdict: interrupted after 5 of 5 trials")
        bases = {each.basis for each in view.compared}
        self.assertIn("interrupted, not confirmed", bases)
        self.assertNotIn("not faster beyond the noise", bases)

    def test_a_second_interrupt_cancels_the_confirmation(self):
        self.interrupt_at((7, 0), (7, 2))
        self.assertEqual(self.run_search(), Outcome.INTERRUPTED)
        self.assertFalse(self.directory.placement.exists())
        # The best placement is written, though unconfirmed.
        self.assertTrue(uses_two_devices(read_placement(self.directory.best).assignment))
        self.assertIsNone(self.directory.read_result().confirmation)

    def test_an_interrupt_cancels_a_proposal(self):
        class Slow(UniformRandom):
            def propose(self, count: int) -> np.ndarray:
                signal.raise_signal(signal.SIGINT)
                raise AssertionError("the interrupt did not cancel the proposal")

        def make(name, groups, legal, **settings):
            if name == "random":
                return Slow(groups, legal)
            return make_placer(name, groups, legal, **settings)

        with mock.patch.object(placer_setup, "make_placer", make):
            self.assertEqual(self.run_search(), Outcome.INTERRUPTED)
        self.assertEqual(self.interrupts.count, 1)
        self.assertNotIn("random", {t.placer for t in read_log(self.directory.trials)[1]})

    def test_ctrl_c_in_profiling_and_in_the_confirmation_still_returns_a_result(self):
        given = graphs.v1_ref_variables()
        graph = self.create_tempfile("g.meta").full_path
        with given.graph.as_default():
            write_graph(graph, given.graph.as_graph_def(), tf.compat.v1.train.export_meta_graph())
        environ = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path),
        }
        child = subprocess.Popen(
            [sys.executable, "-c", _CODE, graph, str(self.directory.path)],
            env=environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        watchdog = threading.Timer(300.0, child.kill)
        watchdog.start()
        try:
            assert child.stderr is not None
            self.assertTrue(any("profiling the graph" in line for line in child.stderr))
            processes = descendants(child.pid)
            os.kill(child.pid, signal.SIGINT)
            heard = next(line for line in child.stderr if "interrupted" in line)
            self.assertRegex(heard, "at most .* to confirm it; interrupt again to keep the orig")
            # Nothing is confirmed if no trial was faster, which depends on the machine.
            if any("confirming: original" in line for line in child.stderr):
                processes = descendants(child.pid)
                os.kill(child.pid, signal.SIGINT)
            output, errors = child.communicate()
        finally:
            watchdog.cancel()
        self.assertEqual(child.returncode, 0, errors)
        self.assertRegex(output, r"\n[2-9] (True|False)\n")
        self.assertEqual(wait_until_gone(processes), [])
        self.assertFalse(self.directory.problem.exists())


if __name__ == "__main__":
    tf.test.main()
