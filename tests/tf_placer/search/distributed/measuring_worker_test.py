"""Tests of a measuring worker with real steps, without Ray."""

from __future__ import annotations

import dataclasses
import os
from unittest import mock

import tensorflow as tf

from tests import graphs
from tests.tf_placer.environments.shared_template import share_template
from tf_placer.environments.environment import FailureKind
from tf_placer.environments.live_processes import WorkerStartError
from tf_placer.environments.measuring_protocol import EAGLE
from tf_placer.inputs.workload import read_workload
from tf_placer.machines.lookup import find_machine
from tf_placer.search.distributed import measuring_worker
from tf_placer.search.distributed.measuring_worker import MeasuringSetup, MeasuringWorker

tf1 = tf.compat.v1
setUpModule = share_template


class MeasuringWorkerTest(tf.test.TestCase):
    """Uses one worker for all tests, because its processes take long to start."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        given = graphs.two_branches()
        workload = read_workload(given.graph, given.fetches)
        cls.names = [node.name for node in workload.graph_def.node]
        cls.machine = find_machine("local:2")
        cls.setup = MeasuringSetup(
            workload.graph_def.SerializeToString(),
            workload.step,
            cls.machine,
            tf1.ConfigProto().SerializeToString(),
        )
        cls.worker = MeasuringWorker(cls.setup)
        cls.addClassCleanup(cls.worker.release)
        cls.greeting = cls.worker.begin(120.0)

    def assignment(self, device: int) -> dict[str, str]:
        return dict.fromkeys(self.names, self.machine.devices[device].name)

    def test_begin_measures_the_original_graph(self):
        self.assertIsNone(self.greeting.original.failure)
        self.assertEqual(self.greeting.process, os.getpid())
        self.assertEqual(self.greeting.versions["tensorflow"], tf.__version__)

    def test_a_placement_takes_turns_with_the_original_graph(self):
        measurement, reference_secs = self.worker.measure(self.assignment(1), None, 60.0)
        self.assertIsNone(measurement.failure)
        self.assertLen(measurement.reference_secs, len(measurement.step_secs))
        self.assertEqual(reference_secs, self.greeting.original.median_secs)

    def test_a_paper_s_protocol_measures_each_graph_alone(self):
        worker = MeasuringWorker(dataclasses.replace(self.setup, alone_protocol=EAGLE))
        self.addCleanup(worker.release)
        original = worker.begin(120.0).original
        measurement, reference_secs = worker.measure(self.assignment(1), None, 60.0)
        for each in (original, measurement):
            self.assertLen(each.step_secs, EAGLE.counted)
            self.assertIsNone(each.reference_secs)
        # The pool compares machines by the original.
        self.assertEqual(reference_secs, original.median_secs)

    def test_a_placement_that_cannot_run_is_a_failure(self):
        nowhere = dict.fromkeys(self.names, "/job:worker/replica:0/task:7/device:CPU:0")
        measurement, _ = self.worker.measure(nowhere, None, 60.0)
        self.assertIs(measurement.failure.kind, FailureKind.INVALID_PLACEMENT)

    def test_a_placement_much_slower_than_the_best_is_stopped_early(self):
        whole, reference_secs = self.worker.measure(self.assignment(1), None, 60.0)
        left, _ = self.worker.measure(self.assignment(1), reference_secs / 100, 60.0)
        self.assertLess(len(left.step_secs), len(whole.step_secs))

    def test_the_original_graph_can_be_measured_again(self):
        self.assertGreater(self.worker.measure_original(60.0), 0.0)

    def test_confirms_in_other_sessions_and_measures_again_afterwards(self):
        opened = self.worker.confirm("open_session", 60.0, ("original", {}), {})
        self.assertGreater(opened, 0.0)
        steps = self.worker.confirm("run_steps", 60.0, ("original", 3), {})
        self.assertLen(steps, 3)
        values = self.worker.confirm("fetch_values", 60.0, ({},), {"tensors": ()})
        self.assertNotEmpty(values)
        self.worker.confirm("stop", 60.0, (), {})
        measurement, _ = self.worker.measure(self.assignment(0), None, 60.0)
        self.assertIsNone(measurement.failure)

    def test_a_machine_with_other_devices_is_refused_by_name(self):
        devices = (*self.machine.devices, dataclasses.replace(self.machine.devices[0], name="/x"))
        other = dataclasses.replace(self.machine, devices=devices)
        worker = MeasuringWorker(dataclasses.replace(self.setup, machine=other))
        with self.assertRaisesRegex(WorkerStartError, r"has other devices .*: .*task:1.* instead"):
            worker.begin(60.0)

    def test_devices_are_listed_under_the_session_config_of_the_search(self):
        config = tf1.ConfigProto(device_count={"GPU": 1})
        setup = dataclasses.replace(
            self.setup,
            machine=find_machine("emulated:2xK80", config),
            session_config=config.SerializeToString(),
        )
        # The machine is checked before any process starts.
        with (
            mock.patch.object(measuring_worker, "SessionEnvironment", side_effect=InterruptedError),
            self.assertRaises(InterruptedError),
        ):
            MeasuringWorker(setup).begin(60.0)


if __name__ == "__main__":
    tf.test.main()
