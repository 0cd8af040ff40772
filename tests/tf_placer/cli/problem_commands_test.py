"""Tests of the commands on problems: their files, answers and errors."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import itertools
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from unittest import mock

import numpy as np
from absl.testing import absltest

import tf_placer
from tests.tf_placer import doubles
from tests.tf_placer.placers import users_placers
from tests.tf_placer.simulation.traces import make_problem
from tests.tf_placer.small_problem import (
    BEST,
    LOWER_BOUND_SECS,
    build_layered_problem,
    small_problem,
)
from tf_placer.cli import main as cli
from tf_placer.files import write_json
from tf_placer.machines import numa_machine
from tf_placer.planning import deadline, plan_files
from tf_placer.planning import plan as planning
from tf_placer.problem.problem_file import write_problem
from tf_placer.report.plan_directory import PlanDirectory
from tf_placer.search.distributed import placer_setup
from tf_placer.search.training_log import read_training_log

RESULT_ENTRIES = [
    "step_secs",
    "feasible",
    "assignment",
    "peak_bytes",
    "lower_bound_secs",
    "trials",
    "elapsed_secs",
    "placer",
    "seed",
    "has_ended",
    "placement",
]
_ENVIRON = {**os.environ, "PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path)}


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class FakeClock:
    """Stands in for the module `time`."""

    def __init__(self):
        self.now_secs = 1000.0

    def monotonic(self):
        return self.now_secs


class ProblemCommandsTestCase(absltest.TestCase):
    def setUp(self):
        super().setUp()
        self.directory = pathlib.Path(self.create_tempdir().full_path)
        self.problem = self.path("problem.json")
        write_problem(small_problem(), self.problem)

    def path(self, name: str) -> str:
        return str(self.directory / name)

    def read(self, name: str):
        return json.loads((self.directory / name).read_text())

    def write(self, name: str, text: str) -> str:
        (self.directory / name).write_text(text)
        return self.path(name)

    def assignment(self, *devices) -> str:
        return self.write("assignment.json", json.dumps({"assignment": devices}))

    def call(self, *arguments: str, stderr: io.StringIO | None = None, code: int = 0) -> str:
        """Calls the command line here, which ends with a code; returns what it printed."""
        output, ended = io.StringIO(), 0
        with (
            contextlib.redirect_stdout(output),
            contextlib.redirect_stderr(stderr or io.StringIO()),
        ):
            try:
                cli.main(arguments)
            except SystemExit as error:
                if error.code != code:
                    raise
                ended = error.code
        self.assertEqual(ended, code)
        return output.getvalue()

    def assert_refused(self, message: str, *arguments: str, code: int = 1):
        """Asserts that a command fails with one sentence and writes nothing."""
        before = sorted(self.directory.rglob("*"))
        output, errors = io.StringIO(), io.StringIO()
        with (
            contextlib.redirect_stdout(output),
            contextlib.redirect_stderr(errors),
            self.assertRaises(SystemExit) as raised,
        ):
            cli.main(arguments)
        if code == 2:
            self.assertEqual(raised.exception.code, 2, arguments)
            self.assertRegex(errors.getvalue().splitlines()[-1], f": error: .*{message}")
        else:
            # Python prints a text code to standard error and exits with 1.
            self.assertIsInstance(raised.exception.code, str, arguments)
            self.assertRegex(raised.exception.code, f"^tf_placer: .*{message}")
            self.assertNotIn("\n", raised.exception.code)
            self.assertEqual(errors.getvalue(), "")
        self.assertEqual(output.getvalue(), "")
        self.assertEqual(sorted(self.directory.rglob("*")), before)


class SearchCommandTest(ProblemCommandsTestCase):
    def search(self, *arguments: str, **kwargs) -> str:
        return self.call(
            "search",
            f"--problem={self.problem}",
            f"--output={self.path('r.json')}",
            "--placer=random",
            *arguments,
            **kwargs,
        )

    def test_the_default_placer_is_auto(self):
        self.call("search", f"--problem={self.problem}", f"--output={self.path('r.json')}")
        self.assertEqual(self.read("r.json")["placer"], "auto")

    def test_takes_placers_of_users(self):
        name = f"{users_placers.__name__}:LastDevice"
        self.search(f"--placer={name}", "--max_trials=5")
        self.assertEqual(self.read("r.json")["placer"], name)
        self.assertEqual(self.read("r.json")["assignment"], [0, 1, 1])
        problem = f"--problem={self.problem}"
        for placer, message in (
            ("gone:Mine", "no placer 'gone:Mine', and Python finds no module 'gone'"),
            (f"{users_placers.__name__}:WithoutBase", "WithoutBase' is no placer"),
        ):
            self.assert_refused(message, "search", problem, "--placer", placer, code=2)

    def test_an_error_in_a_placer_of_a_user_is_one_sentence_after_the_traceback_of_the_placer(self):
        name = f"{users_placers.__name__}:FailsToPropose"
        printed, errors = io.StringIO(), io.StringIO()
        with (
            contextlib.redirect_stdout(printed),
            contextlib.redirect_stderr(errors),
            self.assertRaises(SystemExit) as raised,
        ):
            cli.main(["search", f"--problem={self.problem}", "--placer", name, "--json"])
        message = raised.exception.code.removeprefix("tf_placer: ")
        self.assertRegex(
            message,
            rf"^placer '{name}' failed in propose: KeyError: 'oops' \(.*users_placers.py:\d+\)$",
        )
        self.assertEqual(
            json.loads(printed.getvalue())["error"], {"kind": "SearchError", "message": message}
        )
        traceback = errors.getvalue().partition("Traceback of the placer")[2]
        self.assertRegex(
            traceback, r"(?s)in propose\n.*self._look_up\(\{\}\)\n.*in _look_up\n.*table\["
        )
        self.assertEqual(traceback.count("  File "), 2)

    def test_a_placer_of_a_user_that_proposes_fractions_is_refused(self):
        name = f"{users_placers.__name__}:Halves"
        search = ("search", f"--problem={self.problem}", f"--output={self.path('r.json')}")
        self.assert_refused("Halves' proposed an array of float64", *search, "--placer", name)

    def test_writes_the_result_elsewhere_if_the_disk_is_full(self):
        base = self.create_tempdir("other").full_path
        for placer in ("random", "auto"):
            log = self.directory / placer
            for full, there in ((self.directory, None), (self.directory / "r.json", log)):

                def write(path, value, full=full):
                    if pathlib.Path(path).is_relative_to(full):
                        raise OSError(28, "No space left on device", str(path))
                    write_json(path, value)

                printed = io.StringIO()
                with (
                    mock.patch.object(plan_files, "write_json", write),
                    mock.patch.object(tempfile, "tempdir", base),
                    contextlib.redirect_stdout(printed),
                    self.assertRaises(SystemExit) as raised,
                ):
                    arguments = ["--max_trials=50", f"--placer={placer}", f"--log_dir={log}"]
                    self.search(*arguments)
                found = there or pathlib.Path(base, *os.listdir(base))
                self.assertEqual(
                    raised.exception.code,
                    f"tf_placer: {self.path('r.json')}: No space left on device: the result is in "
                    f"'{found}/result.json'",
                )
                self.assertEqual(json.loads((found / "result.json").read_text())["placer"], placer)
                if there is None:
                    shutil.rmtree(found)

    def test_keeps_coarse_groups_together_unless_the_placer_refines_them(self):
        # 9 s if each operation of a pair is on its fast device; 25 s if pairs are together.
        problem = make_problem([[1.0, 4.0], [4.0, 1.0]] * 9)
        pairs = np.arange(18) // 2
        write_problem(dataclasses.replace(problem, coarse_groups=pairs), self.problem)
        self.search("--max_trials=400")
        result = self.read("r.json")
        self.assertEqual(result["assignment"][::2], result["assignment"][1::2])
        self.assertEqual(result["step_secs"], 25.0)
        self.call(
            *("search", f"--problem={self.problem}", f"--output={self.path('r.json')}"),
            # A fifth of the time is for the analysis of other machines.
            *("--max_trials=4000", "--max_secs=20"),
        )
        self.assertEqual(self.read("r.json")["step_secs"], 9.0)
        assignment = f"--assignment={self.path('r.json')}"
        self.assertIn("9.000 s", self.call("simulate", f"--problem={self.problem}", assignment))

    def test_a_result_on_standard_output_is_no_file(self):
        errors = io.StringIO()
        with contextlib.redirect_stderr(errors):
            printed = self.call("search", f"--problem={self.problem}", "--max_secs=1", "--output=-")
        self.assertTrue(json.loads(printed)["has_ended"])
        self.assertNotIn("result:", errors.getvalue())

    def test_writes_the_entries_that_other_programs_read(self):
        self.search("--placer=random", "--max_secs=60", "--max_trials=100", "--seed=3")
        result = self.read("r.json")
        self.assertEqual(list(result), RESULT_ENTRIES)
        self.assertGreaterEqual(result.pop("elapsed_secs"), 0)
        self.assertAlmostEqual(result.pop("lower_bound_secs"), LOWER_BOUND_SECS)
        self.assertEqual(
            result,
            {
                "step_secs": 4.5,
                "feasible": True,
                "assignment": [0, 1, 1],
                "peak_bytes": [20, 30],
                "trials": 100,
                "placer": "random",
                "seed": 3,
                "has_ended": True,
                # The problem is not one of a TensorFlow graph.
                "placement": None,
            },
        )
        self.assertEqual(sorted(os.listdir(self.directory)), ["problem.json", "r.json"])

    def test_prints_the_result(self):
        printed = self.search("--max_trials=10").splitlines()
        self.assertRegex(printed[2], r"^cpu +1 +22% +20 B +100 B$")
        self.assertRegex(printed[3], r"^gpu +2 +[0-9]+% +30 B +50 B$")
        self.assertRegex(printed[5], r"^step: +4\.500 s$")
        self.assertRegex(printed[6], r"^lower bound: +3\.000 s$")
        self.assertRegex(printed[7], r"^trials: +10 of random in [\d.]+ s$")
        # The GPU holds 30 bytes and more, and takes 4.5 s alone, too.
        self.assertEqual(printed[8], "vs 1 GPU:     1.00x as fast (4.500 s)")
        self.assertRegex(
            " ".join(printed[10:12]), r"^lower bound 3\.000 s \(.*\); found is bound by "
        )
        self.assertEqual(printed[-1], f"result: {self.path('r.json')}")

    def test_a_seed_decides_the_result(self):
        write_problem(build_layered_problem(20, 4), self.problem)
        results = []
        for seed in (1, 1, 2):
            self.search("--max_trials=100", f"--seed={seed}")
            results.append(self.read("r.json") | {"elapsed_secs": 0, "seed": 0})
        self.assertEqual(results[0], results[1])
        self.assertNotEqual(results[0]["assignment"], results[2]["assignment"])

    def test_the_time_limit_ends_an_endless_placer(self):
        self.search("--max_secs=0.3")
        self.assertGreater(self.read("r.json")["elapsed_secs"], 0.0)

    def test_auto_prints_candidates_and_other_machines(self):
        printed = self.search("--placer=auto", "--max_secs=4", "--max_trials=500")
        result = self.read("r.json")
        self.assertEqual(list(result), RESULT_ENTRIES)
        self.assertEqual((result["step_secs"], result["placer"]), (4.5, "auto"))
        self.assertIn("no placement is better", printed)
        self.assertRegex(printed, r"(?m)^found +4\.500 s +1\.50x +yes$")
        self.assertRegex(printed, r"(?m)^single_device \(gpu\) +")
        self.assertRegex(printed, r"(?m)^transfers twice as fast +[\d.]+ s +[\d.]+x +2\.750 s$")
        self.assertRegex(printed, r"(?m)^one more .* +[\d.]+x")

    def test_a_directory_has_the_record_of_the_search(self):
        log_dir = f"--log_dir={self.path('log')}"
        self.search("--placer=auto", "--max_secs=2", "--max_trials=500", log_dir)
        self.assertEqual(
            (self.directory / "log/problem.json").read_bytes(),
            pathlib.Path(self.problem).read_bytes(),
        )
        self.assertEqual(self.read("log/result.json"), self.read("r.json"))
        record = PlanDirectory(self.path("log")).read_record()
        self.assertEqual(record.best[-1].step_secs, 4.5)
        self.assertEqual(record.header["placer"], "auto")
        self.assertIn("single_device", [candidate.label for candidate in record.candidates])
        self.assertIn("transfers twice as fast", [change.change for change in record.changes])
        self.assert_refused(
            "a log of another seed",
            *("search", f"--problem={self.problem}", f"--output={self.path('r.json')}", log_dir),
            "--seed=3",
        )

    def test_refuses_and_keeps_a_directory_with_foreign_files(self):
        log = self.directory / "log"
        log.mkdir()
        (log / "problem.json").write_bytes(pathlib.Path(self.problem).read_bytes())
        arguments = ("search", f"--problem={self.problem}", f"--output={self.path('r.json')}")
        budget = ("--max_trials=20", "--max_secs=2", f"--log_dir={log}")
        for name in ("result.json", "search.json", "training.jsonl", "policy.weights.h5"):
            for placer in ("auto", "random"):
                (log / name).write_text('{"mine": 1}')
                self.assert_refused(f"{name}", *arguments, *budget, f"--placer={placer}")
                self.assertEqual((log / name).read_text(), '{"mine": 1}')
                self.assertCountEqual(os.listdir(log), ["problem.json", name])
            (log / name).unlink()
        # The file of the same problem is accepted, but no other content.
        self.search("--placer=random", *budget)
        (log / "problem.json").write_text("mine")
        self.assert_refused("problem.json' is there", *arguments, *budget, "--placer=random")

    def test_tells_a_killed_search_from_foreign_files(self):
        log = self.directory / "log"
        killed = mock.patch.object(planning, "coarse_to_fine_search", side_effect=KeyboardInterrupt)
        budget = ("--max_trials=20", "--max_secs=2", f"--log_dir={log}", "--placer=auto")
        arguments = ("search", f"--problem={self.problem}", f"--output={self.path('r.json')}")
        with killed, self.assertRaises(SystemExit):
            self.call(*arguments, *budget)
        self.assertCountEqual(os.listdir(log), ["problem.json", "search.json"])
        self.search(*budget)
        self.assertIn("result.json", os.listdir(log))

    def test_the_result_is_in_the_directory_without_another_file(self):
        log = self.path("new/log")
        printed = self.call(
            *("search", f"--problem={self.problem}", "--placer=random", "--max_trials=20"),
            f"--log_dir={log}",
        )
        self.assertIn(f"result: {log}/result.json", printed)
        self.assertEqual(self.read("new/log/result.json")["trials"], 20)
        other = f"--log_dir={self.path('other')}"
        self.assert_refused(
            "missing.json", "search", f"--problem={self.path('missing.json')}", other
        )
        self.assert_refused(
            "otherwise the placement is lost", "search", f"--problem={self.problem}"
        )

    def test_an_output_replaces_no_file_of_the_directory(self):
        log = self.path("log")
        for name in ("problem.json", "search.json", "training.jsonl"):
            self.assert_refused(
                "it would replace another file of the command",
                *("search", f"--problem={self.problem}", f"--output={log}/{name}"),
                f"--log_dir={log}",
            )

    def test_a_directory_has_the_samples(self):
        self.search("--max_trials=100", f"--log_dir={self.path('log')}")
        record = PlanDirectory(self.path("log")).read_record()
        self.assertEqual([sample.number for sample in record.samples], list(range(1, 101)))
        steps = {sample.step_secs for sample in record.samples}
        self.assertContainsSubset({4.5, 9.0}, steps)
        self.assertEqual(record.best[-1].step_secs, 4.5)

    def test_returns_the_closest_placement_if_none_fits(self):
        write_problem(small_problem(cpu_bytes=31, gpu_bytes=5), self.problem)
        printed = self.search("--max_trials=100", code=3)
        result = self.read("r.json")
        self.assertEqual(list(result), RESULT_ENTRIES)
        self.assertEqual(
            (result["feasible"], result["assignment"], result["step_secs"]), (False, [0, 0, 0], 9.0)
        )
        self.assertIn("9.000 s (does not fit)", printed)
        self.assertIn("nothing that was tried fits: let 'auto' search (--placer auto), ", printed)
        output = f"--output={self.path('auto.json')}"
        printed = self.search("--placer=auto", "--max_secs=2", output, code=3)
        self.assertIn("nothing that was tried fits: allow more trials or time, or", printed)

    def test_limits_of_memory_are_arguments(self):
        # By hand: with 25 bytes on the CPU and 50 on the GPU, [0, 0, 1] and [0, 1, 1] fit.
        limited = self.write("limits", "--max_memory=cpu=25\n--max_memory\ngpu=50\n")
        output = f"--output={self.path('r.json')}"
        self.search("--placer=auto", f"--flagfile={limited}", "--max_secs=1", output)
        self.assertEqual(self.read("r.json")["peak_bytes"], [20, 30])
        printed = self.search("--headroom=0.75", "--objective=fit", "--max_trials=100", code=3)
        self.assertIn("nothing that was tried fits", printed)
        search = ("search", f"--problem={self.problem}", output)
        for argument, message in (
            ("--max_memory=cpu", "--max_memory 'cpu' is not DEVICE=SIZE, such as GPU:0=4GB"),
            ("--max_memory=cpu=much", 'max_memory of "cpu" is "much", which is no size'),
            ("--max_memory=tpu=25", 'max_memory is for "tpu", .* name one of cpu, gpu'),
            ("--headroom=1", "headroom is the share of memory to leave free"),
        ):
            self.assert_refused(message, *search, argument)
        self.assert_refused("invalid choice: 'speed'", *search, "--objective=speed", code=2)

    def test_the_result_can_be_simulated(self):
        self.search("--max_trials=10")
        output = f"--output={self.path('report.json')}"
        self.call(
            "simulate", f"--problem={self.problem}", f"--assignment={self.path('r.json')}", output
        )
        for entry in ("step_secs", "feasible", "peak_bytes", "lower_bound_secs"):
            self.assertEqual(self.read("report.json")[entry], self.read("r.json")[entry])

    def test_writes_improvements_at_most_once_a_second(self):
        clock, written = FakeClock(), []
        write_problem(build_layered_problem(30, 4), self.problem)
        steps = []
        search_problem = planning.search_problem

        def search(problem, placer, *, report, **kwargs):
            def tick(outcome, eta_secs):
                clock.now_secs += 0.3
                steps.append(outcome.step_secs)
                report(outcome, eta_secs)

            return search_problem(problem, placer, report=tick, **kwargs)

        def write_json(path, value):
            written.append((clock.now_secs, value["step_secs"]))

        with (
            mock.patch.object(plan_files, "time", clock),
            mock.patch.object(plan_files, "write_json", write_json),
            mock.patch.object(planning, "search_problem", search),
        ):
            self.search("--max_trials=3200")
        self.assertEqual(written[0], (1000.3, steps[0]))
        *early, last = written
        self.assertEqual(last[1], steps[-1])
        for (before_secs, before), (after_secs, after) in itertools.pairwise(early):
            self.assertGreaterEqual(after_secs - before_secs, 1.0)
            self.assertLess(after, before)
        self.assertGreater(len(early), 2)
        # Each write has the best result at its time.
        for secs, step in early:
            self.assertEqual(step, steps[round((secs - 1000.0) / 0.3) - 1])

    def search_after_reading(self, secs: float, *arguments: str, **patches) -> tuple[str, str]:
        """Searches 60 s where reading takes some of them; returns standard output and error."""
        clock, errors = FakeClock(), io.StringIO()
        read_problem = planning.read_problem

        def read(path):
            clock.now_secs += secs
            return read_problem(path)

        with (
            mock.patch.object(cli, "time", clock),
            mock.patch.object(deadline, "time", clock),
            mock.patch.multiple(planning, read_problem=read, **patches),
        ):
            return self.search("--max_secs=60", *arguments, stderr=errors), errors.getvalue()

    def test_reading_the_problem_counts(self):
        search_problem = planning.search_problem
        given_secs = []

        def search(*args, max_secs, **kwargs):
            given_secs.append(max_secs)
            return search_problem(*args, **{**kwargs, "max_trials": 10}, max_secs=max_secs)

        _, said = self.search_after_reading(25.0, search_problem=search)
        self.assertEqual((given_secs, said), ([35.0], ""))

    def test_auto_reserves_time_for_other_machines(self):
        coarse_to_fine_search = planning.coarse_to_fine_search
        given_secs = []

        def search(*args, max_secs, max_simulated, **kwargs):
            given_secs.append(max_secs)
            return coarse_to_fine_search(*args, **kwargs, max_secs=60.0, max_simulated=100)

        said, _ = self.search_after_reading(
            25.0,
            "--placer=auto",
            coarse_to_fine_search=search,
            search_changed_machines=lambda *_, **__: (),
        )
        self.assertEqual(given_secs, [23.0])
        self.assertIn("what other machines would bring is left out: there is no time", said)

    def test_warns_about_work_that_the_time_limit_does_not_cover(self):
        _, said = self.search_after_reading(70.0)
        self.assertIn(
            "1 min 10 s were used where 1 min 00 s are allowed: reading and preparing the problem "
            "takes 1 min 10 s here",
            said,
        )
        self.assertTrue(self.read("r.json")["feasible"])

    def test_a_policy_starts_at_the_placement_in_a_file(self):
        start = self.assignment(*BEST)
        self.call(
            *("search", f"--problem={self.problem}", f"--output={self.path('r.json')}"),
            *("--placer=post", f"--start={start}", "--placer_option=start_uniform=1e-9"),
            "--max_trials=1",
        )
        self.assertEqual(self.read("r.json")["assignment"], list(BEST))

    def test_shows_progress_on_a_terminal(self):
        terminal = Terminal()
        self.search("--max_trials=200", stderr=terminal)
        lines = terminal.getvalue().split("\r\x1b[K")
        self.assertRegex(
            lines[1],
            r"^64 trials \| best 4\.500 s \| bound 3\.000 s, gap 50% \| "
            r"elapsed [\d.]+ s \| ETA [\d.]+ s$",
        )
        self.assertEqual(lines[-1], "")

    def test_shows_no_progress_elsewhere(self):
        errors = io.StringIO()
        self.search("--max_trials=200", stderr=errors)
        self.assertEqual(errors.getvalue(), "")

    def learn(self, *arguments: str) -> str:
        """Searches with a placer that pretends to learn."""

        def make(name, groups, legal, *, seed, **_):
            return doubles.LearningPlacer(groups, legal, seed=seed, name=name)

        with mock.patch.object(placer_setup, "make_placer", make):
            return self.search(f"--log_dir={self.path('run')}", *arguments)

    def test_a_directory_has_the_files_of_a_learned_placer(self):
        printed = self.learn("--max_trials=20", "--seed=3")
        self.assertIn(f"\nlog: {self.path('run')}\n", printed)
        header, updates = read_training_log(self.path("run"))
        self.assertEqual((header["placer"], header["seed"]), ("random", 3))
        self.assertEqual([update.samples for update in updates], [3, 6, 9, 12, 15, 18, 20])
        self.assertEqual(updates[-1].best_step_secs, self.read("r.json")["step_secs"])
        self.assertEqual((self.directory / "run" / "policy.weights.h5").read_text(), "7")
        shown, _, updates_table = self.call("log", self.path("run")).partition("\nupdate")
        self.assertIn("trials:       20 of random", shown)
        self.assertLen(updates_table.strip().split("\n"), 2 + 7)

    def test_a_repeated_search_continues_its_curves(self):
        self.learn("--max_trials=12")
        self.learn("--max_trials=21")
        updates = read_training_log(self.path("run"))[1]
        self.assertEqual([update.update for update in updates], list(range(7)))

    def test_the_directory_of_another_search_is_refused(self):
        self.learn("--max_trials=12")
        log = (self.directory / "run" / "training.jsonl").read_bytes()
        arguments = (
            *("search", f"--problem={self.problem}", f"--output={self.path('r.json')}"),
            *(f"--log_dir={self.path('run')}", "--placer=random"),
        )
        self.assert_refused("a log of another seed", *arguments, "--seed=5")
        self.assert_refused("a log of another placer", *arguments, "--placer=expert")
        write_problem(small_problem(gpu_bytes=40), self.problem)
        advice = "name another log_dir, or delete this one. The log .* is of another graph, batch"
        self.assert_refused(f"a log of another problem: {advice}", *arguments)
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed), self.assertRaises(SystemExit):
            cli.main([*arguments, "--json"])
        # The package has this name, and not that of the class below it.
        self.assertEqual(json.loads(printed.getvalue())["error"]["kind"], "LogMismatchError")
        self.assertEqual((self.directory / "run" / "training.jsonl").read_bytes(), log)

    def test_bad_input(self):
        def refuses(message, *arguments, code=1, problem="problem.json", output="r.json"):
            self.assert_refused(
                message,
                *("search", f"--problem={self.path(problem)}", f"--output={self.path(output)}"),
                *("--max_trials=5", "--placer=random"),
                *arguments,
                code=code,
            )

        self.write("text.json", "hello")
        self.write("empty.json", "{}")
        refuses("no.json': No such file", problem="no.json")
        refuses("text.json: .*is not JSON.*cut off: `profile` makes it again", problem="text.json")
        refuses("is no problem file, which `profile` makes.* has no entry", problem="empty.json")
        refuses("no/r.json': No such file or directory: '.*/no'", output="no/r.json")
        refuses("': it is a directory", output="")
        refuses("problem.json': it would replace another file", output="problem.json")
        refuses("argument --placer: no placer 'magic'; the placers are", "--placer=magic", code=2)
        refuses(r"no placer 'randm' \(did you mean 'random'\?\)", "--placer=randm", code=2)
        refuses("invalid int value: 'many'", "--max_trials=many", code=2)
        refuses("invalid float value: 'long'", "--max_secs=long", code=2)
        refuses("'units' is not NAME=VALUE", "--placer_option=units")
        refuses("placer 'random' has no option 'units'", "--placer_option=units=5")
        refuses("max_trials must be at least 1, not 0", "--max_trials=0")
        refuses("max_trials must be at least 1, not -1", "--max_trials=-1")
        refuses("max_secs must be positive, not 0.0", "--max_secs=0")
        refuses("max_secs must be positive, not nan", "--max_secs=nan")
        refuses("seed must not be negative, but is -1", "--seed=-1")
        log_dir = f"--log_dir={self.path('run')}"
        refuses("max_trials must be at least 1, not 0", "--max_trials=0", log_dir)
        refuses("placer 'random' has no option 'units'", "--placer_option=units=5", log_dir)
        post = "--placer=post"
        refuses("'original' is for `optimize`", post, "--start=original")
        refuses("no.json: No such file", post, "--start=no.json")
        refuses(
            'empty.json.* has no entry "assignment"', post, f"--start={self.path('empty.json')}"
        )
        refuses("are the same; give one", post, "--start=expert", "--placer_option=start=expert")
        refuses("would replace", f"--log_dir={self.directory}", output="training.jsonl")
        refuses("problem.json", f"--log_dir={self.problem}")
        refuses("problem.json/run", f"--log_dir={self.problem}/run")
        self.assert_refused("required: --problem", "search", "--output=r.json", code=2)
        self.assert_refused("--output, --log_dir or --json is needed", "search", "--problem=p.json")


class SimulateCommandTest(ProblemCommandsTestCase):
    def simulate(self, *arguments: str) -> str:
        return self.call(
            "simulate",
            f"--problem={self.problem}",
            f"--assignment={self.path('assignment.json')}",
            *arguments,
        )

    def test_without_a_placement_everything_is_on_the_first_accelerator(self):
        report = json.loads(self.call("simulate", f"--problem={self.problem}", "--json"))
        expected = tf_placer.simulate(self.problem, {})
        self.assertEqual(report["step_secs"], expected.step_secs)
        self.assertEqual(report["peak_bytes"], list(expected.to_json()["peak_bytes"]))

    def test_limits_the_memory(self):
        self.assignment(*BEST)
        for limit, is_feasible in (("--max_memory=gpu=30", True), ("--max_memory=gpu=20", False)):
            report = json.loads(self.simulate(limit, "--json"))
            self.assertEqual((report["feasible"], report["step_secs"]), (is_feasible, 4.5))

    def test_writes_the_entries_that_other_programs_read(self):
        self.assignment(*BEST)
        printed = self.simulate(f"--output={self.path('report.json')}")
        report = self.read("report.json")
        self.assertEqual(report["step_secs"], 4.5)
        self.assertIs(report["feasible"], True)
        self.assertIsNone(report["reason"])
        self.assertEqual(report["peak_bytes"], [20, 30])
        self.assertEqual(report["busy_secs"], [1.0, 2.0])
        self.assertAlmostEqual(report["lower_bound_secs"], LOWER_BOUND_SECS)
        self.assertEqual([device["name"] for device in report["devices"]], ["cpu", "gpu"])
        self.assertEqual(report["critical_path"]["transfer_secs"], 1.5)
        self.assertStartsWith(
            printed, "step 4.500 s, at least 3.000 s (joins; critical path 2.000 s"
        )
        self.assertEndsWith(printed, f"report: {self.path('report.json')}\n")

    def test_takes_any_file_with_an_assignment(self):
        self.write("assignment.json", json.dumps({"what": "ever", "assignment": [0, 1, 0]}))
        self.simulate(f"--output={self.path('report.json')}")
        self.assertEqual(self.read("report.json")["step_secs"], 5.0)

    def test_takes_a_placement_of_the_operations(self):
        devices = {"source": "cpu", "left": "gpu", "right": "cpu"}
        self.write("assignment.json", json.dumps({"format": 1, "assignment": devices}))
        self.simulate(f"--output={self.path('report.json')}")
        self.assertEqual(self.read("report.json")["step_secs"], 5.0)

    def test_without_an_output_it_only_prints(self):
        self.assignment(*BEST)
        printed = self.simulate()
        self.assertIn("on the critical path", printed)
        self.assertIn("--output writes all of the path", printed)
        self.assertEqual(sorted(os.listdir(self.directory)), ["assignment.json", "problem.json"])

    def test_writes_a_trace(self):
        self.assignment(*BEST)
        printed = self.simulate(f"--trace={self.path('trace.json')}")
        names = {event.get("name") for event in self.read("trace.json")["traceEvents"]}
        self.assertContainsSubset(["source", "left", "right"], names)
        self.assertIn(f"trace: {self.path('trace.json')}", printed)

    def test_a_placement_that_does_not_fit_is_reported_with_its_time_and_the_reason(self):
        write_problem(small_problem(gpu_bytes=29), self.problem)
        self.assignment(*BEST)
        printed = self.simulate(f"--output={self.path('report.json')}")
        report = self.read("report.json")
        self.assertEqual((report["feasible"], report["step_secs"]), (False, 4.5))
        self.assertEqual(
            report["reason"], "device 'gpu' would hold 30 bytes at once and has room for 29"
        )
        self.assertIn("does not fit: gpu", printed)

    def test_an_operation_where_it_may_not_go_is_reported_without_a_time(self):
        self.assignment(1, 0, 0)
        printed = self.simulate(
            f"--output={self.path('report.json')}", f"--trace={self.path('trace.json')}"
        )
        reason = "operation 'source' may not go on device 'gpu'"
        report = self.read("report.json")
        self.assertAlmostEqual(report.pop("lower_bound_secs"), LOWER_BOUND_SECS)
        self.assertEqual(
            report,
            {
                "step_secs": None,
                "feasible": False,
                "reason": reason,
                "peak_bytes": None,
                "busy_secs": None,
                **dict.fromkeys(["fits", "devices", "links", "critical_path"]),
            },
        )
        self.assertEqual(printed, f"not simulated: {reason}\nreport: {self.path('report.json')}\n")
        self.assertFalse(os.path.exists(self.path("trace.json")))

    def test_bad_assignments(self):
        for text, message in (
            ("hello", "assignment.json is not a JSON file"),
            ("[0, 1, 1]", "assignment.json is not a placement of a problem: it is a list"),
            ("{}", 'assignment.json is not a placement of a problem: it has no entry "assignment"'),
            ('{"assignment": null}', "assignment is null: it must be a list"),
            (
                '{"assignment": {"source": 1}}',
                'assignment\\["source"\\] is 1: it must be a text',
            ),
            ('{"assignment": {"source": "cpu"}}', "it has no device for .left."),
            (
                '{"assignment": {"source": "tpu"}}',
                "it puts .source. on .tpu., which the problem lacks",
            ),
            ('{"assignment": [0, 1]}', "'assignment' has 2 entries, but .*problem.json has 3"),
            ('{"assignment": [0, 1, 1, 0]}', "'assignment' has 4 entries"),
            ('{"assignment": [0, 1, 2]}', r"assignment\[2\] is 2, but the devices .* 0 to 1"),
            (
                '{"assignment": [0, -1, 1]}',
                r"assignment\[1\] is -1: it must be a whole number from 0",
            ),
            (
                '{"assignment": [0, 1, "gpu"]}',
                r"assignment\[2\] is .gpu.: it must be a whole number",
            ),
            ('{"assignment": [0, true, 1]}', r"assignment\[1\] is true: it must be a whole number"),
            ('{"assignment": [0.5, 1, 1]}', r"assignment\[0\] is 0.5: it must be a whole number"),
        ):
            self.write("assignment.json", text)
            self.refuses(message)
        os.unlink(self.path("assignment.json"))
        self.refuses("assignment.json: No such file")

    def test_other_bad_input(self):
        self.assignment(*BEST)
        self.refuses("no/t.json': No such file", f"--trace={self.path('no/t.json')}")
        self.refuses("no/o.json': No such file", f"--output={self.path('no/o.json')}")
        self.refuses("--machine cannot be used with --problem", "--machine=4xK80")
        self.refuses("--fetches cannot be used with --problem", "--fetches=y")
        self.refuses("--feeds cannot be used with --problem", "--feeds=f.npz")
        self.refuses("--initializers cannot be used with --problem", "--initializers=init")
        self.refuses("--tensorboard cannot be used with --problem", "--tensorboard=tb")
        self.refuses("--placement cannot be used with --problem", "--placement=p.json")
        problem = f"--problem={self.problem}"
        self.assert_refused("--input_graph needs --machine", "simulate", "--input_graph=g.pb")
        self.assert_refused(
            "--assignment cannot be used with --input_graph",
            *("simulate", "--input_graph=g.pb", "--machine=4xK80", "--assignment=a.json"),
        )
        self.assert_refused("not allowed with", "simulate", problem, "--input_graph=g", code=2)
        self.assert_refused("one of the arguments .* is required", "simulate", code=2)
        self.write("problem.json", "{}")
        self.refuses("problem.json is no problem file.* the problem has no entry")

    def refuses(self, message: str, *arguments: str):
        self.assert_refused(
            message,
            "simulate",
            f"--problem={self.problem}",
            f"--assignment={self.path('assignment.json')}",
            *arguments,
            *(
                []
                if any("--output" in a for a in arguments)
                else [f"--output={self.path('o.json')}"]
            ),
        )


class MachinesCommandTest(ProblemCommandsTestCase):
    def test_lists_the_catalog(self):
        printed = self.call("machines")
        for text in ("K80", "P100", "V100", "A100", "H100", "H200", "GB/s"):
            self.assertIn(text, printed)

    def test_shows_one_machine(self):
        printed = self.call("machines", "8xL4")
        self.assertRegex(printed, r"\n +8  GPU +L4 +22.49 GiB +20.51 GiB +60 x 0.5 ")
        self.assertIn("sparsity", printed)
        self.assert_refused(r"'8xL5' \(did you mean '8xL4'", "machines", "8xL5")

    def test_shows_several_machines_one_after_the_other(self):
        printed = self.call("machines", "1xL4", "2xT4")
        self.assertRegex(printed, r"(?s)^1xL4\n\nnumber .*\n\n2xT4\n\nnumber ")
        self.assert_refused("unknown machine '2xT5'", "machines", "1xL4", "2xT5")

    def test_shows_a_mix_and_groups_of_cores(self):
        self.assertRegex(self.call("machines", "1xA100+2xT4"), r"\nA100 to T4 +2 +1 +9 ")
        with mock.patch.object(os, "sched_getaffinity", lambda pid: {0, 1, 2}):
            self.assertRegex(self.call("machines", "cores:0,2/1"), r"task:0/device:CPU:0 +0,2 +-\n")
            self.assert_refused("core 3 of group 1 does not exist", "machines", "cores:3")
        self.assert_refused("unknown part '2xT5'", "machines", "1xA100+2xT5")

    def test_tells_where_all_cores_are_on_one_node(self):
        with mock.patch.object(numa_machine, "read_numa_nodes", lambda: []):
            self.assert_refused(
                "on one NUMA node of this computer: .*'local:2'", "machines", "numa"
            )


class ProcessTest(ProblemCommandsTestCase):
    """Tests of imports and signals, in processes."""

    def start_search(self) -> subprocess.Popen[str]:
        """Starts a long search, and waits for its first result."""
        write_problem(build_layered_problem(30, 4), self.problem)
        process = subprocess.Popen(
            [
                *(sys.executable, "-m", "tf_placer", "search", f"--problem={self.problem}"),
                *(f"--output={self.path('r.json')}", "--max_secs=3600"),
            ],
            env=_ENVIRON,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        while not os.path.exists(self.path("r.json")):
            if process.poll() is not None:
                self.fail(f"the search ended by itself: {process.communicate()[1]}")
            time.sleep(0.01)
        return process

    def test_searching_and_simulating_need_no_tensorflow(self):
        result, report = self.path("r.json"), self.path("report.json")
        code = "import sys\nfrom tf_placer.cli import main as cli\n"
        for placer in ("random", "expert", "single_device"):
            arguments = ["search", f"--problem={self.problem}", f"--placer={placer}"]
            arguments.append(f"--log_dir={self.path('log_' + placer)}")
            code += f"cli.main({[*arguments, '--max_trials=5', f'--output={result}']})\n"
        arguments = ["simulate", f"--problem={self.problem}", f"--assignment={result}"]
        code += f"cli.main({[*arguments, f'--output={report}', f'--trace={report}.trace']})\n"
        code += "cli.main(['machines'])\n"
        code += "print([name for name in sys.modules if 'tensorflow' in name or 'keras' in name])"
        done = subprocess.run(
            [sys.executable, "-c", code], env=_ENVIRON, capture_output=True, text=True
        )
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertEqual(done.stdout.splitlines()[-1], "[]")

    def test_a_learning_placer_says_how_to_install_tensorflow(self):
        code = (
            "import sys; sys.modules['tensorflow'] = None\n"
            "from tf_placer.cli import main as cli\n"
            f"cli.main(['search', '--problem={self.problem}', '--placer=colocrl', '--output=r'])"
        )
        done = subprocess.run(
            [sys.executable, "-c", code], env=_ENVIRON, capture_output=True, text=True
        )
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stderr, r"^tf_placer: .*pip install 'tf_placer\[cpu\]'.*\n$")

    def test_an_interrupt_ends_a_search_with_the_best_so_far(self):
        process = self.start_search()
        process.send_signal(signal.SIGINT)
        output, errors = process.communicate()
        self.assertEqual((process.returncode, errors), (0, ""))
        self.assertIn(", interrupted\n", output)
        self.assertEqual(list(self.read("r.json")), RESULT_ENTRIES)

    def test_a_handled_interrupt_of_an_import_does_not_end_the_process_by_a_signal(self):
        code = "from tf_placer.cli import main as cli\n"
        code += "def run(given):\n"
        code += "    try:\n"
        code += "        exec('raise KeyboardInterrupt')\n"
        code += "    except KeyboardInterrupt:\n"
        code += "        print('interrupted')\n"
        code += "cli._run_command = run\n"
        code += "cli.main()\n"
        done = subprocess.run(
            [sys.executable, "-c", code], env=_ENVIRON, capture_output=True, text=True, check=False
        )
        self.assertEqual((done.returncode, done.stdout), (0, "interrupted\n"))

    def test_a_killed_search_leaves_the_best_so_far(self):
        process = self.start_search()
        process.kill()
        process.communicate()
        result = self.read("r.json")
        self.assertEqual(list(result), RESULT_ENTRIES)
        self.assertLen(result["assignment"], 30)
        self.assertFalse(result["has_ended"])


if __name__ == "__main__":
    absltest.main()
