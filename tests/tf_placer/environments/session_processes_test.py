"""Tests of the processes of sessions that need not have the machine for themselves."""

from __future__ import annotations

import dataclasses
import os
import pathlib
import socket
import subprocess
import sys
import time
from unittest import mock

import numpy as np
import tensorflow as tf

from tests.tf_placer.environments.gate_graph import write_gate_graph
from tests.tf_placer.environments.shared_template import share_template
from tests.tf_placer.process_tree import is_running
from tf_placer.environments.environment import FailureKind
from tf_placer.environments.measuring_protocol import MeasuringProtocol
from tf_placer.environments.session import SessionEnvironment, WorkerStartError
from tf_placer.inputs.step import Step
from tf_placer.inputs.workload import read_workload
from tf_placer.machines.lookup import find_machine
from tf_placer.machines.machine import Device, Machine
from tf_placer.private_network import OPEN_VARIABLE, find_open_reason

v1 = tf.compat.v1
_LOCAL = find_machine("local:2")
_TASKS = [device.name for device in _LOCAL.devices]
# As `find_machine` finds it by a process that imports TensorFlow.
_ATTACHED = Machine(
    "attached", "attached", (Device("/job:localhost/replica:0/task:0/device:CPU:0", "CPU"),)
)

setUpModule = share_template


class SharedVariablesTest(tf.test.TestCase):
    """Tests of sessions that share the variables of earlier ones."""

    def setUp(self):
        super().setUp()
        self.directory = pathlib.Path(self.create_tempdir().full_path)

    def environment(self, machine: Machine) -> SessionEnvironment:
        """Every step appends its number since the initializers to a file."""
        with tf.Graph().as_default() as graph:
            counter = v1.get_variable(
                "counter", [], tf.int32, v1.zeros_initializer(), use_resource=True
            )
            count = counter.assign_add(1, read_value=True)
            path = f"file://{self.directory / 'counts'}"
            with tf.control_dependencies([tf.print(count, output_stream=path)]):
                tf.identity(count, name="count")
            tf.group(counter.initializer, name="init")
        (self.directory / "graph.pb").write_bytes(graph.as_graph_def().SerializeToString())
        self.names = [op.name for op in graph.get_operations()]
        environment = SessionEnvironment(
            self.directory / "graph.pb",
            Step(("count:0",), initializers=("init",)),
            machine,
            lambda row: {},
            protocol=MeasuringProtocol(3, 1),
        )
        self.addCleanup(environment.close)
        return environment

    def counts(self, environment: SessionEnvironment, device: str) -> list[int]:
        """The numbers of the steps of a measurement."""
        path = self.directory / "counts"
        path.write_text("")
        measurement = environment.measure_assignment(dict.fromkeys(self.names, device))
        self.assertIsNone(measurement.failure)
        self.assertLen(measurement.step_secs, 2)
        return [int(line) for line in path.read_text().split()]

    def test_variables_stay_on_the_servers_of_a_local_machine(self):
        environment = self.environment(_LOCAL)
        self.assertEqual(self.counts(environment, _TASKS[0]), [1, 2, 3])
        self.assertEqual(self.counts(environment, _TASKS[1]), [1, 2, 3])
        self.assertEqual(self.counts(environment, _TASKS[0]), [4, 5, 6])
        environment.restart()
        self.assertEqual(self.counts(environment, _TASKS[0]), [1, 2, 3])

    def test_variables_do_not_outlive_the_session_elsewhere(self):
        environment = self.environment(_ATTACHED)
        for _ in range(2):
            self.assertEqual(self.counts(environment, _ATTACHED.devices[0].name), [1, 2, 3])
        worker = environment.process_ids()
        # There are no servers to replace.
        environment.restart()
        self.assertEqual(environment.process_ids(), {})
        self.assertEqual(self.counts(environment, _ATTACHED.devices[0].name), [1, 2, 3])
        self.assertNotEqual(environment.process_ids(), worker)


class MemoryLimitTest(tf.test.TestCase):
    def test_a_placement_beyond_the_limit_is_out_of_memory_and_the_next_one_works(self):
        path = self.create_tempfile("graph.pb").full_path
        machine = find_machine("local:2,memory_mb=300")
        # One variable and a temporary of its size fit into a process, two variables and one do not.
        side = int((120 * 2**20 / 4) ** 0.5)
        with tf.Graph().as_default() as graph:
            for i in range(2):
                with tf.name_scope(f"branch{i}"):
                    value = tf.random.uniform([side, side])
                    variable = v1.Variable(value, use_resource=True, name="v")
                    tf.reduce_sum(variable * 2.0, name="sum")
            tf.group(*(v.initializer for v in v1.global_variables()), name="init")
        pathlib.Path(path).write_bytes(graph.as_graph_def().SerializeToString())
        branches = [
            [op.name for op in graph.get_operations() if op.name.startswith(f"branch{i}/")]
            for i in range(2)
        ]

        def assign(row: np.ndarray) -> dict[str, str]:
            return {name: _TASKS[row[i]] for i in range(2) for name in branches[i]}

        step = Step(("branch0/sum:0", "branch1/sum:0"), initializers=("init",))
        with SessionEnvironment(
            path, step, machine, assign, protocol=MeasuringProtocol(3, 1)
        ) as environment:
            full, split, swapped = environment.measure(np.array([[0, 0], [0, 1], [1, 0]], np.int32))
        self.assertEqual(full.failure.kind, FailureKind.OUT_OF_MEMORY)
        # TensorFlow reports it as an error or, in some kernels, crashes on it.
        self.assertRegex(full.failure.message, "task.0.*(OOM when allocating|out of memory)")
        self.assertIsNone(split.failure)
        # The variables of "split" are not in its way.
        self.assertIsNone(swapped.failure)


class ClosedDoorsTest(tf.test.TestCase):
    """Tests of the access to servers that a search has started."""

    def setUp(self):
        super().setUp()
        self.directory = pathlib.Path(self.create_tempdir().full_path)
        write_gate_graph(self.directory / "graph.pb")
        (self.directory / "gate").write_text("go")

    def networks_and_answers(self) -> tuple[set[str], list[bool]]:
        """The networks that worker and servers are in, and which servers answer this process."""
        step = Step(("loss:0",), {"gate:0": np.array(str(self.directory / "gate"))}, ("init",))
        with SessionEnvironment(
            self.directory / "graph.pb", step, _LOCAL, lambda row: {}
        ) as environment:
            self.assertIsNone(environment.measure_assignment({}).failure)
            pids = environment.process_ids().values()
            networks = {os.readlink(f"/proc/{pid}/ns/net") for pid in pids}
            self.assertLen(pids, 3)
            answers = []
            for target in environment.processes.targets:
                with socket.socket() as client:
                    address = ("localhost", int(target.rpartition(":")[2]))
                    answers.append(client.connect_ex(address) == 0)
        return networks, answers

    def test_servers_run_in_a_private_network(self):
        if (reason := find_open_reason()) is not None:
            self.skipTest(reason)
        networks, answers = self.networks_and_answers()
        self.assertLen(networks, 1)
        self.assertNotIn(os.readlink("/proc/self/ns/net"), networks)
        self.assertEqual(answers, [False, False])

    def test_a_missing_private_network_is_reported(self):
        with (
            mock.patch.dict(os.environ, {OPEN_VARIABLE: "1"}),
            self.assertLogs("absl", "WARNING") as logs,
        ):
            networks, answers = self.networks_and_answers()
        self.assertEqual(networks, {os.readlink("/proc/self/ns/net")})
        self.assertEqual(answers, [True, True])
        self.assertRegex(
            " ".join(logs.output), "local:2 listen without a password, because .*=1 asks for that"
        )


_HANGING_PARENT = """
import sys, threading, time
import numpy as np
from tf_placer.environments.session import SessionEnvironment
from tf_placer.machines.lookup import find_machine
from tf_placer.inputs.step import Step

graph, gate = sys.argv[1:]
environment = SessionEnvironment(
    graph,
    Step(("loss:0",), {"gate:0": np.array(gate)}, ("init",)),
    find_machine("local:2"),
    lambda row: {},
)
assert environment.measure_assignment({}).failure is None
open(gate, "w").write("wait")
print(*environment.process_ids().values(), flush=True)
environment.measure_assignment({})
"""


class OrphanTest(tf.test.TestCase):
    def setUp(self):
        super().setUp()
        self.directory = pathlib.Path(self.create_tempdir().full_path)
        write_gate_graph(self.directory / "graph.pb")
        (self.directory / "gate").write_text("go")

    def test_no_process_outlives_a_parent_that_is_killed_in_a_measurement(self):
        parent = subprocess.Popen(
            [
                *(sys.executable, "-c", _HANGING_PARENT),
                *(str(self.directory / name) for name in ("graph.pb", "gate")),
            ],
            stdout=subprocess.PIPE,
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join(sys.path),
                "TMPDIR": str(self.directory),
            },
        )
        self.addCleanup(parent.stdout.close)
        pids = [int(pid) for pid in parent.stdout.readline().split()]
        self.assertLen(pids, 3)
        time.sleep(0.5)
        self.assertTrue(all(map(is_running, pids)))
        parent.kill()
        parent.wait()
        deadline = time.monotonic() + 60.0
        while any(map(is_running, pids)) and time.monotonic() < deadline:
            time.sleep(0.01)
        self.assertFalse(any(map(is_running, pids)))

    def test_no_process_and_no_file_outlives_the_environment(self):
        work_dir = self.directory / "work"
        step = Step(("loss:0",), {"gate:0": np.array(str(self.directory / "gate"))}, ("init",))
        with SessionEnvironment(
            self.directory / "graph.pb",
            step,
            _LOCAL,
            lambda row: {},
            protocol=MeasuringProtocol(3, 1),
            session_config=v1.ConfigProto(allow_soft_placement=True),
            meta_optimizer=True,
            work_dir=work_dir,
        ) as environment:
            measurement = environment.measure_assignment({})
            self.assertIsNone(measurement.failure)
            self.assertLen(measurement.step_secs, 2)
            pids = environment.process_ids()
            self.assertLen(pids, 3)
        self.assertFalse(any(map(is_running, pids.values())))
        self.assertEqual(list(work_dir.iterdir()), [])
        for use in (
            environment.measure_assignment,
            environment.fetch_values,
            environment.time_each,
        ):
            with self.assertRaisesRegex(RuntimeError, "closed"):
                use({})
        with self.assertRaisesRegex(RuntimeError, "closed"):
            environment.open_session("a", {})
        with self.assertRaisesRegex(RuntimeError, "closed"):
            environment.run_steps("a", 1)


class StartTest(tf.test.TestCase):
    def setUp(self):
        super().setUp()
        self.path = pathlib.Path(self.create_tempfile("graph.pb").full_path)
        write_gate_graph(self.path)

    def environment(self, step: Step, machine: Machine) -> SessionEnvironment:
        environment = SessionEnvironment(self.path, step, machine, lambda row: {})
        self.addCleanup(environment.close)
        return environment

    def test_a_graph_that_lacks_what_the_step_needs_is_no_placements_fault(self):
        environment = self.environment(Step(("nowhere:0",)), find_machine("local:1"))
        with self.assertRaisesRegex(WorkerStartError, "the graph cannot be run: .*nowhere"):
            environment.measure_assignment({})
        self.assertEqual(environment.process_ids(), {})

    def test_a_value_that_no_tensor_can_hold_is_refused_at_once(self):
        with self.assertRaisesRegex(ValueError, "gate:0"):
            self.environment(
                Step(("loss:0",), {"gate:0": np.array(object())}), find_machine("local:1")
            )

    def test_servers_that_do_not_start_are_an_error_after_a_second_attempt(self):
        value = find_machine("local:1").to_json()
        value["devices"][0]["cores"] = [9999]
        environment = self.environment(Step(("loss:0",)), Machine.from_json(value))
        with (
            self.assertLogs(level="WARNING") as logs,
            self.assertRaisesRegex(WorkerStartError, "the workers do not start: task 0 exited"),
        ):
            environment.measure_assignment({})
        self.assertIn("trying once more", logs.output[0])
        self.assertEqual(environment.process_ids(), {})

    def test_a_cluster_that_went_away_is_named(self):
        machine = Machine("grpc://localhost:1", "cluster", _LOCAL.devices, ())
        with self.assertRaisesRegex(WorkerStartError, "answers at grpc://localhost:1"):
            self.environment(Step(("loss:0",)), machine).measure_assignment({})

    def test_a_timeout_must_be_positive(self):
        with self.assertRaises(ValueError):
            SessionEnvironment(self.path, Step(("loss:0",)), _LOCAL, dict, timeout_secs=0)


class RicherStepTest(tf.test.TestCase):
    def test_all_of_a_step_reaches_the_worker(self):
        with tf.Graph().as_default() as graph:
            start = v1.placeholder(tf.float32, [], name="start")
            fed = v1.get_variable("fed", initializer=start, use_resource=True)
            restored = v1.get_variable("restored", initializer=0.0, use_resource=True)
            queue = v1.FIFOQueue(3, [tf.float32], [[]], name="queue")
            v1.train.add_queue_runner(v1.train.QueueRunner(queue, [queue.enqueue(100.0)]))
            y = queue.dequeue() + 10.0 * fed + restored
        workload = read_workload(graph, y, {start: 2.0})
        step = dataclasses.replace(workload.step, restored={"restored": np.float32(3.0)})
        path = pathlib.Path(self.create_tempfile("graph.pb").full_path)
        path.write_bytes(workload.graph_def.SerializeToString())
        with SessionEnvironment(path, step, _LOCAL, lambda row: {}) as environment:
            measurement = environment.measure_assignment({})
            self.assertIsNone(measurement.failure)
            values = environment.fetch_values({"restored": _TASKS[1]})
        self.assertEqual([values[f"{y.name}@{k}"] for k in (1, 2)], [123.0, 123.0])


if __name__ == "__main__":
    tf.test.main()
