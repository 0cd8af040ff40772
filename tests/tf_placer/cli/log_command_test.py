"""Tests of the command `log` for running, stopped and ended searches."""

from __future__ import annotations

import contextlib
import io
import json
import pathlib
import threading
import time
from collections.abc import Callable
from unittest import mock

from absl.testing import absltest

import tf_placer
from tests.tf_placer import doubles
from tests.tf_placer.scripted import confirmation, run_result, trial
from tests.tf_placer.small_problem import build_layered_problem
from tf_placer.cli import log_command
from tf_placer.cli import main as cli
from tf_placer.confirmation.outcome import Outcome
from tf_placer.runs.run_directory import RunDirectory
from tf_placer.search.training_log import TrainingLog
from tf_placer.search.trial_log import TrialLog

HEADER = {"placer": "auto", "seed": 3}


class Printed(io.StringIO):
    """A standard output on whose text a thread can wait."""

    def wait_for(self, text: str):
        until_secs = time.monotonic() + 30
        while text not in self.getvalue():
            if time.monotonic() > until_secs:
                raise AssertionError(f"{text!r} is not in {self.getvalue()!r}")
            time.sleep(0.01)


class LogCommandTest(absltest.TestCase):
    def setUp(self):
        super().setUp()
        self.run_dir = str(pathlib.Path(self.create_tempdir().full_path, "run"))

    def call(self, *arguments: str) -> str:
        output = io.StringIO()
        with contextlib.redirect_stdout(output), contextlib.redirect_stderr(io.StringIO()):
            cli.main(["log", self.run_dir, *arguments])
        return output.getvalue()

    def log(self) -> TrialLog:
        return TrialLog(f"{self.run_dir}/trials.jsonl", HEADER)

    def end(self, outcome: str = "faster", num_trials: int = 2):
        confirmed = confirmation({"expert": 1.5})
        RunDirectory(self.run_dir).write_result(
            run_result(
                Outcome(outcome),
                confirmed=confirmed if outcome == "faster" else None,
                winner="expert" if outcome == "faster" else None,
                num_trials=num_trials,
            )
        )

    def test_a_running_search_has_no_verdict_yet(self):
        with self.log() as log:
            log.append(trial(0, None))
            printed = self.call()
        self.assertEndsWith(printed, "\nverdict: none yet: the search is running\n")
        self.assertIn("1 trials; best 100.0 ms (trial 0, original)", printed)

    def test_a_stopped_search_can_be_resumed(self):
        with self.log() as log:
            log.append(trial(0, None))
        self.assertIn("verdict: none: the search was stopped before its end", self.call())
        # The verdict of an earlier call does not apply to a later one that was stopped.
        self.end(num_trials=0)
        self.assertIn("verdict: none: the search was stopped before its end", self.call())

    def test_an_ended_search_has_a_verdict(self):
        with self.log() as log:
            log.append(trial(0, None))
            log.append(trial(1, [0, 1], 0.07))
        self.end()
        self.assertRegex(self.call(), r"(?m)^verdict: placed: expert is 1\.50 times as fast")
        verdict = json.loads(self.call("--json"))["verdict"]
        self.assertEqual((verdict["outcome"], verdict["placed"]), ("faster", True))
        self.end("nothing_runs")
        self.assertIn("verdict: none: no placement ran\n", self.call())

    def test_costs_are_profiled_only_when_they_are_known(self):
        with TrialLog(f"{self.run_dir}/trials.jsonl", {**HEADER, "costs": "profiled"}) as log:
            log.append(trial(0, None))
        self.assertRegex(self.call(), r"(?m)^costs: +not profiled$")
        RunDirectory(self.run_dir).problem.write_text("{}")
        self.assertRegex(self.call(), r"(?m)^costs: +profiled$")
        self.assertEqual(json.loads(self.call("--json"))["header"]["costs"], "profiled")

    def test_omits_updates_of_a_placer_that_learns_nothing(self):
        with self.log() as log, TrainingLog(self.run_dir, HEADER):
            log.append(trial(0, None))
        self.assertNotRegex(self.call(), "learn|update")
        self.assertEqual(json.loads(self.call("--json"))["updates"], [])

    def test_shows_the_updates_of_a_search_on_a_problem(self):
        with TrainingLog(self.run_dir, HEADER) as log:
            self.assertEqual(self.call(), "no update of the placer so far\n")
            log.extend([doubles.update_record(0)])
        self.assertIn("\n     0 ", self.call())
        value = json.loads(self.call("--json"))
        self.assertEqual((value["trials"], value["verdict"]), ([], None))
        self.assertEqual(value["updates"][0]["update"], 0)

    def follow(self, act: Callable[[Printed], None], *arguments: str) -> str:
        """Follows a search while another thread acts; returns the printed text."""
        printed, errors = Printed(), Printed()
        self.errors = errors
        thread = threading.Thread(target=act, args=[printed])
        with (
            mock.patch.object(log_command, "_POLL_SECS", 0.01),
            contextlib.redirect_stdout(printed),
            contextlib.redirect_stderr(errors),
        ):
            thread.start()
            cli.main(["log", self.run_dir, "--follow", *arguments])
        thread.join()
        return printed.getvalue()

    def search(self, printed: Printed):
        """Writes the log of a search, each trial after the previous one was printed."""
        self.errors.wait_for("waiting for a search")
        with self.log() as log:
            for index, assignment in enumerate([None, [0, 1]]):
                log.append(trial(index, assignment, [0.1, 0.05][index]))
                printed.wait_for(["original", "2.000x"][index])
            self.end()

    def test_follows_a_search_from_its_start_to_its_verdict(self):
        lines = self.follow(self.search).splitlines()
        self.assertEqual(lines[0].split(), ["format:", "2"])
        self.assertIn("trial 0 original: 100.0 ms ± 0 s | 1.000x | searching 0.0 s", lines)
        self.assertIn("trial 1 random: 50.00 ms ± 0 s | 2.000x | searching 1.0 s", lines)
        self.assertStartsWith(lines[-1], "verdict: placed: expert is 1.50 times as fast")

    def test_programs_follow_a_json_object_on_each_line(self):
        def search(printed):
            self.errors.wait_for("waiting for a search")
            with self.log() as log:
                log.append(trial(0, None, None))
                printed.wait_for('"trial"')

        values = [json.loads(line) for line in self.follow(search, "--json").splitlines()]
        self.assertEqual([list(value)[2] for value in values], ["header", "trial", "verdict"])
        self.assertIsNone(values[0]["request"])  # Nobody has asked for this search.
        self.assertEqual(values[1]["trial"]["failure"]["kind"], "out_of_memory")
        self.assertIsNone(values[2]["verdict"]["outcome"])

    def test_follows_a_search_on_a_problem_to_its_end(self):
        def search(printed):
            self.errors.wait_for("waiting for a search")
            problem, has_shown = build_layered_problem(40, 3), []

            def wait(*_):
                if not has_shown:
                    has_shown.append(True)
                    printed.wait_for('"best"')

            tf_placer.plan(
                problem, placer="random", max_trials=200, log_dir=self.run_dir, progress=wait
            )

        self.run_dir = self.create_tempdir().full_path
        values = [json.loads(line) for line in self.follow(search, "--json").splitlines()]
        kinds = [list(value)[2] for value in values]
        self.assertEqual((kinds[0], kinds[1], kinds[-1]), ("header", "best", "updates"))
        self.assertEqual(values[0]["request"]["max_trials"], 200)
        self.assertIsNone(values[0]["request"]["max_secs"])
        self.assertFalse(values[-1]["plan"]["is_running"])
        self.assertTrue(values[-1]["plan"]["result"]["has_ended"])


if __name__ == "__main__":
    absltest.main()
