"""Tests of complete searches with scripted measurements: verdicts, time limits, resuming."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import io
import json
import os
import pathlib
import re
import shutil
import tempfile
import threading
import time
from unittest import mock

import numpy as np
import tensorflow as tf

from graph_passes import placement
from graph_passes.pipeline import group_operations
from graph_passes.placement import Placement, read_placement, write_placement
from graph_passes.util.atomic_write import write_atomically
from tests import graphs
from tests.graph_parts import TestGraph
from tests.tf_placer.doubles import LearningPlacer
from tests.tf_placer.left_behind import leave_stale_directory
from tests.tf_placer.placers import users_placers
from tests.tf_placer.scripted import ORIGINAL_SECS, Script, request_directory, uses_two_devices
from tf_placer.confirmation.outcome import Outcome
from tf_placer.confirmation.round_statistics import LEAST_ROUNDS
from tf_placer.environments.measuring_protocol import COLOCRL, EAGLE
from tf_placer.errors import SearchError
from tf_placer.inputs.workload import read_workload
from tf_placer.interrupts import TimeLimitReached
from tf_placer.live import conclusion, job_search, time_plan
from tf_placer.live import run as live_run
from tf_placer.live.context import SearchContext
from tf_placer.machines.lookup import find_machine
from tf_placer.machines.machine import Device, Machine
from tf_placer.placers import make_placer
from tf_placer.report.progress import ProgressPrinter
from tf_placer.runs import run_directory
from tf_placer.runs.run_directory import RunDirectory
from tf_placer.runs.run_lock import RunLock
from tf_placer.search.distributed import placer_setup
from tf_placer.search.driver import GraphDoesNotRunError
from tf_placer.search.log_header import LogError, LogMismatchError
from tf_placer.search.training_log import read_training_log
from tf_placer.search.trial_log import read_log

tf1 = tf.compat.v1


def split_is_faster(assignment) -> float:
    return ORIGINAL_SECS / 2 if uses_two_devices(assignment) else ORIGINAL_SECS


_COLOCATION_GROUP_PLACER = {"placer": "post", "placer_options": {"grouper": "fine"}}


# A computer whose GPUs have room for nothing.
GPU_MACHINE = Machine(
    "attached",
    "attached",
    (
        Device("/job:localhost/replica:0/task:0/device:CPU:0", "CPU"),
        *(
            Device(f"/job:localhost/replica:0/task:0/device:GPU:{number}", "GPU", memory_bytes=1)
            for number in range(2)
        ),
    ),
)


class RunTest(tf.test.TestCase):
    def setUp(self):
        super().setUp()
        self.directory = RunDirectory(pathlib.Path(self.create_tempdir().full_path) / "run")
        self.lines: list[str] = []
        # Hide searches that run on this computer at the same time.
        cache = self.create_tempdir().full_path
        self.enter_context(mock.patch.dict(os.environ, {"XDG_CACHE_HOME": cache}))
        # Built once, because two serializations of one graph may differ.
        self.graph_def = graphs.two_branches().graph.as_graph_def()

    def run_search(
        self,
        script: Script,
        given: TestGraph | None = None,
        config: tf1.ConfigProto | None = None,
        graph_def: tf1.GraphDef | None = None,
        begun_secs: float = 0.0,
        **changes,
    ) -> Outcome:
        given = given or graphs.two_branches()
        workload = read_workload(graph_def or given.graph, given.fetches)
        return live_run.run(
            request_directory(self.create_tempdir().full_path, workload, config=config, **changes),
            self.directory,
            ProgressPrinter(self.lines.append),
            script.environment,
            start_secs=time.monotonic() - begun_secs,
        )

    def hash_files(self) -> dict[str, str]:
        """Computes a hash of every file of the directory, by its path there."""
        root = self.directory.path
        return {
            str(path.relative_to(root)): hashlib.sha256(path.read_bytes()).hexdigest()
            for path in root.rglob("*")
            if path.is_file()
        }

    def test_writes_a_faster_placement_with_its_provenance(self):
        script = Script(secs=split_is_faster)
        self.assertEqual(self.run_search(script), Outcome.FASTER)
        placement = read_placement(self.directory.placement)
        self.assertTrue(uses_two_devices(placement.assignment))
        self.assertAlmostEqual(placement.measurement["speedup"], 2.0)
        result = self.directory.read_result()
        header, trials = read_log(self.directory.trials)
        self.assertEqual(placement.graph_fingerprint, header["graph_fingerprint"])
        won = trials[placement.provenance["trial"]]
        self.assertEqual(result.finalists[result.winner], won.index)
        self.assertEqual(placement.provenance["placer"], won.placer)
        self.assertEqual(result.num_trials, len(trials))
        self.assertLen(trials, 12)

    def test_measures_the_original_first_and_baselines_before_the_placer(self):
        self.run_search(Script(secs=split_is_faster))
        _, trials = read_log(self.directory.trials)
        order = list(dict.fromkeys(trial.placer for trial in trials))
        self.assertEqual(order, ["original", "expert", "random"])

    def test_placers_of_users_have_the_names_that_they_are_imported_by(self):
        name = f"{users_placers.__name__}:LastDevice"
        self.run_search(Script(secs=split_is_faster), placer=name)
        header, trials = read_log(self.directory.trials)
        self.assertEqual(header["placer"], name)
        self.assertEqual(trials[-1].placer, name)
        self.assertIn(1, trials[-1].assignment)
        other = f"{users_placers.__name__}:make_last_device"
        with self.assertRaisesRegex(LogMismatchError, f"another placer: .* has placer .*{name}"):
            self.run_search(Script(secs=split_is_faster), placer=other)

    def test_a_placer_that_fails_when_it_is_made_is_named(self):
        name = f"{users_placers.__name__}:Fails"
        with self.assertRaisesRegex(ValueError, f"{name}' cannot be made: KeyError"):
            self.run_search(Script(secs=split_is_faster), placer=name)

    def test_a_placer_that_fails_to_propose_fails_the_search(self):
        name = f"{users_placers.__name__}:FailsToPropose"
        with self.assertRaisesRegex(SearchError, f"{name}' failed in propose: KeyError: 'oops'"):
            self.run_search(Script(secs=split_is_faster), placer=name)
        _, trials = read_log(self.directory.trials)
        self.assertEqual(trials[-1].placer, "expert")

    def test_an_error_in_the_code_of_a_user_is_told_with_its_line(self):
        def fail(*args, **settings):
            return {}["x"]

        parent = mock.Mock(
            settings={
                "directory": str(self.directory.path),
                "request": str(self.directory.path),
                "clear_by": None,
                "start_secs": 0.0,
                "host": None,
            }
        )
        parent.receive.side_effect = threading.Event().wait
        line = fail.__code__.co_firstlineno + 1
        with mock.patch.object(live_run, "run", fail), contextlib.redirect_stderr(io.StringIO()):
            live_run.answer_request(parent, mock.Mock())
        error = f"KeyError: 'x' ({__file__}, line {line}, in fail)"
        parent.send.assert_called_once_with({"error": error, "kind": ""})

    def test_the_file_of_a_request_is_not_blamed_for_a_missing_placer(self):
        given = graphs.two_branches()
        workload = read_workload(given.graph, given.fetches)
        request = request_directory(self.create_tempdir().full_path, workload)
        path = request.path / "request.json"
        path.write_text(path.read_text().replace('"random"', '"gone:Mine"'))
        with self.assertRaisesRegex(ValueError, "^no placer 'gone:Mine'"):
            request.read_request()

    def test_enters_the_stage_of_measuring_while_placements_are_measured(self):
        stages: list[str] = []
        during: list[str] = []

        def secs(assignment):
            during.append(stages[-1])
            return split_is_faster(assignment)

        with mock.patch.object(live_run.Stages, "enter", lambda _, stage: stages.append(stage)):
            self.run_search(Script(secs=secs))
        self.assertIn("choosing what to measure next", stages)
        self.assertIn("measuring placements", during)
        self.assertNotIn("choosing what to measure next", during)

    def test_confirms_with_the_meta_optimizer_and_searches_without_it(self):
        config = tf1.ConfigProto(inter_op_parallelism_threads=3)
        script = Script(secs=split_is_faster)
        self.run_search(script, config=config, max_secs=60.0)
        searching, confirming = script.made
        self.assertEqual(searching["session_config"], config)
        self.assertEqual(confirming["session_config"], config)
        self.assertFalse(searching["meta_optimizer"])
        self.assertTrue(confirming["meta_optimizer"])
        self.assertIn({}, script.measured)
        # One round selects the candidate; all others agree, so the minimum decides.
        self.assertEqual(script.confirmed.count({}), 1 + LEAST_ROUNDS)

    def test_measures_the_original_in_one_process_on_all_cores(self):
        for secs in (0.15, 0.02, None):
            self.directory = RunDirectory(self.create_tempdir().full_path)
            self.run_search(Script(secs=split_is_faster, one_process_secs=secs))
            result = self.directory.read_result()
            self.assertEqual(result.one_process_secs, secs)
            self.assertEqual(
                "not compared with the original in one" in (result.note or ""), secs is None
            )

    def test_one_process_is_measured_even_if_the_confirmation_has_used_all_time(self):
        environment, context = mock.MagicMock(), mock.MagicMock()
        environment.open_session.return_value = None
        environment.run_steps.return_value = (0.2, 0.1, 0.1, 0.1)
        context.config.max_secs, context.plan.explain_secs = 100.0, 1.0
        for left_secs, expected_secs in ((-3.0, 10.0), (31.0, 30.0)):
            context.plan.compute_secs_left.return_value = left_secs
            self.assertEqual(conclusion._measure_one_process(context, environment), 0.1)
            context.interrupts.interruptible.assert_called_with(1, expected_secs)

    def test_tells_the_verdict_before_it_measures_one_process_and_explains(self):
        self.run_search(Script(secs=split_is_faster, one_process_secs=0.15))
        said = [line.partition(":")[0] for line in self.lines]
        confirmed = said.index("confirmed")
        self.assertIn("2.00 times as fast as the original (95 %", self.lines[confirmed])
        self.assertLess(
            said.index("comparing the values that the placed graph computes"), confirmed
        )
        self.assertLess(confirmed, said.index("measuring the original in one process on all cores"))

    def test_one_process_on_all_cores_has_no_part_of_a_limited_memory(self):
        script = Script(secs=split_is_faster, one_process_secs=0.2)
        self.run_search(script, machine=find_machine("local:2,memory_mb=100"))
        self.assertIsNone(self.directory.read_result().note)

    def test_leaves_out_finalists_for_which_there_is_no_time(self):
        def slow(assignment):
            return 5.0 if uses_two_devices(assignment) else 10.0

        # Steps of the original take 10 s, those of the three faster placements 5 s. A round of two
        # labels takes 110 s, 20 s of it to open sessions, and the plan reserves seven rounds.
        # Selecting among three candidates takes another 170 s, among two 140 s, and the work after
        # the confirmation 50 s.
        for max_secs, candidates in ((1010.0, 3), (975.0, 2), (900.0, 1), (600.0, 1)):
            self.directory = RunDirectory(self.create_tempdir().full_path)
            script = Script(secs=slow)
            self.run_search(script, max_secs=max_secs, max_trials=10)
            selection = 1 + candidates if candidates > 1 else 0
            self.assertLen(script.confirmed, selection + 2 * LEAST_ROUNDS, max_secs)

    def test_the_second_best_wins_if_the_fastest_computes_other_values(self):
        fastest: list[object] = []

        def secs(assignment):
            if not uses_two_devices(assignment):
                return ORIGINAL_SECS
            if assignment not in fastest:
                fastest.append(assignment)
            return ORIGINAL_SECS / (2.0 if assignment == fastest[0] else 1.9)

        def values(assignment):
            return {"loss:0@1": np.float32(2 if assignment == fastest[0] else 1)}

        self.assertEqual(self.run_search(Script(secs, values)), Outcome.FASTER)
        placement = read_placement(self.directory.placement)
        self.assertAlmostEqual(placement.measurement["speedup"], 1.9)
        self.assertIn("does not compute the same", self.directory.read_result().note)

    def test_confirms_nothing_if_no_trial_was_faster(self):
        script = Script(lambda a: 1.5 * ORIGINAL_SECS if a else ORIGINAL_SECS)
        self.assertEqual(self.run_search(script), Outcome.NOT_FASTER)
        self.assertEmpty(script.confirmed)
        self.assertIn("none was measured again", self.directory.read_result().note)

    def test_reports_that_time_ran_out_before_the_placer_began(self):
        passed_secs = [0.0]

        def slower(assignment):
            passed_secs[0] += 400.0 if assignment else 0.0
            return 2 * ORIGINAL_SECS if assignment else ORIGINAL_SECS

        clock = mock.Mock(monotonic=lambda: time.monotonic() + passed_secs[0])
        with mock.patch.object(time_plan, "time", clock):
            self.assertEqual(self.run_search(Script(slower), max_secs=300.0), Outcome.NO_TIME)
        _, trials = read_log(self.directory.trials)
        self.assertNotIn("random", [trial.placer for trial in trials])
        self.assertRegex(
            self.directory.read_result().note,
            rf"again. 300 s were over after {len(trials)} trials, before a placement of placer "
            "'random' was measured: allow about 450 s",
        )
        # A placer that began, or that lacked trials instead of time, is not mentioned.
        for max_trials in (3, 12):
            self.directory = RunDirectory(self.create_tempdir().full_path)
            self.run_search(Script(slower), max_secs=300.0, max_trials=max_trials)
            self.assertNotIn("began", self.directory.read_result().note)

    def run_with_fake_clock(self, script: Script, **changes) -> Outcome:
        """Runs a search of 300 s by a clock that only scripts advance."""
        self.clock = mock.Mock(monotonic=lambda: self.now_secs)
        self.now_secs = time.monotonic()
        with mock.patch.object(time_plan, "time", self.clock):
            return self.run_search(script, max_secs=300.0, **changes)

    def end_time(self) -> None:
        self.now_secs += 301.0
        raise TimeLimitReached

    def test_cancels_an_original_that_exceeds_the_time_limit(self):
        def secs(_):
            self.end_time()

        self.assertEqual(self.run_with_fake_clock(Script(secs)), Outcome.NO_TIME)
        result = self.directory.read_result()
        self.assertEqual(result.num_trials, 0)
        self.assertRegex(
            result.note,
            "^of 300 s, reading the graph and starting the search took .*, and starting processes "
            "and the first steps of the original take more than the .* that were left",
        )
        self.assertEmpty(read_log(self.directory.trials)[1])
        # The same call retries, because the machine may have been busy.
        self.assertFalse(result.is_complete)
        script = Script(secs=split_is_faster)
        self.assertEqual(self.run_with_fake_clock(script), Outcome.FASTER)

    def test_cancels_and_discards_a_trial_that_needs_the_time_of_the_confirmation(self):
        script = Script()

        def secs(assignment):
            if len(script.measured) == 6 and not script.confirmed:
                # Use up the time of the search, but not that of the confirmation.
                self.now_secs += 285.0
                raise TimeLimitReached
            return split_is_faster(assignment)

        script.secs = secs
        self.assertEqual(self.run_with_fake_clock(script), Outcome.FASTER)
        _, trials = read_log(self.directory.trials)
        self.assertEqual(sum(each.repeats is None for each in trials), 5)
        self.assertTrue(all(each.measurement.failure is None for each in trials))

    def test_a_canceled_confirmation_has_no_winner(self):
        for rounds, note in (
            (0, "no time left of 300 s to measure .* again"),
            (2, "no time for more, and .* is about 2.00x original in 2 of the 4 rounds"),
        ):
            self.directory = RunDirectory(self.create_tempdir().full_path)
            script = Script()

            def secs(assignment, rounds=rounds, script=script):
                # The original is opened once per round: in the selection, then in each round.
                if script.confirmed.count({}) > 1 + rounds:
                    self.end_time()
                return split_is_faster(assignment)

            script.secs = secs
            self.assertEqual(self.run_with_fake_clock(script), Outcome.NOT_CONFIRMED)
            self.assertRegex(self.directory.read_result().note, note)
            self.assertFalse(self.directory.placement.exists())

    def test_profiles_a_graph_if_only_measuring_links_would_take_too_long(self):
        profile = mock.Mock(side_effect=SearchError("it cannot be profiled"))
        long_links = dataclasses.replace(time_plan._TIMES, links_secs=1000.0)
        with (
            mock.patch.object(time_plan, "_TIMES", long_links),
            mock.patch.object(job_search, "find_links", return_value=None),
            mock.patch.object(job_search, "profile_costs", profile),
        ):
            self.run_with_fake_clock(Script(split_is_faster), placer="auto")
        profile.assert_called_once()
        self.assertIn("it cannot be profiled", self.directory.read_result().note)

    def test_reports_that_there_was_no_time_to_compare_values(self):
        def values(_):
            self.end_time()

        self.assertEqual(self.run_with_fake_clock(Script(split_is_faster, values)), Outcome.FASTER)
        self.assertIn(
            "what the graphs compute could not be compared: 300 s were over before",
            self.directory.read_result().note,
        )

    def test_logs_the_original_beside_each_trial(self):
        self.run_search(Script(secs=split_is_faster), max_trials=6)
        header, trials = read_log(self.directory.trials)
        # A log of an earlier version, which has no other blocks for long steps, goes on.
        self.assertEqual(
            header["protocol"],
            {
                **{"steps": 10, "dropped": 1, "hopeless_blocks": 2, "hopeless_ratio": 1.4},
                **{"worse_blocks": 3, "worse_ratio": 1.1, "most_blocks": 6, "burst_secs": 0.01},
            },
        )
        self.assertIsNone(trials[0].measurement.reference_secs)
        for trial in trials[1:]:
            self.assertEqual(set(trial.measurement.reference_secs), {ORIGINAL_SECS})
            self.assertAlmostEqual(trial.measurement.drift, 1.0)

    def test_a_paper_s_protocol_measures_each_trial_alone_and_confirms_as_ever(self):
        script = Script(secs=split_is_faster)
        self.assertEqual(self.run_search(script, protocol="eagle"), Outcome.FASTER)
        header, trials = read_log(self.directory.trials)
        self.assertEqual(header["protocol"], {"name": "eagle", "steps": 15, "dropped": 5})
        for trial in trials:
            self.assertIsNone(trial.measurement.reference_secs)
            self.assertEqual(trial.measurement.drift, 1.0)
        # The original is measured once, not beside each placement.
        self.assertLen([each for each in script.measured if not each], 1)
        self.assertEqual([made["protocol"] for made in script.made], [EAGLE, COLOCRL])

    def test_without_time_to_confirm_there_is_no_winner(self):
        script = Script(secs=lambda assignment: 10.0 / (1 + uses_two_devices(assignment)))
        self.assertEqual(self.run_search(script, max_secs=40.0), Outcome.NOT_CONFIRMED)
        self.assertFalse(self.directory.placement.exists())
        result = self.directory.read_result()
        said = "\n".join(self.lines)
        # A note warns early; the search gets all of the time, and can be resumed.
        little = r"40 s are little for this graph: (allow about \d+ s) .*confirming 13 min 20 s"
        self.assertRegex(said, little)
        advice = re.search(little, said)[1]
        # All advice is the same.
        capitalized = advice.replace("allow", "Allow")
        self.assertIn(f"40 s are too short to confirm anything. {capitalized}, and log_dir=", said)
        self.assertEqual(said.count("too short to confirm"), 1)
        self.assertRegex(result.note, f"no time left of 40 s to measure .*: {advice}$")
        # The best placement is written, though unconfirmed.
        best = read_placement(self.directory.best)
        self.assertTrue(uses_two_devices(best.assignment))
        self.assertEqual(best.measurement, {"step_secs": 5.0})

    def test_progress_counts_time_from_the_call_to_the_end_of_the_confirmation(self):
        script = Script(secs=lambda assignment: 1.0)
        self.run_search(script, begun_secs=100.0, max_secs=1000.0, max_trials=3)
        last = next(line for line in self.lines if line.startswith("[3/3]"))
        self.assertIn("elapsed 1 min 40 s", last)
        # No trial is left, but the confirmation follows.
        self.assertNotIn("at most 0.0 s", last)

    def test_trials_time_out_after_five_times_the_original_and_at_least_a_minute(self):
        for original_secs, expected in ((1.0, 60.0), (4.0, 160.0), (100.0, 250.0)):
            self.directory = RunDirectory(self.create_tempdir().full_path)
            script = Script(secs=lambda assignment, secs=original_secs: secs)
            self.run_search(script, max_secs=1000.0, max_trials=3)
            self.assertEqual(script.timeouts, [250.0, expected, expected])
            # A resumed search has the same limit; it opens the original beside the new trial.
            self.run_search(script, max_secs=1000.0, max_trials=4)
            self.assertEqual(script.timeouts[3:], [expected] * 2)

    def test_uses_the_grouper_and_settings_of_the_options(self):
        made = []

        def make(name, groups, legal, **settings):
            made.append((name, groups.num_groups, settings.get("options")))
            return make_placer(name, groups, legal, **settings)

        with mock.patch.object(placer_setup, "make_placer", make):
            for placer, options in (
                ("post", {"grouper": "metis", "num_groups": 4}),
                ("post", {"grouper": "coarse", "learning_rate": 0.5}),
            ):
                self.directory = RunDirectory(self.create_tempdir().full_path)
                made.clear()
                self.run_search(Script(), placer=placer, placer_options=options, max_trials=8)
                header, trials = read_log(self.directory.trials)
                [(_, num_groups, given)] = [each for each in made if each[0] == placer]
                self.assertEqual(given, options)
                self.assertLen(trials[-1].assignment, num_groups)
                self.assertContainsSubset(options, header["configuration"])

    def test_a_policy_starts_at_the_original_or_at_a_placement_in_a_file(self):
        graph = graphs.two_branches()
        devices = [device.name for device in find_machine("local:2").devices]
        names = [operation.name for operation in graph.graph.get_operations()]
        path = os.path.join(self.create_tempdir().full_path, "placement.json")
        write_placement(Placement("", tuple(devices), dict.fromkeys(names, devices[1])), path)
        for grouper in ("coarse", "fine"):
            for start, device in (("original", 0), (path, 1)):
                self.directory = RunDirectory(self.create_tempdir().full_path)
                # Practically only the start is sampled.
                options = {"start": start, "start_uniform": 1e-9, "grouper": grouper}
                self.run_search(Script(), placer="post", placer_options=options, max_trials=6)
                header, trials = read_log(self.directory.trials)
                self.assertEqual(header["configuration"]["start"], start)
                sampled = [trial for trial in trials if trial.placer == "post"]
                self.assertNotEmpty(sampled)
                self.assertEqual({each for t in sampled for each in t.assignment}, {device})

    def test_auto_measures_a_placement_in_a_file_before_the_baselines(self):
        devices = [device.name for device in find_machine("local:2").devices]
        names = [operation.name for operation in graphs.two_branches().graph.get_operations()]
        path = os.path.join(self.create_tempdir().full_path, "placement.json")
        write_placement(Placement("", tuple(devices), dict.fromkeys(names, devices[1])), path)
        profile = mock.Mock(side_effect=SearchError("it cannot be profiled"))
        with mock.patch.object(job_search, "profile_costs", profile):
            self.run_search(Script(), placer="auto", placer_options={"start": path}, max_trials=6)
        _, trials = read_log(self.directory.trials)
        self.assertEqual([trial.placer for trial in trials[:2]], ["original", "given"])
        self.assertEqual(set(trials[1].assignment), {1})
        self.assertIn("expert", {trial.placer for trial in trials[2:]})

    def test_notices_another_search_on_the_computer(self):
        cache = self.create_tempdir().full_path
        with mock.patch.dict(os.environ, XDG_CACHE_HOME=cache):
            with RunLock("runs/other", lambda line: None):
                self.run_search(Script(secs=split_is_faster, one_process_secs=0.15))
            self.assertLen([line for line in self.lines if "log in runs/other" in line], 1)
            self.assertIn("another search ran on this", self.directory.read_result().note)
            self.directory = RunDirectory(self.create_tempdir().full_path)
            self.run_search(Script(secs=split_is_faster, one_process_secs=0.15))
            self.assertIsNone(self.directory.read_result().note)

    def test_writes_no_placement_if_none_is_faster(self):
        self.assertEqual(self.run_search(Script()), Outcome.NOT_FASTER)
        self.assertFalse(self.directory.placement.exists())
        self.assertIsNone(self.directory.read_result().winner)

    def test_rejects_a_placement_that_is_not_faster_in_the_confirmation(self):
        script = Script()
        script.secs = lambda assignment: (
            ORIGINAL_SECS if script.confirmed else split_is_faster(assignment)
        )
        self.assertEqual(self.run_search(script), Outcome.NOT_FASTER)

    def test_advises_more_time_where_more_rounds_may_show_a_speed_up(self):
        for lacks in (True, False):
            self.directory = RunDirectory(self.create_tempdir().full_path)
            with mock.patch.object(conclusion, "lacks_rounds", return_value=lacks):
                self.run_search(Script(), max_trials=6)
            note = self.directory.read_result().note or ""
            self.assertEqual("allow about" in note, lacks)

    def test_says_that_the_machine_has_changed_its_speed(self):
        for least_drift, is_said in ((1.0, True), (1.3, False)):
            self.directory = RunDirectory(self.create_tempdir().full_path)
            with mock.patch.object(conclusion, "_NOTABLE_DRIFT", least_drift):
                self.run_search(Script(), max_trials=6)
            note = self.directory.read_result().note or ""
            self.assertEqual("the original took 1.00 times as long" in note, is_said)

    def test_says_that_the_time_that_is_left_was_kept_for_a_confirmation(self):
        script = Script(lambda assignment: 3 * ORIGINAL_SECS if assignment else ORIGINAL_SECS)

        def is_over(context):
            context.ran_out_of_time = len(context.log.trials) > 3
            return context.ran_out_of_time

        with mock.patch.object(SearchContext, "is_over", is_over):
            self.assertEqual(self.run_search(script), Outcome.NOT_FASTER)
        self.assertRegex(
            self.directory.read_result().note,
            r"The last \d+.* had been kept for a confirmation: with more time the search tries",
        )

    def test_rejects_a_placement_that_computes_other_values(self):
        script = Script(
            split_is_faster, lambda a: {"loss:0@1": np.float32(2 if uses_two_devices(a) else 1)}
        )
        self.assertEqual(self.run_search(script), Outcome.DIFFERENT_VALUES)
        self.assertFalse(self.directory.placement.exists())
        self.assertIn("'loss:0@1'", self.directory.read_result().note)

    def test_reports_why_all_placements_failed(self):
        script = Script(lambda assignment: None)
        self.assertEqual(self.run_search(script), Outcome.NOTHING_RUNS)
        self.assertRegex(
            self.directory.read_result().note,
            r"^\d+ were tried \(\d+ out_of_memory\); the last: it is too large$",
        )

    def test_names_another_search_if_memory_runs_out(self):
        note = "another search ran"
        with mock.patch.object(live_run.RunLock, "note", note):
            self.run_search(Script(lambda assignment: None))
        self.assertEndsWith(
            self.directory.read_result().note, f"it is too large. {note[0].upper()}{note[1:]}"
        )

    def test_names_devices_of_the_graph_if_memory_runs_out(self):
        for node in self.graph_def.node:
            node.device = "" if node.name == "result" else "/job:worker/task:0"
        self.run_search(Script(lambda assignment: None), graph_def=self.graph_def)
        kept = (
            "24 operations of the step keep .* such as '/job:worker/task:0': .*clear_devices=True"
        )
        self.assertRegex(self.directory.read_result().note, kept)
        # The caller has told so before the search, and the line below tells it again.
        self.assertLen([line for line in self.lines if "clear_devices=True" in line], 1)
        at_once = "the original runs out of memory, and 24 of 25 operations of the step are on "
        self.assertLen([line for line in self.lines if line.startswith(at_once)], 1)

    def test_names_devices_of_the_graph_where_there_is_little_to_choose(self):
        nodes = self.graph_def.node
        for node in nodes[: len(nodes) // 2]:
            node.device = "/job:worker/task:0"
        self.run_search(Script(), graph_def=self.graph_def)
        self.assertRegex(
            "\n".join(self.lines), r"little to choose\n\d+ operations of the step keep the device"
        )

    def test_a_placement_that_fits_wins_over_an_original_that_does_not(self):
        script = Script(lambda a: ORIGINAL_SECS if uses_two_devices(a) else None)
        self.assertEqual(self.run_search(script), Outcome.FASTER)
        self.assertIsNone(read_placement(self.directory.placement).measurement["speedup"])

    def test_baselines_that_do_not_fit_by_simulation_are_not_measured(self):
        def runs_on_cpu(assignment):
            return (
                ORIGINAL_SECS if set(assignment.values()) == {GPU_MACHINE.devices[0].name} else None
            )

        script = Script(runs_on_cpu)
        self.run_search(script, machine=GPU_MACHINE, max_trials=40)
        _, trials = read_log(self.directory.trials)
        measured = {
            trial.assignment for trial in trials if trial.placer in ("single_device", "expert")
        }
        self.assertNotEmpty(measured)
        # All tensors of a step exceed a GPU of one byte; only the CPU has room.
        for assignment in measured:
            self.assertEqual(set(assignment), {0})
        result = self.directory.read_result()
        self.assertGreater(result.unfitting["expert"], 0)
        self.assertIn("by simulation they do not fit", "\n".join(self.lines))

    def test_all_baselines_are_measured_where_the_simulation_was_wrong(self):
        # The original is on a GPU, where it does not fit by simulation, and it runs.
        self.run_search(Script(split_is_faster), machine=GPU_MACHINE, max_trials=40)
        _, trials = read_log(self.directory.trials)
        used = {
            device for trial in trials if trial.placer == "expert" for device in trial.assignment
        }
        self.assertContainsSubset({1, 2}, used)
        self.assertEmpty(self.directory.read_result().unfitting)

    def test_a_budget_of_one_trial_measures_the_original_only(self):
        self.assertEqual(self.run_search(Script(), max_trials=1), Outcome.NO_TIME)
        self.assertIn(
            "only the original was measured within 1 trial",
            self.directory.read_result().note,
        )
        self.assertLen(read_log(self.directory.trials)[1], 1)

    def test_a_graph_that_does_not_run_ends_the_search(self):
        from tf_placer.environments.environment import Failure, FailureKind

        class Broken:
            def __init__(self, *_, **__):
                pass

            def __enter__(self):
                return self

            def __exit__(self, *_):
                pass

            def open_session(self, label, assignment):
                return Failure(FailureKind.RUNTIME_ERROR, "no such file")

        script = Script()
        script.environment = Broken  # type: ignore[method-assign]
        with self.assertRaisesRegex(
            GraphDoesNotRunError, "the original graph does not run.*no such file"
        ):
            self.run_search(script)

    def test_a_finished_search_called_again_measures_nothing(self):
        self.run_search(Script(secs=split_is_faster), graph_def=self.graph_def)
        before = self.hash_files()
        again = Script(secs=split_is_faster)
        self.assertEqual(self.run_search(again, graph_def=self.graph_def), Outcome.FASTER)
        self.assertEqual(again.measured + again.confirmed, [])
        self.assertEqual(self.hash_files(), before)
        self.assertIn("nothing to measure again", self.lines[-1])

    def test_a_larger_budget_resumes_the_search(self):
        self.run_search(Script(secs=split_is_faster), max_trials=8)
        before = self.directory.trials.read_bytes()
        more = Script(secs=split_is_faster)
        self.run_search(more, max_trials=12)
        self.assertStartsWith(self.directory.trials.read_bytes(), before)
        self.assertIn("resuming after 8 trials; the log is in", " ".join(self.lines))
        _, trials = read_log(self.directory.trials)
        self.assertLen(trials, 12)
        self.assertLen(more.placed, sum(t.repeats is None for t in trials[8:]))
        uninterrupted = RunTest("run")
        uninterrupted.setUp()
        uninterrupted.run_search(Script(secs=split_is_faster), max_trials=12)
        self.assertEqual(
            [t.assignment for t in read_log(uninterrupted.directory.trials)[1]],
            [t.assignment for t in trials],
        )

    def test_a_resumed_search_keeps_the_rounds_of_a_confirmation_without_a_verdict(self):
        self.run_search(Script(secs=split_is_faster))
        values = json.loads(self.directory.result.read_bytes())
        rounds = values["confirmation"]["rounds"][: LEAST_ROUNDS - 1]
        values["confirmation"]["rounds"] = rounds
        values |= {"outcome": Outcome.NOT_CONFIRMED.value, "winner": None}
        self.directory.result.write_text(json.dumps(values))
        again = Script(secs=split_is_faster)
        self.assertEqual(self.run_search(again, max_trials=14), Outcome.FASTER)
        kept = json.loads(self.directory.result.read_bytes())["confirmation"]["rounds"]
        self.assertLen(kept, LEAST_ROUNDS)
        best = values["confirmation"]["best"]
        self.assertEqual(
            kept[: len(rounds)], [{n: each[n] for n in ("original", best)} for each in rounds]
        )
        self.assertRegex(
            "\n".join(self.lines), "going on after 3 rounds of an earlier confirmation"
        )

    def test_resumes_a_search_that_was_killed_before_its_result(self):
        self.run_search(Script(secs=split_is_faster))
        os.unlink(self.directory.result)
        again = Script(secs=split_is_faster)
        self.assertEqual(self.run_search(again), Outcome.FASTER)
        self.assertEqual(again.measured, [])
        self.assertNotEmpty(again.confirmed)

    def test_rewrites_a_missing_or_outdated_best_placement(self):
        self.run_search(Script(secs=split_is_faster), max_trials=8)
        before = self.directory.best.read_bytes()
        for leave in (self.directory.best.unlink, lambda: self.directory.best.write_text("{}")):
            leave()
            self.directory.result.unlink()
            self.run_search(Script(secs=split_is_faster), max_trials=8)
            self.assertEqual(self.directory.best.read_bytes(), before)

    def test_reports_and_survives_a_best_placement_that_cannot_be_written(self):
        self.directory.path.mkdir()
        self.directory.best.mkdir()
        self.assertEqual(self.run_search(Script(secs=split_is_faster)), Outcome.FASTER)
        said = [line for line in self.lines if "best_so_far.json: " in line]
        self.assertNotEmpty(said)
        self.assertStartsWith(said[0], "the best placement so far is not written: ")

    def delete_directory_at(self, trial: int):
        """Makes a function of step times that deletes the directory before a trial is logged."""
        measured = []

        def secs(assignment) -> float:
            measured.append(assignment)
            if len(measured) == trial:
                shutil.rmtree(self.directory.path)
            return split_is_faster(assignment)

        return secs

    def test_relocates_at_the_next_trial_if_the_directory_is_deleted(self):
        before, base = self.directory.path, self.create_tempdir("other").full_path
        with mock.patch.object(tempfile, "tempdir", base):
            outcome = self.run_search(Script(secs=self.delete_directory_at(5)))
        self.assertEqual(outcome, Outcome.FASTER)
        self.assertFalse(before.exists())
        self.assertEqual(os.path.dirname(self.directory.path), base)
        self.assertEqual(self.directory.path.stat().st_mode & 0o777, 0o700)
        [said] = [line for line in self.lines if "from now on the search is in" in line]
        self.assertStartsWith(said, f"{before}/trials.jsonl: it was deleted or moved while")
        self.assertIn(repr(str(self.directory.path)), said)
        header, trials = read_log(self.directory.trials)
        self.assertLen(trials, 12)
        self.assertEqual(self.directory.read_result().num_trials, 12)
        read_placement(self.directory.placement)
        # The search can be resumed there.
        again = Script(secs=split_is_faster)
        self.run_search(again, max_trials=14)
        self.assertLess(len(again.measured), 6)
        self.assertEqual(read_log(self.directory.trials)[0], header)
        self.assertEqual(read_log(self.directory.trials)[1][:12], trials)

    def check_sessions_that_miss_their_files(self, looks: int) -> None:
        """Deletes the directory; its sessions then fail when they look for files the n-th time."""
        base, left = self.create_tempdir("other").full_path, [None] * looks
        secs_before = self.delete_directory_at(5)

        def secs(assignment) -> float:
            found = secs_before(assignment)
            graph = script.made[-1]["graph_path"]
            if not graph.exists() and left.pop() is None and not left:
                raise FileNotFoundError(2, "No such file or directory", str(graph))
            return found

        script = Script(secs=secs)
        with mock.patch.object(tempfile, "tempdir", base):
            self.assertEqual(self.run_search(script), Outcome.FASTER)
        self.assertEqual(os.path.dirname(self.directory.path), base)
        [moved] = [line for line in self.lines if "from now on the search is in" in line]
        self.assertIn(repr(str(self.directory.path)), moved)
        self.assertIn("its processes are started there anew", self.lines)
        _, trials = read_log(self.directory.trials)
        self.assertLen(trials, 12)
        first = [trial.assignment for trial in trials if trial.repeats is None]
        self.assertLen(set(first), len(first))
        read_placement(self.directory.placement)

    def test_restarts_sessions_that_miss_their_files_in_another_directory(self):
        self.check_sessions_that_miss_their_files(looks=1)

    def test_restarts_sessions_that_miss_their_files_after_the_log_was_relocated(self):
        self.check_sessions_that_miss_their_files(looks=2)

    def test_files_missing_in_sessions_are_an_error_if_the_directory_exists(self):
        def secs(assignment) -> float:
            raise FileNotFoundError(2, "No such file or directory", "worker.log")

        with self.assertRaisesRegex(OSError, "worker.log"):
            self.run_search(Script(secs=secs))

    def test_raises_the_first_error_if_relocation_fails_too(self):
        with (
            mock.patch.object(tempfile, "tempdir", "/nowhere"),
            self.assertRaisesRegex(OSError, "it was deleted or moved while a search wrote it"),
        ):
            self.run_search(Script(secs=self.delete_directory_at(5)))
        self.assertFalse(self.directory.path.exists())

    def test_relocates_result_and_log_if_the_directory_is_full_at_the_end(self):
        for name in ("placement.json", "result.json"):
            with self.subTest(name):
                self.directory = RunDirectory(self.create_tempdir().full_path)
                full = self.directory.path

                def write(path, data, name=name, full=full):
                    if pathlib.Path(path) == full / name:
                        raise OSError(28, "No space left on device", str(path))
                    write_atomically(path, data)

                with (
                    mock.patch.object(tempfile, "tempdir", self.create_tempdir().full_path),
                    mock.patch.object(run_directory, "write_bytes", write),
                    mock.patch.object(placement, "write_atomically", write),
                ):
                    outcome = self.run_search(Script(secs=split_is_faster))
                self.assertEqual(outcome, Outcome.FASTER)
                self.assertNotEqual(self.directory.path, full)
                self.assertEqual(self.directory.read_result().outcome, Outcome.FASTER)
                read_placement(self.directory.placement)
                self.assertEqual(read_log(self.directory.trials), read_log(full / "trials.jsonl"))

    def test_a_log_whose_header_was_cut_short_counts_as_new(self):
        os.makedirs(self.directory.path)
        for content in (b"", b'{"format": 1, "graph_fi'):
            self.directory.trials.write_bytes(content)
            self.assertEqual(self.run_search(Script(), max_trials=2), Outcome.NOT_FASTER)

    def test_removes_temporary_files_at_the_end(self):
        self.run_search(Script())
        self.assertEmpty([each.name for each in self.directory.path.iterdir() if each.is_dir()])

    def test_removes_files_of_a_killed_search_and_keeps_other_files(self):
        os.makedirs(self.directory.path)
        left = leave_stale_directory(self.directory.path)
        self.assertTrue(left.exists())
        theirs = [self.directory.path / name for name in ("work/thesis.txt", ".mine.tmp", "a.txt")]
        theirs[0].parent.mkdir()
        for path in theirs:
            path.write_text("theirs")
        self.run_search(Script(), max_trials=2)
        self.assertFalse(left.exists())
        self.assertEqual([path.read_text() for path in theirs], ["theirs"] * len(theirs))

    def test_refuses_a_foreign_graph_file_beside_the_log_and_keeps_it(self):
        self.run_search(Script(), max_trials=2)
        placed = tf1.GraphDef.FromString(self.directory.graph.read_bytes())
        for node in placed.node:
            node.device = "/device:CPU:0"
        for graph_def in (placed, graphs.matmul_chain().graph.as_graph_def()):
            theirs = graph_def.SerializeToString()
            self.directory.graph.write_bytes(theirs)
            with self.assertRaisesRegex(LogError, "graph.pb' is not the graph .*: move it away"):
                self.run_search(Script(), max_trials=3)
            self.assertEqual(self.directory.graph.read_bytes(), theirs)

    def test_refuses_the_log_of_another_search_and_changes_no_file(self):
        self.run_search(Script(secs=split_is_faster), max_trials=4)
        before = self.hash_files()
        placed = graphs.two_branches().graph.as_graph_def()
        next(n for n in placed.node if n.op == "MatMul").device = "/device:CPU:0"
        for difference, changes in (
            (
                "graph: name another log_dir, .* operations, this search has",
                {"given": graphs.matmul_chain()},
            ),
            ("grouping", {"graph_def": placed}),
            ("seed: .* has seed 0, this search has 1", {"seed": 1}),
            ("machine", {"machine": find_machine("local:3")}),
            ("placer: ", {"placer": "expert"}),
            ("placer: ", _COLOCATION_GROUP_PLACER),
            ("session configuration", {"config": tf1.ConfigProto(inter_op_parallelism_threads=1)}),
        ):
            script = Script(secs=split_is_faster)
            with self.assertRaisesRegex(LogMismatchError, f"another {difference}"):
                self.run_search(script, **changes)
            self.assertEqual(script.made, [])
            self.assertEqual(self.hash_files(), before)

    def test_a_graph_with_devices_leaves_an_earlier_search_unchanged(self):
        self.run_search(Script(secs=split_is_faster), max_trials=4)
        before = self.hash_files()
        placed = graphs.two_branches().graph.as_graph_def()
        for node in placed.node:
            node.device = "/device:CPU:0"
        outcome = self.run_search(Script(), graph_def=placed)
        self.assertEqual(outcome, Outcome.NOTHING_TO_PLACE)
        self.assertEqual(self.hash_files(), before)

    def test_all_stages_use_the_granularity_of_the_placer(self):
        header_of, sizes = {}, {}
        for granularity, asked in (("coarse", {}), ("fine", _COLOCATION_GROUP_PLACER)):
            self.directory = RunDirectory(self.create_tempdir().full_path)
            self.run_search(Script(), max_trials=6, **asked)
            header_of[granularity], trials = read_log(self.directory.trials)
            sizes[granularity] = {len(trial.assignment) for trial in trials[1:]}
            self.assertEqual(header_of[granularity]["granularity"], granularity)
            self.assertLen(sizes[granularity], 1)
        self.assertGreater(max(sizes["fine"]), max(sizes["coarse"]))

    def test_baselines_place_clusters_although_the_placer_splits_them(self):
        given = graphs.lstm()
        self.run_search(Script(), given, max_trials=6, **_COLOCATION_GROUP_PLACER)
        op_graph = read_workload(given.graph, given.fetches).op_graph
        clusters = group_operations(op_graph, "fine").clusters
        _, trials = read_log(self.directory.trials)
        baselines = [t for t in trials if t.placer in ("single_device", "expert")]
        self.assertNotEmpty(baselines)
        for trial in baselines:
            devices = {}
            for cluster, device in zip(clusters.tolist(), trial.assignment, strict=True):
                self.assertEqual(devices.setdefault(cluster, device), device)

    def test_resumes_a_log_without_a_granularity(self):
        self.run_search(Script(), max_trials=4)
        header, *rest = self.directory.trials.read_text().splitlines()
        value = json.loads(header)
        del value["granularity"]
        self.directory.trials.write_text("\n".join([json.dumps(value), *rest]) + "\n")
        self.run_search(Script(), max_trials=5)
        self.assertLen(read_log(self.directory.trials)[1], 5)

    def run_learning_search(self, max_trials: int, script: Script | None = None) -> None:
        """Runs a search by a placer that pretends to learn, whose first trial is 5."""

        def make(name, groups, legal, **settings):
            if name == "random":
                return LearningPlacer(groups, legal, seed=settings["seed"], name=name)
            return make_placer(name, groups, legal, **settings)

        with mock.patch.object(placer_setup, "make_placer", make):
            self.run_search(
                script or Script(secs=split_is_faster),
                graph_def=self.graph_def,
                max_trials=max_trials,
            )

    def read_policy(self) -> str:
        return (self.directory.path / "policy.weights.h5").read_text()

    def test_logs_the_training_of_the_placer_beside_the_trials(self):
        self.run_learning_search(max_trials=11)
        header, updates = read_training_log(self.directory.path)
        trial_header, trials = read_log(self.directory.trials)
        own = [trial for trial in trials if trial.placer == "random"]
        self.assertEqual(header | {"format": 2}, trial_header | {"format": 2})
        self.assertEqual([update.samples for update in updates], [3, 6, 9])
        self.assertEqual(own[0].index, 2)
        best = [min(t.measurement.median_secs for t in own[:n]) for n in (3, 6, 9)]
        self.assertEqual([update.best_step_secs for update in updates], best)
        self.assertEqual(self.read_policy(), "3")
        self.assertLen(os.listdir(self.directory.path / "tensorboard"), 1)

    def test_a_resumed_search_repeats_no_update(self):
        self.run_learning_search(max_trials=16)
        expected = read_training_log(self.directory.path)[1]
        self.directory = RunDirectory(self.create_tempdir().full_path)
        for max_trials in (2, 8, 9, 12, 16):
            self.run_learning_search(max_trials)
        self.assertEqual(read_training_log(self.directory.path)[1], expected)
        self.assertEqual(self.read_policy(), str(len(expected)))

    def test_repeats_an_update_that_a_kill_lost(self):
        self.run_learning_search(max_trials=14)
        path = self.directory.path / "training.jsonl"
        whole = path.read_bytes()
        path.write_bytes(whole[:-20])
        self.run_learning_search(max_trials=15)
        self.assertEqual(path.read_bytes(), whole)

    def test_a_finished_search_called_again_keeps_the_policy(self):
        self.run_learning_search(max_trials=14)
        before = self.hash_files()
        self.run_learning_search(max_trials=14, script=(again := Script(secs=split_is_faster)))
        self.assertEqual(again.measured, [])
        self.assertEqual(self.hash_files(), before)

    def test_drops_updates_whose_trials_are_missing(self):
        self.run_learning_search(max_trials=16)
        os.unlink(self.directory.trials)
        os.unlink(self.directory.result)
        self.run_learning_search(max_trials=8)
        self.assertLen(read_training_log(self.directory.path)[1], 2)

    def test_logs_every_setting_of_the_placer(self):
        self.run_search(
            Script(), max_trials=2, placer="colocrl", placer_options={"hidden_units": 8}
        )
        header, _ = read_log(self.directory.trials)
        self.assertEqual(header["configuration"]["hidden_units"], 8)
        self.assertGreater(len(header["configuration"]), 5)
        json.dumps(header)


if __name__ == "__main__":
    tf.test.main()
