"""Tests of complete live searches in real processes: files, kills and resuming."""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import threading
import time
from typing import ClassVar
from unittest import mock

import tensorflow as tf

from tests import graphs
from tests.tf_placer.process_tree import descendants, kill, wait_until_gone
from tests.tf_placer.scripted import Script, request_directory
from tf_placer.confirmation import confirmation as live_confirmation
from tf_placer.confirmation import round_statistics
from tf_placer.errors import SearchError
from tf_placer.inputs.graph_files import write_graph
from tf_placer.inputs.workload import read_workload
from tf_placer.live import conclusion, optimization, own_processes, time_plan
from tf_placer.live import run as live_run
from tf_placer.live.entry_points import optimize
from tf_placer.machines.machine import Device, Machine
from tf_placer.problem.problem_file import read_problem
from tf_placer.report.progress import ProgressPrinter
from tf_placer.runs.run_directory import RunDirectory
from tf_placer.search.callbacks import Callback
from tf_placer.search.config import SearchConfig
from tf_placer.search.trial_log import LogError, Trial, TrialLog, read_log

tf1 = tf.compat.v1
# Old training scripts run in this mode.
tf1.disable_v2_behavior()

_TRIALS = 24
_SETTINGS = {"machine": "local:2", "placer": "random", "max_trials": _TRIALS, "seed": 5}
_START_TIMEOUT_SECS = 120.0
_CPUS = [f"/job:localhost/replica:0/task:0/device:CPU:{i}" for i in range(2)]
# A machine in one process, which starts much faster than a worker and two servers.
_TWO_CPUS = {
    "machine": Machine("attached", "attached", tuple(Device(name, "CPU") for name in _CPUS)),
    "session_config": tf1.ConfigProto(device_count={"CPU": 2}),
}


def _optimize_in_child(graph: str, log_dir: str) -> subprocess.Popen[str]:
    """Starts a process that optimizes a graph file."""
    code = f"import tf_placer; tf_placer.optimize({graph!r}, log_dir={log_dir!r}, **{_SETTINGS!r})"
    environ = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path),
    }
    return subprocess.Popen(
        [sys.executable, "-c", code], env=environ, stderr=subprocess.PIPE, text=True
    )


class LiveSearchTest(tf.test.TestCase):
    def test_confirms_in_fresh_processes_and_answers_the_same_call_from_the_log(self):
        def search_here(directory, given, callback, start_secs, host, forks, max_secs):
            del host, forks, max_secs
            return live_run.run(RunDirectory(given), directory, callback, start_secs=start_secs)

        given = graphs.v1_ref_variables()
        before = given.graph.as_graph_def()
        log_dir = self.create_tempdir().full_path
        settings = {**_SETTINGS, **_TWO_CPUS, "max_trials": 2, "log_dir": log_dir}
        with (
            mock.patch.object(optimization, "run_search", search_here),
            # Keep finalists, however slow this machine made them in the search.
            mock.patch.object(conclusion, "drop_slow_finalists", lambda finalists: finalists),
            # Save time: each round starts processes, and a third tests no more than the second.
            mock.patch.object(live_confirmation, "MOST_ROUNDS", 2),
            mock.patch.object(live_confirmation, "LEAST_ROUNDS", 2),
            mock.patch.object(round_statistics, "LEAST_ROUNDS", 2),
        ):
            result = optimize(given.graph, config=SearchConfig(**settings))
        self.assertEqual(wait_until_gone(descendants(os.getpid())), [])
        self.assertLen(result.trials, 2)
        self.assertIn("original", result.table())
        confirmation = RunDirectory(log_dir).read_result().confirmation
        [candidate] = confirmation.comparisons
        self.assertLen(confirmation.rounds, 2)
        for measurements in confirmation.rounds:
            self.assertCountEqual(measurements, ["original", candidate])
            steps = [len(measurement.step_secs) for measurement in measurements.values()]
            self.assertEqual(steps[0], steps[1])
        self.assertIsNotNone(confirmation.comparisons[candidate].interval)
        # The outcome depends on the machine, so accept both.
        after = given.graph.as_graph_def()
        self.assertEqual(result.changed, after != before)
        self.assertEqual(after, result.graph_def)
        self.assertEqual(result.changed, os.path.exists(f"{log_dir}/placement.json"))

        log = pathlib.Path(log_dir, "trials.jsonl").read_bytes()
        again = graphs.v1_ref_variables()
        with mock.patch.object(round_statistics, "LEAST_ROUNDS", 2):
            repeated = optimize(again.graph, config=SearchConfig(**settings))
        self.assertEqual(pathlib.Path(log_dir, "trials.jsonl").read_bytes(), log)
        self.assertEqual(repeated.reason, result.reason)
        self.assertEqual(repeated.confirmation, result.confirmation)
        self.assertEqual(again.graph.as_graph_def(), after)

        header, _ = read_log(f"{log_dir}/trials.jsonl")
        with (
            TrialLog(f"{log_dir}/trials.jsonl", header),
            self.assertRaisesRegex(LogError, "another search is writing"),
        ):
            optimize(
                graphs.v1_ref_variables().graph,
                max_trials=5,
                config=SearchConfig(**settings),
            )
        self.assertEqual(pathlib.Path(log_dir, "trials.jsonl").read_bytes(), log)

    def test_the_process_of_the_search_imports_the_placer_of_a_user(self):
        directory = self.create_tempdir().full_path
        pathlib.Path(directory, "my_placers.py").write_text(
            "from tf_placer.placers.heuristics.uniform_random import UniformRandom\n"
            "class Mine(UniformRandom): ...\n"
        )
        self.enter_context(mock.patch.object(sys, "path", [directory, *sys.path]))
        mine = importlib.import_module("my_placers").Mine
        settings = {**_SETTINGS, **_TWO_CPUS, "placer": mine, "max_trials": 9, "max_secs": 45.0}
        given = graphs.v1_ref_variables()
        result = optimize(given.graph, config=SearchConfig(**settings), verbose=False)
        names = [trial.placer for trial in result.trials]
        self.assertEqual(set(names[names.index("my_placers:Mine") :]), {"my_placers:Mine"})

    def test_searches_a_graph_with_python_functions_in_this_process(self):
        calls: list[int] = []
        interrupts: list[int] = []
        log_dir = self.create_tempdir().full_path
        log = pathlib.Path(log_dir, "trials.jsonl")

        def same(x):
            calls.append(os.getpid())
            # Interrupt once the log has its header and some trials.
            if not interrupts and log.exists() and log.read_text().count("\n") >= 5:
                interrupts.append(len(calls))
                os.kill(os.getpid(), signal.SIGINT)
            return x

        with tf.Graph().as_default() as graph:
            numbers = tf.data.Dataset.from_generator(lambda: iter([1.0, 2.0]), tf.float32, [])
            iterator = tf1.data.make_initializable_iterator(numbers.repeat())
            tf1.add_to_collection(tf1.GraphKeys.TABLE_INITIALIZERS, iterator.initializer)
            w = tf1.get_variable("w", [8, 8])
            x = tf.numpy_function(same, [w * iterator.get_next()], tf.float32)
            x.set_shape([8, 8])
            tf.add(tf.matmul(x, w), tf.matmul(w, w), name="y")
        settings = {**_SETTINGS, **_TWO_CPUS, "max_secs": 120.0}
        threads = threading.active_count()
        result = optimize(graph, "y", log_dir=log_dir, config=SearchConfig(**settings))
        self.assertBetween(len(result.trials), 4, _TRIALS - 1)
        self.assertIsNotNone(result.trials[0].measurement.step_secs)
        self.assertEqual(set(calls), {os.getpid()})
        self.assertLen(interrupts, 1)
        self.assertEqual(wait_until_gone(descendants(os.getpid())), [])
        self.assertEqual(threading.active_count(), threads)

    def test_a_callback_in_this_process_ends_a_search_in_another(self):
        class Enough(Callback):
            heard: ClassVar[list[Trial]] = []
            stages: ClassVar[list[str]] = []

            def on_trial(self, trial, progress):
                self.heard.append(trial)
                return progress.trial_count >= 3

            def on_stage(self, name):
                self.stages.append(name)

        given = graphs.v1_ref_variables()
        errors = io.StringIO()
        settings = {**_SETTINGS, **_TWO_CPUS, "max_trials": 1000, "max_secs": 120.0}
        with contextlib.redirect_stderr(errors):
            result = optimize(
                given.graph, config=SearchConfig(**settings), callbacks=[Enough()], verbose=False
            )
        self.assertBetween(len(result.trials), 3, 500)
        self.assertEqual(tuple(Enough.heard), result.trials)
        self.assertIn("measuring placements", Enough.stages)
        self.assertEqual(errors.getvalue(), "")

    def test_reports_why_a_graph_does_not_run(self):
        with tf.Graph().as_default() as graph:
            w = tf1.get_variable("w", [4, 4])
            contents = tf.strings.to_number(tf.io.read_file("/no/such/file"))
            tf.multiply(tf.matmul(w, w), contents, name="y")
        settings = {**_SETTINGS, "placer": "auto", "log_dir": self.create_tempdir().full_path}
        with self.assertRaisesRegex(
            SearchError, "(?s)the original graph does not run.*no/such/file"
        ):
            optimize(graph, "y", **settings)
        self.assertEqual(wait_until_gone(descendants(os.getpid())), [])

    def test_profiles_the_graph_for_a_placer_that_needs_costs(self):
        directory = RunDirectory(self.create_tempdir().full_path)
        lines: list[str] = []
        given = graphs.v1_ref_variables()
        asked = self.write_request(given.graph, placer="heft", max_trials=12)
        # Without finalists the search ends before the confirmation, which takes longest.
        with mock.patch.object(time_plan, "choose_finalists", lambda *_: {}):
            live_run.run(asked, directory, ProgressPrinter(lines.append))
            self.assertTrue(any(line.startswith("profiled ") for line in lines))
            problem = read_problem(directory.problem)
            _, trials = read_log(directory.trials)
            found = [trial for trial in trials if trial.placer == "heft"]
            self.assertNotEmpty(found)
            for trial in found:
                self.assertLen(trial.assignment, problem.num_groups)
                self.assertIsNotNone(trial.measurement.median_secs)
            with mock.patch.object(own_processes, "cost_graph", None):
                live_run.run(asked, directory, ProgressPrinter(lines.append))
        self.assertEqual(read_log(directory.trials)[1], trials)

    def write_request(self, graph: tf.Graph | str, **changes) -> RunDirectory:
        """Writes the request of a search into a new directory."""
        workload = read_workload(graph, seed=_SETTINGS["seed"])
        values = {"max_trials": _TRIALS, "max_secs": 600.0, "seed": _SETTINGS["seed"], **changes}
        return request_directory(self.create_tempdir().full_path, workload, **values)

    def find_expected_assignments(self, path: str) -> list[tuple[int, ...] | None]:
        """Returns the proposals of an uninterrupted search, which depend on the seed alone."""
        directory = RunDirectory(self.create_tempdir().full_path)
        live_run.run(self.write_request(path), directory, Callback(), Script().environment)
        return [trial.assignment for trial in read_log(directory.trials)[1]]

    def wait_for_trials(self, log: pathlib.Path, count: int, child: subprocess.Popen[str]):
        """Waits until a log has this many trials, and then for as long as a trial takes."""
        deadline = time.monotonic() + _START_TIMEOUT_SECS
        while not log.exists() or log.read_bytes().count(b"\n") < count + 1:
            self.assertIsNone(child.poll(), child.stderr.read() if child.poll() else "")
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.002)
        time.sleep(random.uniform(0, 0.05))

    def test_kills_leave_no_processes_and_neither_lose_nor_repeat_trials(self):
        graph = self.create_tempfile("g.meta").full_path
        with graphs.v1_ref_variables().graph.as_default():
            write_graph(
                graph, tf1.get_default_graph().as_graph_def(), tf1.train.export_meta_graph()
            )
        log_dir = pathlib.Path(self.create_tempdir().full_path)
        log = log_dir / "trials.jsonl"
        finished = b""
        # The first kill hits the calling process, the second the search, at its last trials or in
        # the confirmation.
        for victim, count in (("caller", random.randint(1, 16)), ("search", _TRIALS)):
            with self.subTest(victim=victim, count=count):
                child = _optimize_in_child(graph, str(log_dir))
                self.wait_for_trials(log, count, child)
                processes = descendants(child.pid)
                [search] = [p for p in processes if "tf_placer.live.search_process" in processes[p]]
                kill(child.pid if victim == "caller" else search[0])
                _, errors = child.communicate(timeout=60)
                self.assertEqual(wait_until_gone(processes), [])
                content = log.read_bytes()
                self.assertStartsWith(content, finished)
                # An unfinished trial may follow the last end of a line.
                finished = content[: content.rindex(b"\n") + 1]
                if victim == "search":
                    self.assertIn("the search was killed by signal 9 (SIGKILL)", errors)
                    self.assertIn(f"log_dir='{log_dir}' resumes there", errors)
                else:
                    self.assertEqual(child.returncode, -signal.SIGKILL)
        trials = [json.loads(line) for line in finished.splitlines()[1:]]
        self.assertEqual([trial["index"] for trial in trials], list(range(_TRIALS)))
        assignments = [trial["assignment"] and tuple(trial["assignment"]) for trial in trials]
        self.assertEqual(assignments, self.find_expected_assignments(graph))
        measured = [tuple(t["assignment"] or ()) for t in trials if t["repeats"] is None]
        self.assertLen(set(measured), len(measured))


if __name__ == "__main__":
    tf.test.main()
