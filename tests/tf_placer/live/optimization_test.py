"""Tests of `optimize` with scripted measurements, in a process in TensorFlow 1 mode."""

from __future__ import annotations

import contextlib
import io
import os
import pathlib
import re
import time
from unittest import mock

import tensorflow as tf

from graph_passes.errors import GraphError
from graph_passes.placement import Placement, write_placement
from tests import graphs
from tests.tf_placer.scripted import ORIGINAL_SECS, Script, uses_two_devices
from tests.tf_placer.simulation.traces import make_problem
from tf_placer.confirmation.outcome import Outcome
from tf_placer.inputs.graph_files import write_graph
from tf_placer.inputs.workload import read_workload
from tf_placer.live import optimization
from tf_placer.live import run as live_run
from tf_placer.live.entry_points import count_time_from, optimize
from tf_placer.machines.machine import Device, Machine, MachineError
from tf_placer.problem.problem_file import write_problem
from tf_placer.runs.run_directory import RunDirectory
from tf_placer.runs.run_page import read_run_view
from tf_placer.runs.search_state import read_search_state
from tf_placer.search.callbacks import Callback
from tf_placer.search.config import SearchConfig
from tf_placer.search.trial_log import LogError, read_log

tf1 = tf.compat.v1
SECOND = "/job:worker/replica:0/task:1/device:CPU:0"
# Old training scripts run in this mode.
tf1.disable_v2_behavior()


def split_is_faster(assignment) -> float:
    return ORIGINAL_SECS / 2 if uses_two_devices(assignment) else ORIGINAL_SECS


class RecordingCallback(Callback):
    """Records all calls, and requests the end of the search after `most` trials."""

    def __init__(self, most: int = 1000):
        self.most = most
        self.trials, self.best, self.stages, self.notes = [], [], [], []

    def on_trial(self, trial, progress):
        self.trials.append((trial, progress))
        return len(self.trials) >= self.most

    def on_best(self, trial):
        self.best.append(trial)

    def on_stage(self, name):
        self.stages.append(name)

    def on_note(self, line):
        self.notes.append(line)


def devices(graph) -> dict[str, str]:
    if isinstance(graph, tf.Graph):
        return {op.name: op.device for op in graph.get_operations() if op.device}
    return {node.name: node.device for node in graph.node if node.device}


class ScriptedOptimizeTest(tf.test.TestCase):
    """Runs searches in this process, so that measurements can be scripted."""

    def setUp(self):
        super().setUp()
        self.script = Script(secs=split_is_faster)
        self.directory = pathlib.Path(self.create_tempdir().full_path)
        self.log_dir = self.directory / "run"
        self.enter_context(mock.patch.object(optimization, "run_search", self.search_here))

    def search_here(self, directory, given, callback, start_secs, host, forks, max_secs):
        del host, forks, max_secs
        return live_run.run(
            RunDirectory(given),
            directory,
            callback,
            self.script.environment,
            start_secs=start_secs,
        )

    def optimize(
        self, graph, fetches=None, callbacks=(), verbose=False, clear_devices=False, **settings
    ):
        settings = {"machine": "local:2", "placer": "random", "max_trials": 10, **settings}
        config = SearchConfig(**{"log_dir": self.log_dir, **settings})
        return optimize(
            graph,
            fetches,
            config=config,
            callbacks=callbacks,
            verbose=verbose,
            clear_devices=clear_devices,
        )

    def test_annotates_a_graph_in_place_if_a_placement_is_faster(self):
        given = graphs.two_branches()
        before = given.graph.as_graph_def()
        result = self.optimize(given.graph, given.fetches)
        self.assertTrue(result.changed)
        self.assertEqual(devices(given.graph), dict(result.placement.assignment))
        self.assertEqual(devices(result.graph_def), devices(given.graph))
        self.assertTrue(uses_two_devices(devices(given.graph)))
        # Only the devices have changed.
        for node in (*result.graph_def.node, *before.node):
            node.device = ""
        self.assertEqual(result.graph_def, before)

    def test_the_result_has_the_measurements(self):
        given = graphs.two_branches()
        result = self.optimize(given.graph, given.fetches)
        self.assertIn("is 2.00 times as fast as the original", result.reason)
        self.assertAlmostEqual(result.speedup, 2.0)
        self.assertLen(result.speedup_interval, 2)
        self.assertAlmostEqual(result.original_secs, ORIGINAL_SECS)
        self.assertAlmostEqual(result.placed_secs, ORIGINAL_SECS / 2)
        self.assertLen(result.trials, 10)
        self.assertEqual(result.log_dir, self.log_dir)
        self.assertIn(result.winner, result.finalists)
        self.assertIn("found", result.table())
        self.assertTrue((self.log_dir / "placement.json").exists())

    def test_writes_the_original_and_the_winner_for_tensorboard(self):
        given = graphs.two_branches()
        graph_def = given.graph.as_graph_def()
        result = self.optimize(graph_def, given.fetches)
        # Write costs by hand, as this placer needs none: each group is one operation here.
        found = result.finalists[result.winner].assignment
        names = sorted(result.placement.assignment)[: len(found)]
        problem = make_problem([[1.0, 1.0]] * len(found), names=names)
        write_problem(problem, self.log_dir / "problem.json")
        runs = self.directory / "tb"
        self.optimize(graph_def, given.fetches, tensorboard=runs)
        self.assertEqual({path.name for path in runs.iterdir()}, {"original", "found"})
        [path] = (runs / "found").iterdir()
        events = map(tf1.Event.FromString, tf1.io.tf_record_iterator(str(path)))
        [placed] = [tf1.GraphDef.FromString(e.graph_def) for e in events if e.graph_def]
        self.assertLen({devices(placed)[name] for name in names}, 2)

    def test_writes_nothing_for_tensorboard_without_costs(self):
        given = graphs.two_branches()
        result = self.optimize(given.graph, given.fetches, tensorboard=self.directory / "tb")
        self.assertTrue(result.changed)
        self.assertFalse((self.directory / "tb").exists())

    def test_leaves_a_graph_unchanged_if_nothing_is_faster(self):
        self.script.secs = lambda assignment: ORIGINAL_SECS
        given = graphs.two_branches()
        result = self.optimize(given.graph, given.fetches)
        self.assertFalse(result.changed)
        self.assertEqual(devices(given.graph), {})
        self.assertEqual(result.graph_def, given.graph.as_graph_def())
        self.assertIn("beyond the noise", result.reason)
        self.assertIsNone(result.placement)
        self.assertIsNone(result.speedup)
        # Programs read no speed-up of a placement that was not found.
        values = result.to_json()
        for name in ("winner", "speedup", "speedup_interval", "placed_secs"):
            self.assertIsNone(values[name])
        self.assertIsNone(read_search_state(self.log_dir).to_json()["speedup"])
        self.assertNotIn("found", result.table())

    def test_does_not_change_graph_defs_and_files(self):
        given = graphs.two_branches()
        with given.graph.as_default():
            tf1.train.Saver()
            tf1.add_to_collection("train_op", given.graph.get_operation_by_name("result"))
            meta = tf1.train.export_meta_graph()
        graph_def = given.graph.as_graph_def()
        original_devices = devices(graph_def)
        path = self.directory / "g.meta"
        write_graph(path, graph_def, meta)
        content = path.read_bytes()
        for number, graph in enumerate((graph_def, meta, path)):
            fetches = "result" if graph is graph_def else None
            result = self.optimize(graph, fetches, log_dir=self.directory / str(number))
            self.assertTrue(result.changed)
            self.assertGreater(len(devices(result.graph_def)), len(original_devices))
        self.assertEqual(devices(graph_def), original_devices)
        self.assertEqual(devices(meta.graph_def), original_devices)
        self.assertEqual(path.read_bytes(), content)

    def test_fetches_default_to_the_training_operation(self):
        given = graphs.v1_ref_variables()
        self.optimize(given.graph, max_trials=2)
        self.assertEqual(self.script.made[0]["step"].fetches, ("train",))

    def test_keeps_original_devices(self):
        with tf.Graph().as_default() as graph:
            with tf.device("/job:worker/task:1/device:CPU:0"):
                a = tf1.get_variable("a", [4, 4])
            b = tf1.get_variable("b", [4, 4])
            tf.add(tf.matmul(a, a), tf.matmul(b, b), name="y")
        original_devices = devices(graph)
        self.optimize(graph, "y")
        self.assertEqual(
            {name: devices(graph)[name] for name in original_devices}, original_devices
        )
        self.assertGreater(len(devices(graph)), len(original_devices))

    def test_refuses_invalid_arguments_before_writing(self):
        given = graphs.two_branches()
        file = self.directory / "file"
        file.touch()
        elsewhere = self.create_tempfile().full_path + ".json"
        gpu = "/job:localhost/replica:0/task:0/device:GPU:0"
        write_placement(Placement("", (gpu,), {"a": gpu}), elsewhere)
        for settings, error, message in (
            (
                {"placer": "magic"},
                ValueError,
                "no placer 'magic'; the placers are: auto, branches, colocrl",
            ),
            ({"placer_options": {"a": 1}}, ValueError, "'random' has no option 'a'"),
            (
                {"placer": "colocrl", "placer_options": {"hidden_units": "many"}},
                ValueError,
                "option 'hidden_units' of placer 'colocrl' must be a whole number, not 'many'",
            ),
            (
                {"placer": "post", "placer_options": {"start": "exprt"}},
                ValueError,
                "no placer 'exprt' .did you mean 'expert'",
            ),
            (
                {"placer": "post", "placer_options": {"start": "missing.json"}},
                FileNotFoundError,
                "cannot read the placement 'missing.json': No such file",
            ),
            (
                {"placer": "post", "placer_options": {"start": elsewhere}},
                GraphError,
                "'start': '.*' has 'a' on /job.*GPU:0, which 'local:2' lacks",
            ),
            ({"max_trials": 0}, ValueError, "max_trials must be at least 1, not 0"),
            ({"max_secs": 0}, ValueError, "max_secs must be positive, not 0"),
            ({"max_secs": float("nan")}, ValueError, "max_secs must be positive"),
            ({"seed": -1}, ValueError, "seed must not be negative"),
            ({"session_config": "x"}, ValueError, "session_config is a ConfigProto, not str"),
            ({"machine": "toaster"}, MachineError, "unknown machine 'toaster'"),
            ({"machine": "local:0"}, MachineError, "local:0"),
            ({"machine": "4xK80"}, MachineError, "machine '4xK80' is described, not attached"),
            ({"fetches": "result:7"}, GraphError, "'result:7'"),
            ({"log_dir": file / "run"}, OSError, f"'{file}' is not a directory"),
        ):
            with self.assertRaisesRegex(error, message):
                self.optimize(given.graph, **{"fetches": given.fetches, **settings})
        self.assertEqual(os.listdir(self.directory), ["file"])
        self.assertEqual(self.script.made, [])

    def test_options_may_be_text_or_numbers(self):
        settings = {"placer": "colocrl", "max_trials": 2}
        for value in ("8", 8):
            given = graphs.two_branches()  # A new graph, because the first is placed.
            result = self.optimize(
                given.graph, given.fetches, **settings, placer_options={"hidden_units": value}
            )
            self.assertLen(result.trials, 2)
        given = graphs.two_branches()
        with self.assertRaisesRegex(LogError, "hidden_units 8, this search has 6"):
            self.optimize(
                given.graph, given.fetches, **settings, placer_options={"hidden_units": 6}
            )

    def test_reports_that_there_is_only_one_device(self):
        given = graphs.two_branches()
        cpu = Device("/job:localhost/replica:0/task:0/device:CPU:0", "CPU")
        machine = Machine("attached", "attached", (cpu,), ())
        result = self.optimize(given.graph, given.fetches, machine=machine)
        self.assertFalse(result.changed)
        self.assertRegex(result.reason, "one device only, .*CPU:0.*machine='local:2'.*grpc://")
        self.assertIsNone(result.log_dir)
        self.assertFalse(self.log_dir.exists())

    def test_reports_that_the_variables_fit_nowhere_without_starting_anything(self):
        with tf.Graph().as_default() as graph:
            weights = tf.compat.v1.get_variable("w", [1024, 1024], use_resource=True)
            tf.tanh(weights @ weights, name="result")
        start = self.enter_context(mock.patch.object(optimization, "run_search"))
        result = self.optimize(graph, "result", machine="local:2,memory_mb=1")
        start.assert_not_called()
        self.assertRegex(result.reason, "no placement can run: .* 4.000 MiB.*have 2.000 MiB")
        self.assertIs(result.outcome, Outcome.NOTHING_RUNS)
        self.assertFalse(result.changed)
        self.assertFalse(self.log_dir.exists())

    def test_reports_that_all_operations_have_devices(self):
        graph_def = graphs.two_branches().graph.as_graph_def()
        for node in graph_def.node:
            node.device = "/device:CPU:0"
        result = self.optimize(graph_def, "result")
        self.assertFalse(result.changed)
        self.assertRegex(result.reason, r"nothing to place\. .*'/device:CPU:0': .*clear_devices=T")
        self.assertIs(result.graph_def, graph_def)
        self.assertFalse(self.log_dir.exists())

    def test_devices_are_cleared_on_demand(self):
        given = graphs.two_branches()
        for operation in given.graph.get_operations():
            operation._set_device("/job:worker/task:0")
        before, heard = given.graph.as_graph_def(), RecordingCallback()
        for graph in (given.graph, before):
            unmoved = self.optimize(graph, given.fetches, [heard])
            self.assertIn("nothing to place", unmoved.reason)
            self.assertRegex(
                heard.notes[-1],
                "25 of 25 operations of the step are on '/job:worker/task:0' because the graph says"
                r" so: clear the graph's devices \(clear_devices=True\) to let them move",
            )
        self.script.secs = lambda assignment: ORIGINAL_SECS
        kept = self.optimize(given.graph, given.fetches, clear_devices=True, log_dir=None)
        self.assertFalse(kept.changed)
        self.assertEqual(given.graph.as_graph_def(), before)
        self.script.secs = split_is_faster
        copied = self.optimize(before, given.fetches, clear_devices=True)
        placed = self.optimize(given.graph, given.fetches, clear_devices=True)
        self.assertTrue(placed.changed)
        self.assertEqual(devices(given.graph), dict(placed.placement.assignment))
        self.assertTrue(uses_two_devices(devices(given.graph)))
        self.assertEqual(devices(copied.graph_def), devices(given.graph))

    def test_devices_of_functions_cannot_be_cleared(self):
        workload = read_workload(graphs.two_branches().graph, "result")
        for target in (workload, tf.function(lambda x: x)):
            with self.assertRaisesRegex(ValueError, "clear_devices is for graphs and SavedModels"):
                self.optimize(target, clear_devices=True)
        for node in workload.graph_def.node:
            node.device = "/device:GPU:7"
        with self.assertRaisesRegex(GraphError, "GPU:7, and .*: build the graph without tf.device"):
            self.optimize(read_workload(workload.graph_def, "result"))

    def test_no_proposal_breaks_a_pin(self):
        given, heard = graphs.two_branches(), RecordingCallback()
        pins = {"pin": {"chain_0/*": "task:1"}, "keep_together": [["chain_1/*", "result"]]}
        result = self.optimize(given.graph, given.fetches, [heard], placer="hill_climbing", **pins)
        self.assertTrue(result.changed)
        self.assertNotEmpty(self.script.placed)
        for on in self.script.placed:
            first = {on[name] for name in on if name.startswith("chain_0/")}
            second = {on[name] for name in on if name.startswith("chain_1/") or name == "result"}
            self.assertEqual(first, {SECOND})
            self.assertLen(second, 1)
        self.assertStartsWith(heard.notes[0], "'chain_0/*': ")
        self.assertRegex(
            heard.notes[0], r"\d+ operations in \d+ colocation groups stay on .*task:1"
        )
        self.assertRegex(
            heard.notes[1], "'chain_1/.*', 'result': .* in 1 colocation group share one"
        )
        facts = dict(read_run_view(self.log_dir).facts)
        self.assertEqual(facts["pinned by you"], f"'chain_0/*' on {SECOND}")
        self.assertEqual(facts["kept together"], "'chain_1/*', 'result'")

    def test_a_log_of_other_pins_is_of_another_search(self):
        graph_def = graphs.two_branches().graph.as_graph_def()
        pin = {"chain_0/*": "/task:1"}
        first = self.optimize(graph_def, "result", pin=pin)
        for same in (pin, {"chain_0/*": SECOND}):
            again = self.optimize(graph_def, "result", pin=same)
            self.assertEqual(again.confirmation, first.confirmation)
        for other, message in (
            ({}, "a log of another set of pins: .* has pin .*task:1.*, this search has none"),
            ({"pin": {"chain_0/*": "/task:0"}}, "another set of pins: .*this search has .*task:0"),
            ({"pin": pin, "keep_together": ["chain_1/*"]}, "another set of operations to keep"),
        ):
            with self.assertRaisesRegex(LogError, message):
                self.optimize(graph_def, "result", **other)

    def test_refuses_pins_that_cannot_be_before_writing(self):
        graph_def = graphs.two_branches().graph.as_graph_def()
        for settings, error, message in (
            ({"pin": {"chain_2/*": "/task:0"}}, GraphError, "no operation .* nearest are 'chain_"),
            ({"pin": {"chain_0/*": "/CPU:0"}}, GraphError, "may be each of .*task:0.*task:1"),
            ({"pin": {"chain_0/*": "/GPU:0"}}, GraphError, "'/GPU:0' is not on the machine: name"),
            ({"pin": "chain_0"}, ValueError, "pin maps patterns"),
            ({"keep_together": "chain_*"}, ValueError, "keep_together is a list"),
        ):
            with self.assertRaisesRegex(error, message):
                self.optimize(graph_def, "result", **settings)
        self.assertFalse(self.log_dir.exists())
        self.assertEqual(self.script.made, [])

    def test_answers_a_finished_search_from_the_log_without_a_process(self):
        graph_def = graphs.two_branches().graph.as_graph_def()
        first = self.optimize(graph_def, "result")
        with mock.patch.object(optimization, "run_search", None):
            # Another serialization of the same graph, as a training script builds it anew.
            again = self.optimize(graphs.two_branches().graph, "result")
            smaller = self.optimize(graph_def, "result", max_trials=5, max_secs=10.0)
        for other in (again, smaller):
            self.assertEqual(other.placement.assignment, first.placement.assignment)
            self.assertEqual(other.reason, first.reason)
            self.assertEqual(other.confirmation, first.confirmation)
            self.assertEqual(devices(other.graph_def), devices(first.graph_def))

    def test_counts_time_from_the_start_of_the_command(self):
        given, begun = graphs.two_branches(), []

        def search(directory, given, callback, start_secs, host, forks, max_secs):
            begun.append(start_secs)
            return self.search_here(directory, given, callback, start_secs, host, forks, max_secs)

        call_secs = time.monotonic() - 50.0
        with mock.patch.object(optimization, "run_search", search):
            with count_time_from(call_secs):
                self.optimize(given.graph, given.fetches)
            self.optimize(graphs.two_branches().graph, "result", log_dir=self.directory / "other")
        self.assertEqual(begun[0], call_secs)
        self.assertGreater(begun[1], call_secs + 49.0)

    def test_reports_time_that_no_limit_covers(self):
        given, heard = graphs.two_branches(), RecordingCallback()
        with count_time_from(time.monotonic() - 3600.0):
            result = self.optimize(given.graph, given.fetches, [heard])
        self.assertEmpty(result.trials)
        self.assertRegex(
            heard.notes[-1],
            r"^1 h .* were used where 600 s are allowed: no limit covers .* \(1 h .* here\) and ",
        )

    def test_does_not_answer_a_different_request_from_the_log(self):
        graph_def = graphs.two_branches().graph.as_graph_def()
        self.optimize(graph_def, "result")
        for settings in ({"max_trials": 11}, {"max_secs": 601.0}):
            with (
                mock.patch.object(optimization, "run_search", side_effect=RuntimeError("searches")),
                self.assertRaisesRegex(RuntimeError, "searches"),
            ):
                self.optimize(graph_def, "result", **settings)
        for settings in ({"seed": 1}, {"machine": "local:3"}, {"placer": "expert"}):
            with self.assertRaises(LogError):
                self.optimize(graph_def, "result", **settings)
        (self.log_dir / "result.json").write_text("{")
        with self.assertRaisesRegex(
            ValueError, "result.json.*; without the file the search resumes"
        ):
            self.optimize(graph_def, "result")

    def test_callbacks_receive_trials_stages_and_notes(self):
        given, heard = graphs.two_branches(), RecordingCallback()
        result = self.optimize(given.graph, given.fetches, [heard])
        self.assertEqual(tuple(trial for trial, _ in heard.trials), result.trials)
        counts = [progress.trial_count for _, progress in heard.trials]
        self.assertEqual(counts, list(range(1, 11)))
        secs = [trial.measurement.median_secs for trial in heard.best]
        self.assertEqual(secs, sorted(set(secs), reverse=True))
        self.assertIs(heard.best[-1], heard.trials[-1][1].best)
        self.assertContainsSubset(
            ["reading the graph", "measuring placements", "explaining the result"], heard.stages
        )
        self.assertTrue(any(line.startswith("searching; the log") for line in heard.notes))
        self.assertFalse(any(line.startswith("[") for line in heard.notes))

    def test_a_callback_ends_the_search_with_the_best_so_far_confirmed(self):
        given, heard = graphs.two_branches(), RecordingCallback(most=5)
        result = self.optimize(given.graph, given.fetches, [Callback(), heard])
        self.assertLen(result.trials, 5)
        self.assertTrue(result.changed)
        # The same call resumes, and reports only new trials.
        later = RecordingCallback()
        resumed = self.optimize(graphs.two_branches().graph, given.fetches, [later])
        self.assertLen(resumed.trials, 10)
        self.assertEqual(tuple(trial for trial, _ in later.trials), resumed.trials[5:])

    def test_an_error_of_a_callback_ends_the_search_and_loses_no_trial(self):
        class Broken(Callback):
            def on_best(self, trial):
                raise ZeroDivisionError(trial.index)

        given = graphs.two_branches()
        with self.assertRaises(ZeroDivisionError):
            self.optimize(given.graph, given.fetches, [Broken()])
        self.assertLen(read_log(self.log_dir / "trials.jsonl")[1], 1)

    def test_prints_lines_only_if_verbose(self):
        for verbose in (False, True):
            given, errors = graphs.two_branches(), io.StringIO()
            with contextlib.redirect_stderr(errors):
                self.optimize(
                    given.graph,
                    given.fetches,
                    verbose=verbose,
                    log_dir=self.directory / str(verbose),
                )
            lines = errors.getvalue().splitlines()
            counts = [line for line in lines if re.match(r"tf_placer: \[\d+/10\] trial \d+ ", line)]
            self.assertLen(counts, 10 * verbose)
            self.assertEqual(bool(lines), verbose)

    def test_a_second_call_does_not_change_a_placed_graph(self):
        given = graphs.two_branches()
        self.optimize(given.graph, given.fetches)
        placed = given.graph.as_graph_def()
        placement = (self.log_dir / "placement.json").read_bytes()
        result = self.optimize(given.graph, given.fetches)
        self.assertFalse(result.changed)
        self.assertIn("nothing to place", result.reason)
        self.assertEqual(given.graph.as_graph_def(), placed)
        self.assertEqual((self.log_dir / "placement.json").read_bytes(), placement)


if __name__ == "__main__":
    tf.test.main()
