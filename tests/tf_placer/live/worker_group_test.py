"""Tests of complete searches by workers, with scripted measurements."""

from __future__ import annotations

import contextlib
import json
import pathlib
import random
from collections.abc import Mapping
from typing import Any
from unittest import mock

import tensorflow as tf

from tests import graphs
from tests.tf_placer.placers.learned.eagerly import run_eagerly
from tests.tf_placer.scripted import (
    ORIGINAL_SECS,
    Script,
    measurement,
    request_directory,
    uses_two_devices,
)
from tests.tf_placer.search.distributed.fake_backend import FakeBackend
from tests.tf_placer.search.distributed.in_process_backend import InProcessBackend
from tf_placer.confirmation.outcome import Outcome
from tf_placer.environments.environment import Failure, FailureKind, Measurement
from tf_placer.environments.measuring_protocol import POST
from tf_placer.inputs.workload import read_workload
from tf_placer.live import run as live_run
from tf_placer.machines.lookup import find_machine
from tf_placer.report.progress import ProgressPrinter
from tf_placer.runs.run_directory import RunDirectory
from tf_placer.search.distributed import workers
from tf_placer.search.distributed.actor_backend import WorkerInfo, WorkerLostError
from tf_placer.search.distributed.controllers import Controllers
from tf_placer.search.distributed.learners import Controller, ParameterServer
from tf_placer.search.distributed.measuring_worker import MeasuringSetup
from tf_placer.search.distributed.worker_events import read_worker_log
from tf_placer.search.training_log import read_training_log
from tf_placer.search.trial_log import LogMismatchError, read_log

tf1 = tf.compat.v1


def split_is_faster(assignment: Mapping[str, str]) -> float:
    return ORIGINAL_SECS / 2 if uses_two_devices(assignment) else ORIGINAL_SECS


class ScriptedBackend(FakeBackend):
    """A backend whose workers return scripted measurements in no time.

    Attributes:
        confirmations: the number of the worker of each call of a confirmation.
        dies_confirming: the number of calls of a confirmation after which its worker dies.
    """

    def __init__(self, size: int, script: Script) -> None:
        super().__init__(size)
        self.script = script
        self.confirmations: list[int] = []
        self.dies_confirming: int | None = None
        self._sessions: dict[int, Any] = {}

    def result(self, call):
        worker = call.worker
        if call.method == "confirm":
            self.confirmations.append(worker.number)
            if len(self.confirmations) == self.dies_confirming:
                worker.dead_secs = self.now_secs
        if worker.dead_secs <= self.now_secs:
            raise WorkerLostError("its process died")
        if call.method == "begin":
            return WorkerInfo("host", worker.number, {}, measurement(ORIGINAL_SECS))
        if call.method == "measure":
            assignment = call.args[0]
            self.script.measured.append(assignment)
            return measurement(self.script.secs(assignment)), ORIGINAL_SECS
        if call.method == "confirm":
            method, _, args, options = call.args
            if worker.number not in self._sessions:
                machine = find_machine("local:2")
                made = self.script.environment(None, None, machine, dict, meta_optimizer=True)
                self._sessions[worker.number] = made
            return getattr(self._sessions[worker.number], method)(*args, **options)
        return None

    def call(self, worker, method, *args):
        if method == "measure":
            call = super().call(worker, "ping")
            call.method, call.args = method, args
            return call
        return super().call(worker, method, *args)


class WorkerGroupTest(tf.test.TestCase):
    def setUp(self):
        super().setUp()
        self.directory = RunDirectory(pathlib.Path(self.create_tempdir().full_path) / "run")
        self.lines: list[str] = []
        self.deaths: list[int] = []
        self.setups: list[MeasuringSetup] = []
        self.graph_def = graphs.two_branches().graph.as_graph_def()
        # Ray is not installed everywhere, and this test does not start it.
        self.enter_context(mock.patch.object(workers, "require_ray"))

    def run_search(self, backend: FakeBackend, **changes) -> Outcome:
        workload = read_workload(self.graph_def, graphs.two_branches().fetches)
        changes = {"workers": "ray", **changes}
        if changes["workers"] is not None:
            changes["num_workers"] = backend.size
        asked = request_directory(self.create_tempdir().full_path, workload, **changes)

        @contextlib.contextmanager
        def make_backend(workers, setup):
            self.assertEqual(setup.graph, asked.graph.read_bytes())
            self.assertEqual(setup.step.fetches, workload.step.fetches)
            self.setups.append(setup)
            yield backend

        return live_run.run(
            asked,
            self.directory,
            ProgressPrinter(self.lines.append),
            backend.script.environment,
            make_backend=make_backend,
            controllers=self.make_controllers,
        )

    @contextlib.contextmanager
    def make_controllers(self, workers, setup, **options):
        """Makes controllers in this process, some of which die."""
        rng = random.Random(3)
        yield Controllers(
            setup.name,
            InProcessBackend(lambda: Controller(setup), rng, self.deaths),
            InProcessBackend(lambda: ParameterServer(setup), rng, self.deaths),
            workers.controllers,
            **options,
        )

    def test_workers_find_and_confirm_a_placement(self):
        backend = ScriptedBackend(3, Script(split_is_faster))
        self.assertEqual(self.run_search(backend), Outcome.FASTER)
        _, trials = read_log(self.directory.trials)
        self.assertEqual([trial.index for trial in trials], list(range(12)))
        self.assertTrue(all(t.worker for t in trials[1:] if t.repeats is None))
        placement = json.loads(self.directory.placement.read_text())
        self.assertAlmostEqual(placement["measurement"]["speedup"], 2.0)
        # One worker confirmed, and this process measured nothing.
        self.assertLen(set(backend.confirmations), 1)
        self.assertEqual([made["meta_optimizer"] for made in backend.script.made], [True])
        self.assertLen(backend.killed, 3)

    def test_finds_the_same_winner_as_without_workers(self):
        self.run_search(ScriptedBackend(1, Script(split_is_faster)))
        placed = json.loads(self.directory.placement.read_text())
        header, trials = read_log(self.directory.trials)
        self.directory = RunDirectory(pathlib.Path(self.create_tempdir().full_path) / "alone")
        self.run_search(ScriptedBackend(1, Script(split_is_faster)), workers=None)
        alone = json.loads(self.directory.placement.read_text())
        self.assertEqual(placed["assignment"], alone["assignment"])
        header_alone, trials_alone = read_log(self.directory.trials)
        self.assertEqual(header, header_alone)
        self.assertEqual(
            [(t.placer, t.batch, t.assignment) for t in trials],
            [(t.placer, t.batch, t.assignment) for t in trials_alone],
        )

    def test_workers_measure_by_the_protocol_of_the_search(self):
        for protocol, expected in (("turns", None), ("post", POST)):
            self.directory = RunDirectory(pathlib.Path(self.create_tempdir().full_path) / protocol)
            backend = ScriptedBackend(1, Script(split_is_faster))
            self.run_search(backend, protocol=protocol, max_trials=2)
            self.assertEqual(self.setups[-1].alone_protocol, expected)

    def test_resumes_with_another_number_of_workers(self):
        self.run_search(ScriptedBackend(1, Script(split_is_faster)), max_trials=5)
        backend = ScriptedBackend(3, Script(split_is_faster))
        self.assertEqual(self.run_search(backend, max_trials=12), Outcome.FASTER)
        _, trials = read_log(self.directory.trials)
        measured = [trial.assignment for trial in trials if trial.repeats is None]
        self.assertLen(set(measured), len(measured))
        self.assertLen(trials, 12)
        # The names of earlier workers are not reused.
        self.assertEqual({trial.worker for trial in trials[1:5]} - {None}, {"worker 1"})
        self.assertNotIn("worker 1", {trial.worker for trial in trials[5:]})

    def test_restarts_a_confirmation_whose_worker_is_lost(self):
        backend = ScriptedBackend(2, Script(split_is_faster))
        backend.dies_confirming = 9
        self.assertEqual(self.run_search(backend), Outcome.FASTER)
        self.assertLen(set(backend.confirmations), 2)
        self.assertIn("does not count, and another begins", " ".join(self.lines))
        # Rounds of the lost worker are not in the result.
        rounds = self.directory.read_result().confirmation.rounds
        opened = [each for each in backend.script.confirmed if each == {}]
        self.assertGreater(len(opened), len(rounds))

    def search_with_controllers(self, max_trials: int) -> ScriptedBackend:
        backend = ScriptedBackend(4, Script(split_is_faster))
        outcome = self.run_search(
            backend,
            placer="post",
            placer_options={"batch_size": 2, "ce_samples": 4},
            controllers=2,
            max_trials=max_trials,
        )
        self.assertEqual(outcome, Outcome.FASTER)
        return backend

    def test_controllers_propose_and_share_weights(self):
        run_eagerly(self)
        self.deaths = [2, 5]
        self.search_with_controllers(18)
        # The same call with a larger budget resumes.
        self.search_with_controllers(26)
        header, trials = read_log(self.directory.trials)
        self.assertEqual(header["controllers"], 2)
        self.assertLen(trials, 26)
        own = [trial for trial in trials if trial.placer == "post"]
        self.assertEqual({trial.controller for trial in own}, {1, 2})
        places = {(trial.controller, trial.batch, trial.position) for trial in own}
        self.assertLen(places, len(own))
        measured = [trial.assignment for trial in trials if trial.repeats is None]
        self.assertLen(set(measured), len(measured))
        _, updates = read_training_log(self.directory.path)
        self.assertEqual([update.update for update in updates], list(range(len(updates))))
        self.assertGreater(len(updates), 5)
        said = "\n".join(self.lines)
        self.assertIn("starting 2 controllers", said)
        self.assertRegex(said, r"resuming with weights that have had \d+ updates")
        self.assertRegex(said, r"\d+ updates of the weights; staleness [\d.]+ updates in the mean")
        self.assertTrue((self.directory.path / "policy.weights.h5").exists())
        tags = {
            value.tag
            for path in (self.directory.path / "tensorboard").glob("events*")
            for event in tf1.train.summary_iterator(str(path))
            for value in event.summary.value
        }
        self.assertContainsSubset({"weights/staleness", "controller_2/mean_reward"}, tags)

    def test_a_search_with_another_number_of_controllers_is_another_search(self):
        run_eagerly(self)
        self.search_with_controllers(18)
        with self.assertRaisesRegex(LogMismatchError, "controllers 2, this search has none"):
            self.run_search(
                ScriptedBackend(4, Script(split_is_faster)),
                placer="post",
                placer_options={"batch_size": 2, "ce_samples": 4},
            )

    def test_reports_why_the_graph_runs_on_no_worker(self):
        class Broken(ScriptedBackend):
            def result(self, call):
                value = super().result(call)
                if call.method != "begin":
                    return value
                failure = Failure(FailureKind.RUNTIME_ERROR, "no kernel")
                original = Measurement(failure=failure)
                return WorkerInfo("host", 0, {}, original)

        with self.assertRaisesRegex(Exception, "the original graph does not run.*no kernel"):
            self.run_search(Broken(2, Script(split_is_faster)))

    def test_reports_and_logs_events_of_workers(self):
        backend = ScriptedBackend(2, Script(split_is_faster))
        self.run_search(backend)
        said = "\n".join(self.lines)
        self.assertRegex(said, r"worker 1 on host is ready: a step takes 1\.00x as long there")
        self.assertRegex(said, r"worker 2 on host: \w+, \d+ trials, [\d.]+ a minute, idle \d+%")
        self.assertRegex(said, r"2 of 2 workers ready \| \d+ trials, [\d.]+ a minute")
        events = read_worker_log(self.directory.path)
        self.assertEqual([use.name for use in events[-1].workers], ["worker 1", "worker 2"])
        _, trials = read_log(self.directory.trials)
        measured = [trial.worker for trial in trials if trial.worker]
        self.assertEqual(
            {use.name: use.trials for use in events[-1].workers},
            {name: measured.count(name) for name in sorted(set(measured))},
        )
        curves = list((self.directory.path / "tensorboard" / "workers").iterdir())
        tags = {
            value.tag
            for path in curves
            for event in tf1.train.summary_iterator(str(path))
            for value in event.summary.value
        }
        self.assertIn("worker_1/trials_per_minute", tags)
        self.assertIn("worker_2/idle_share", tags)


if __name__ == "__main__":
    tf.test.main()
