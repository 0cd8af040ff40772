"""Tests of searches whose placers need the costs of operations."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import pathlib
import re
import shutil
from typing import Any, ClassVar
from unittest import mock

import numpy as np
import tensorflow as tf

from graph_passes.pipeline import group_operations
from tests import graphs
from tests.tf_placer.left_behind import leave_stale_directory
from tests.tf_placer.scripted import Script, request_directory, uses_two_devices
from tf_placer import placers
from tf_placer.confirmation.outcome import Outcome
from tf_placer.costs.costed_graph import CostedGraph
from tf_placer.costs.operation_costs import OperationCosts
from tf_placer.errors import SearchError
from tf_placer.inputs.workload import Workload, read_workload
from tf_placer.interrupts import TimeLimitReached
from tf_placer.live import conclusion, own_processes
from tf_placer.live import run as live_run
from tf_placer.live.time_plan import TimePlan
from tf_placer.machines.lookup import find_machine
from tf_placer.machines.machine import Link, Machine
from tf_placer.placers.placer import Placer
from tf_placer.placers.registry import PlacerEntry
from tf_placer.problem.placement_problem import PlacementProblem
from tf_placer.problem.problem_file import problem_to_json, read_problem
from tf_placer.problem.problem_groups import device_secs, legal_devices
from tf_placer.report.auto_table import explanation_table
from tf_placer.report.explanation import Explanation
from tf_placer.report.progress import ProgressPrinter
from tf_placer.runs.run_directory import RunDirectory
from tf_placer.runs.verdict import verdict
from tf_placer.search.distributed import placer_setup
from tf_placer.search.log_header import LogMismatchError
from tf_placer.search.trial_log import read_log


class Cheapest(Placer):
    """Proposes the fastest device of each group, once; records its problem."""

    batch_size = 1
    problems: ClassVar[list[PlacementProblem]] = []

    def __init__(self, groups, legal, *, seed: int, problem: PlacementProblem) -> None:
        super().__init__(groups, legal, seed=seed)
        assert (legal_devices(problem) == legal).all()
        self.name = "cheapest"
        self.problems.append(problem)
        self._secs = device_secs(problem)
        self._done = False

    def propose(self, count: int) -> np.ndarray:
        rows = self._secs.argmin(axis=1)[None].astype(np.int32)
        return rows[: 0 if self._done else count]

    def observe(self, placements, measurements) -> None:
        self._done = True


class Profiler:
    """Replaces `cost_graph`; every other operation is slower on the first device."""

    def __init__(self) -> None:
        self.settings: list[dict[str, Any]] = []
        self.known_secs: dict[tuple[int, ...], float] = {}
        self.error: Exception | None = None
        self.memory_bytes = 2**30
        self.work_dirs: list[list[str]] = []

    def __call__(
        self,
        workload: Workload,
        machine: Machine,
        *,
        steps,
        granularity,
        session_config,
        work_dir,
        environment,
        report,
        known_secs,
        max_secs,
        restrictions,
    ) -> CostedGraph:
        assert restrictions is None
        assert 0 < max_secs < math.inf
        self.settings.append(
            {"steps": steps, "granularity": granularity, "session_config": session_config}
        )
        self.work_dirs.append(os.listdir(work_dir))
        self.known_secs = known_secs
        if self.error is not None:
            raise self.error
        graph = workload.op_graph
        secs = np.ones((graph.num_operations, len(machine.devices)))
        secs[::2, 0] = 1 + len(self.settings)
        costs = OperationCosts(
            secs,
            np.zeros(graph.num_operations, np.int64),
            np.maximum(graph.tensor_bytes, 0),
            "profiled",
        )
        names = [device.name for device in machine.devices]
        known = dataclasses.replace(
            machine,
            devices=tuple(
                dataclasses.replace(d, memory_bytes=self.memory_bytes) for d in machine.devices
            ),
            links=tuple(Link(a, b, 1e-5, 1e9) for a in names for b in names if a != b),
        )
        return CostedGraph(group_operations(graph, granularity), known, costs)


class LiveCostsTest(tf.test.TestCase):
    def setUp(self):
        super().setUp()
        self.directory = RunDirectory(pathlib.Path(self.create_tempdir().full_path) / "run")
        self.lines: list[str] = []
        self.profiler = Profiler()
        self.script = Script()
        Cheapest.problems.clear()
        entry = PlacerEntry("cheapest", "", "", f"{__name__}:Cheapest", needs_problem=True)
        # Hide searches that run on this computer at the same time.
        cache = self.create_tempdir().full_path
        for patch in (
            mock.patch.dict(os.environ, {"XDG_CACHE_HOME": cache}),
            mock.patch.dict(placers.PLACERS, {"cheapest": entry}),
            mock.patch.object(own_processes, "cost_graph", self.profiler),
        ):
            patch.start()
            self.addCleanup(patch.stop)

    def run_search(self, graph: tf.Graph | None = None, **changes) -> Outcome:
        workload = read_workload(graph or graphs.two_branches().graph, ["result:0"])
        changes = {"placer": "cheapest", **changes}
        asked = request_directory(self.create_tempdir().full_path, workload, **changes)
        self.lines.clear()
        return live_run.run(
            asked, self.directory, ProgressPrinter(self.lines.append), self.script.environment
        )

    def has_line(self, text: str) -> bool:
        return any(text in line for line in self.lines)

    def files(self) -> dict[str, bytes]:
        root = self.directory.path
        return {
            str(path.relative_to(root)): path.read_bytes()
            for path in root.rglob("*")
            if path.is_file()
        }

    def test_profiles_the_graph_before_the_placer_is_made(self):
        config = tf.compat.v1.ConfigProto(inter_op_parallelism_threads=3)
        self.run_search(config=config)
        self.assertEqual(
            self.profiler.settings,
            [{"steps": 10, "granularity": "coarse", "session_config": config}],
        )
        [problem] = Cheapest.problems
        header, trials = read_log(self.directory.trials)
        order = list(dict.fromkeys(trial.placer for trial in trials))
        # On two equal workers, all operations on one device are the original.
        self.assertEqual(order, ["original", "expert", "cheapest"])
        cheapest = device_secs(problem).argmin(axis=1)
        self.assertEqual(trials[-1].assignment, tuple(cheapest.tolist()))
        self.assertEqual(header["costs"], "profiled")
        self.assertTrue(self.has_line("placer 'cheapest' needs to know what the operations cost: "))
        self.assertTrue(self.has_line(f"profiled {problem.num_operations} operations and"))
        self.assertTrue(self.has_line(f" s; the costs are in {self.directory.problem}"))

    def test_a_step_that_was_measured_is_not_measured_again_for_its_costs(self):
        self.run_search()
        [problem] = Cheapest.problems
        _, trials = read_log(self.directory.trials)
        # Without devices, everything is on the first one.
        expected = {(0,) * problem.num_groups: trials[0].measurement.median_secs}
        expected |= {
            trial.assignment: trial.measurement.median_secs
            for trial in trials
            if trial.placer == "expert"
        }
        self.assertGreater(len(expected), 1)
        self.assertEqual(self.profiler.known_secs, expected)

    def test_profiling_that_takes_too_long_is_given_up(self):
        self.profiler.error = TimeLimitReached()
        self.run_search()
        given_up = re.compile(
            r"placer 'cheapest' needs to know what the operations cost\. Profiling the graph was "
            r"given up after \d+ s; about [\d.]+ s were expected\. Allow at least \d+ s"
        )
        self.assertRegex("\n".join(self.lines), given_up)
        # The search ends with the trials before, and the same call resumes it.
        result = self.directory.read_result()
        self.assertRegex(result.note, given_up)
        self.assertFalse(result.is_complete)

    def test_says_why_the_placer_ended_before_the_time(self):
        self.script.secs = lambda assignment: 1.0 if assignment else 0.01
        self.run_search(placer="auto", max_trials=100)
        ended = [line for line in self.lines if " ended: " in line]
        self.assertLen(ended, 1)
        self.assertStartsWith(ended[0], "auto ended: it")
        self.assertTrue(self.directory.read_result().has_placer_ended)
        # Baselines and searches that the budget ends are no placers that end.
        self.directory = RunDirectory(self.create_tempdir().full_path)
        self.run_search(placer="random")
        self.assertFalse(self.has_line(" ended: "))
        self.assertFalse(self.directory.read_result().has_placer_ended)

    def test_profiles_in_the_time_of_a_confirmation_where_nothing_is_faster(self):
        # Four rounds of the original and the baseline, and the work after them, would take 62 s of
        # 70 s, and profiling would take 16 s.
        self.script.secs = lambda assignment: 1.1 if assignment else 0.9
        self.assertEqual(self.run_search(max_secs=70.0), Outcome.NOT_FASTER)
        self.assertLen(self.profiler.settings, 1)
        self.assertEqual(read_log(self.directory.trials)[1][-1].placer, "cheapest")

    def test_without_time_to_profile_there_is_no_verdict(self):
        for baseline_secs, left, measured in (
            (1.1, r"are left for it\. ", "No trial was faster"),
            (0.8, r"are left for it before the confirmation\. ", "The best is at most 1.00 tim"),
        ):
            self.directory = RunDirectory(self.create_tempdir().full_path)
            self.script = script = Script()
            script.secs = lambda assignment, secs=baseline_secs, script=script: (
                secs if assignment and not script.confirmed else 0.9
            )
            with mock.patch.object(TimePlan, "profile_secs", return_value=100.0):
                self.assertEqual(self.run_search(max_secs=60.0), Outcome.NO_TIME)
            result = self.directory.read_result()
            self.assertFalse(result.is_complete)
            text = verdict(result)
            self.assertStartsWith(
                text,
                "no baseline is faster than the original, beyond the noise, and there was no time "
                "for the placer. Placer 'cheapest' needs to know",
            )
            self.assertRegex(text, left)
            self.assertIn(measured, text)
            # The advice is the estimate after the first trial, which exceeds the time anyway.
            advice = re.findall(r"llow about (\d+) s", "\n".join([*self.lines, text]))
            self.assertGreater(len(advice), 1)
            self.assertLen(set(advice), 1)

    def test_a_speedup_without_costs_is_told_as_success(self):
        self.profiler.error = TimeLimitReached()
        self.script.secs = lambda assignment: 0.05 if uses_two_devices(assignment) else 0.1
        self.assertEqual(self.run_search(), Outcome.FASTER)
        result = self.directory.read_result()
        self.assertRegex(
            result.note, r"[Ww]ith at least \d+ s, placer 'cheapest' would try more placements$"
        )
        self.assertNotIn("needs to know", result.note)
        # The same call resumes the search.
        self.assertFalse(result.is_complete)

    def test_progress_has_a_bound_once_costs_are_known_and_may_end_there(self):
        self.run_search()
        lines = [line for line in self.lines if " trial " in line]
        self.assertNotIn("bound", lines[0])
        self.assertRegex(lines[-1], r"\| bound \S+ m?s, gap \d+% \|")
        num_trials = len(read_log(self.directory.trials)[1])
        self.directory = RunDirectory(self.directory.path.with_name("near"))
        self.run_search(placer="auto", stop_at_gap=1e6)
        self.assertEqual(len(read_log(self.directory.trials)[1]), num_trials)
        self.assertTrue(self.has_line("as near to the lower bound as stop_at_gap asks for"))

    def test_costs_that_the_machine_describes_need_no_time_for_profiling(self):
        with mock.patch.object(TimePlan, "profile_secs", return_value=1e6):
            self.run_search()
            self.assertEqual(self.profiler.settings, [])
            self.assertTrue(self.has_line("Profiling the graph takes about 277 h"))
            self.directory = RunDirectory(self.directory.path.with_name("described"))
            with mock.patch.object(Machine, "describes_costs", True):
                self.run_search()
        self.assertLen(self.profiler.settings, 1)
        self.assertFalse(self.has_line("are little for this graph"))

    def test_a_search_for_what_fits_ends_with_the_first_placement_that_runs(self):
        self.script.secs = lambda assignment: 0.05 if assignment else None
        self.assertEqual(self.run_search(objective="fit"), Outcome.FASTER)
        _, trials = read_log(self.directory.trials)
        # The placer knows what fits, so it comes before the baselines.
        self.assertEqual([trial.placer for trial in trials], ["original", "cheapest"])
        self.assertTrue(self.has_line("a placement runs, and objective 'fit' asks for no more"))
        self.assertRegex(
            self.directory.read_result().note,
            r"^by simulation it takes .* of 1\.000 GiB on task:0/CPU:0, .* of 1\.000 GiB on "
            r"task:1/CPU:0, and the original \S+ \S*B on task:0/CPU:0",
        )

    def test_a_search_for_what_fits_tries_the_baselines_if_the_placer_finds_nothing(self):
        self.script.secs = lambda a: 0.05 if uses_two_devices(a) else None
        self.profiler.error = SearchError("no step could be traced")
        self.assertEqual(self.run_search(objective="fit"), Outcome.FASTER)
        _, trials = read_log(self.directory.trials)
        self.assertEqual(
            [trial.placer for trial in trials if trial.measurement.step_secs], ["expert"]
        )

    def test_a_search_for_what_fits_ends_with_an_original_that_runs(self):
        for _ in range(2):
            self.assertEqual(self.run_search(objective="fit"), Outcome.FITS)
            self.assertLen(read_log(self.directory.trials)[1], 1)
            self.assertEqual(self.script.confirmed, [])
            self.assertLen(self.script.measured, 1)
        self.assertIn("the original runs, and objective", verdict(self.directory.read_result()))
        self.assertFalse(self.directory.placement.exists())

    def test_limits_of_memory_and_the_objective_make_another_search(self):
        self.run_search()
        for field, value in (
            ("max_memory", {"CPU": 10**6}),
            ("headroom", 0.5),
            ("objective", "fit"),
        ):
            with self.assertRaisesRegex(LogMismatchError, f"a log of another {field}"):
                self.run_search(**{field: value})

    def test_says_how_much_memory_would_do_if_nothing_runs(self):
        self.script.secs = lambda assignment: None
        with mock.patch.object(conclusion, "_LEAST_MEMORY_SECS", 0.5):
            self.run_search()
            self.assertNotIn("would do", self.directory.read_result().note)
            self.directory = RunDirectory(self.directory.path.with_name("small"))
            self.profiler.memory_bytes = 100
            self.assertEqual(self.run_search(), Outcome.NOTHING_RUNS)
        self.assertRegex(
            self.directory.read_result().note,
            r"too large\. By simulation \S+ \S*B on each of task:0/CPU:0, task:1/CPU:0 would do",
        )

    def test_writes_costs_with_their_origin(self):
        self.run_search()
        [problem] = Cheapest.problems
        kept = read_problem(self.directory.problem)
        self.assertEqual(problem_to_json(kept), problem_to_json(problem))
        profile = json.loads(self.directory.profile.read_text())
        header, _ = read_log(self.directory.trials)
        for field in ("graph_fingerprint", "grouping_fingerprint", "machine", "versions"):
            self.assertEqual(profile[field], header[field])
        self.assertGreaterEqual(profile["secs"], 0)

    def test_a_resumed_search_is_not_profiled_again(self):
        self.run_search(max_trials=6)
        before = self.files()
        self.run_search(max_trials=12)
        self.assertLen(self.profiler.settings, 1)
        first, second = Cheapest.problems
        self.assertEqual(problem_to_json(first), problem_to_json(second))
        self.assertTrue(self.has_line(f"costs are those in {self.directory.problem}, which took"))
        after = self.files()
        for name in ("problem.json", "profile.json"):
            self.assertEqual(after[name], before[name])
        self.assertStartsWith(after["trials.jsonl"], before["trials.jsonl"])

    def test_a_finished_search_called_again_changes_nothing(self):
        self.script.secs = lambda assignment: 0.05 if uses_two_devices(assignment) else 0.1
        self.assertEqual(self.run_search(), Outcome.FASTER)
        before = self.files()
        measured = len(self.script.measured) + len(self.script.confirmed)
        self.assertEqual(self.run_search(), Outcome.FASTER)
        self.assertLen(self.script.measured + self.script.confirmed, measured)
        after = self.files()
        # Compare no other content: the graph file is another serialization of the same graph.
        self.assertEqual(after.keys(), before.keys())
        self.assertEqual(after["trials.jsonl"], before["trials.jsonl"])

    def copy_costs_to_new_directory(self) -> None:
        """Starts a new directory with nothing but the costs of the last search."""
        old, self.directory = self.directory, RunDirectory(self.create_tempdir().full_path)
        for path in (old.problem, old.profile):
            shutil.copy(path, self.directory.path)

    def test_another_search_of_the_same_graph_uses_the_costs(self):
        self.run_search()
        self.copy_costs_to_new_directory()
        self.run_search(seed=1, max_trials=5)
        self.assertLen(self.profiler.settings, 1)

    def test_profiles_again_if_costs_are_of_another_graph_or_machine(self):
        other = graphs.two_branches().graph
        with other.as_default():
            tf.constant(1.0)
        for changes, noun in (
            ({"graph": other}, "graph"),
            ({"machine": find_machine("local:3")}, "machine"),
            ({"config": tf.compat.v1.ConfigProto(inter_op_parallelism_threads=1)}, "session conf"),
        ):
            with self.subTest(noun):
                self.directory = RunDirectory(self.create_tempdir().full_path)
                self.run_search()
                self.copy_costs_to_new_directory()
                self.run_search(**changes)
                self.assertTrue(self.has_line(f"are not used: they are of another {noun}"))
                self.assertTrue(self.has_line("needs to know what the operations cost: profiling"))
                # The new costs have replaced them.
                self.run_search(max_trials=13, **changes)
                self.assertTrue(self.has_line("the costs are those in"))
        self.assertLen(self.profiler.settings, 6)

    def test_profiles_again_if_costs_are_damaged(self):
        def change_slots(path: pathlib.Path) -> None:
            path.write_text(path.read_text().replace('"slots": 1', '"slots": 2'))

        def later(path: pathlib.Path) -> None:
            path.write_text(json.dumps({**json.loads(path.read_text()), "format": 2}))

        for damage, file, message in (
            (change_slots, "problem.json", "not used: the file has been changed"),
            (later, "profile.json", "profile.json has format 2, not 1"),
            (lambda path: path.write_text("{}"), "profile.json", "does not say what they are of"),
            (lambda path: path.write_text("[]"), "profile.json", "does not say what they are of"),
            (lambda path: path.write_text("{"), "profile.json", "does not say what they are of"),
            (pathlib.Path.unlink, "profile.json", "profiling the graph"),
            (pathlib.Path.unlink, "problem.json", "profiling the graph"),
        ):
            with self.subTest(message):
                self.run_search()
                trials = read_log(self.directory.trials)[1]
                count = len(self.profiler.settings)
                damage(self.directory.path / file)
                self.directory.result.unlink()
                self.run_search()
                self.assertTrue(self.has_line(message), self.lines)
                self.assertLen(self.profiler.settings, count + 1)
                # The log keeps its trials.
                self.assertEqual(read_log(self.directory.trials)[1], trials)
                self.directory.result.unlink()
                self.run_search()
                self.assertLen(self.profiler.settings, count + 1)

    def test_refuses_the_log_of_another_search_before_profiling(self):
        self.run_search()
        before = self.files()
        with self.assertRaisesRegex(LogMismatchError, "another seed"):
            self.run_search(seed=1)
        self.assertLen(self.profiler.settings, 1)
        self.assertEqual(self.files(), before)

    def test_tries_only_baselines_if_the_graph_cannot_be_profiled(self):
        self.profiler.error = SearchError("no step of the graph could be traced on CPU:0: no table")
        self.script.secs = lambda assignment: 0.05 if uses_two_devices(assignment) else 0.1
        self.assertEqual(self.run_search(), Outcome.FASTER)
        self.assertRegex(
            self.directory.read_result().note,
            "^placer 'cheapest' needs to know .* cost, but no step .* no table",
        )
        self.assertNotIn("cheapest", {trial.placer for trial in read_log(self.directory.trials)[1]})
        self.assertFalse(self.directory.problem.exists())
        # The search resumes once the graph can be profiled.
        self.profiler.error = None
        self.run_search()
        self.assertEqual(read_log(self.directory.trials)[1][-1].placer, "cheapest")

    def test_does_not_profile_if_baselines_take_all_trials(self):
        self.run_search(max_trials=2)
        self.assertEqual(self.profiler.settings, [])

    def test_the_explanation_compares_predictions_with_measurements(self):
        self.script.secs = lambda assignment: 0.05 if uses_two_devices(assignment) else 0.1
        self.run_search()
        explanation = Explanation.from_json(self.directory.read_result().explanation)
        result = self.directory.read_result()
        candidates = {candidate.label: candidate for candidate in explanation.candidates}
        self.assertEqual(explanation.label, result.winner)
        self.assertEqual(next(iter(candidates)), "original")
        self.assertContainsSubset(result.finalists, candidates)
        self.assertAlmostEqual(candidates["original"].measured_secs, 0.1)
        self.assertAlmostEqual(candidates[explanation.label].measured_secs, 0.05)
        self.assertGreater(candidates["original"].predicted_secs, 0.0)
        self.assertEqual(Explanation.from_json(explanation.to_json()), explanation)
        self.assertIn("lower bound", explanation_table(explanation))

    def test_the_explanation_tolerates_a_slower_machine_in_the_confirmation(self):
        def secs(assignment):
            slowness = 3.0 if self.script.confirmed else 1.0
            return slowness * (0.05 if uses_two_devices(assignment) else 0.1)

        self.script.secs = secs
        self.run_search()
        explanation = Explanation.from_json(self.directory.read_result().explanation)
        # All steps are those beside the original in the confirmation.
        self.assertEqual({round(c.measured_secs, 9) for c in explanation.candidates}, {0.15, 0.3})
        self.assertLess(explanation.limits.step_secs, 0.33)

    def test_placers_that_need_no_costs_use_existing_ones(self):
        made: list[PlacementProblem | None] = []
        make = placers.make_placer

        def make_and_record(name, groups, legal, **settings):
            made.append(settings["problem"])
            return make(name, groups, legal, **settings)

        with mock.patch.object(placer_setup, "make_placer", make_and_record):
            self.run_search(placer="random", max_trials=5)
            self.assertEqual(set(made), {None})
            self.assertNotIn("costs", read_log(self.directory.trials)[0])
            self.assertEqual(self.profiler.settings, [])

            self.directory = RunDirectory(self.create_tempdir().full_path)
            self.run_search()
            made.clear()
            self.copy_costs_to_new_directory()
            self.run_search(placer="random", max_trials=5)
            self.assertNotIn(None, made)
            self.assertEqual(read_log(self.directory.trials)[0]["costs"], "profiled")
        # The same call without costs is another search.
        os.unlink(self.directory.problem)
        with self.assertRaisesRegex(LogMismatchError, "another costs"):
            self.run_search(placer="random")
        self.assertLen(self.profiler.settings, 1)

    def test_profiling_removes_files_of_a_killed_search(self):
        self.directory.path.mkdir(exist_ok=True)
        left = leave_stale_directory(self.directory.path)
        self.run_search()
        [there] = self.profiler.work_dirs
        self.assertNotIn(left.name, there)


if __name__ == "__main__":
    tf.test.main()
