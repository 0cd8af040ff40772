"""Tests of measuring in processes of their own, and of everything that can happen to those."""

from __future__ import annotations

import dataclasses
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import tensorflow as tf

from tf_placer.environments.environment import Failure, FailureKind
from tf_placer.environments.session import (
    COLOCRL,
    EAGLE,
    POST,
    MeasuringProtocol,
    SessionEnvironment,
    WorkerStartError,
)
from tf_placer.inputs.sources import read_source
from tf_placer.inputs.step import Step
from tf_placer.machines.lookup import find_machine
from tf_placer.machines.machine import Machine

v1 = tf.compat.v1
_LOCAL = find_machine("local:2")
_TASKS = [device.name for device in _LOCAL.devices]


def _write_gate_graph(path: pathlib.Path, queue_device: str = "") -> None:
    """A step waits for ever on a queue as long as the file that "gate:0" names says "wait"."""
    with tf.Graph().as_default() as graph:
        gate = v1.placeholder(tf.string, [], name="gate")
        with tf.device(queue_device):
            queue = v1.FIFOQueue(1, [tf.float32], shapes=[[]])
        waiting = tf.equal(tf.io.read_file(gate), "wait")
        opened = tf.cond(waiting, queue.dequeue, lambda: tf.constant(1.0))
        w = v1.get_variable("w", [8, 8], use_resource=True)
        x = tf.matmul(tf.random.normal([8, 8]), w, name="x")
        y = tf.tanh(x, name="y")
        loss = tf.reduce_mean(y) * opened
        train = w.assign_sub(y)
        tf.group(train, name="train")
        tf.identity(loss, name="loss")
        tf.group(w.initializer, name="init")
    path.write_bytes(graph.as_graph_def().SerializeToString())


def _is_running(pid: int) -> bool:
    """Whether a process runs; one that is dead but not yet waited for does not."""
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


class MeasuringProtocolTest(tf.test.TestCase):
    def test_presets_are_as_published(self):
        self.assertEqual((COLOCRL.steps, COLOCRL.dropped), (10, 1))
        self.assertEqual((POST.steps, POST.dropped), (11, 1))
        self.assertEqual((EAGLE.steps, EAGLE.dropped), (15, 5))

    def test_a_step_must_count(self):
        for steps, dropped in ((0, 0), (3, 3), (3, -1)):
            with self.assertRaises(ValueError):
                MeasuringProtocol(steps, dropped)

    def test_counted_steps_are_those_that_are_not_dropped(self):
        self.assertEqual([each.counted for each in (COLOCRL, POST, EAGLE)], [9, 10, 10])


class LocalSessionTest(tf.test.TestCase):
    """All tests share one environment: what one leaves behind must not disturb the next."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.directory = pathlib.Path(cls.get_temp_dir(cls()))
        cls.gate = cls.directory / "gate"
        _write_gate_graph(cls.directory / "graph.pb", _TASKS[1])
        cls.environment = cls.enterClassContext(
            SessionEnvironment(
                cls.directory / "graph.pb",
                Step(("train", "loss:0"), {"gate:0": np.array(str(cls.gate))}, ("init",)),
                _LOCAL,
                lambda row: {"x": _TASKS[row[0]], "y": _TASKS[row[1]]},
                timeout_secs=120.0,
                work_dir=cls.directory / "work",
            )
        )

    def setUp(self):
        super().setUp()
        self.gate.write_text("go")
        for label in "ab":
            self.addCleanup(self.environment.close_session, label)

    def assert_works(self):
        self.gate.write_text("go")
        measurement = self.environment.measure_assignment({})
        self.assertIsNone(measurement.failure)

    def measure_while_hung(self, action):
        """Measures a step that hangs, and does something to it when it hangs."""
        self.environment.measure_assignment({})
        self.gate.write_text("wait")
        timer = threading.Timer(0.5, action)
        timer.start()
        self.addCleanup(timer.join)
        return self.environment.measure_assignment({})

    def kill(self, name: str, number: signal.Signals):
        os.kill(self.environment.process_ids()[name], number)

    def test_placements_are_measured_one_by_one(self):
        measurements = self.environment.measure(np.array([[0, 0], [0, 1], [1, 0]], np.int32))
        self.assertLen(measurements, 3)
        for measurement in measurements:
            self.assertIsNone(measurement.failure)
            self.assertLen(measurement.step_secs, 9)
            self.assertGreater(min(measurement.step_secs), 0.0)
            self.assertGreater(measurement.setup_secs, 0.0)

    def test_processes_serve_many_measurements(self):
        self.assert_works()
        before = self.environment.process_ids()
        self.assertEqual(list(before), ["the worker", "task 0", "task 1"])
        self.assert_works()
        self.assertEqual(self.environment.process_ids(), before)

    def test_an_invalid_placement_costs_no_process(self):
        self.assert_works()
        before = self.environment.process_ids()
        failure = self.environment.measure_assignment({"x": _TASKS[0][:-1] + "7"}).failure
        self.assertEqual(failure.kind, FailureKind.INVALID_PLACEMENT)
        self.assertIn("available devices are", failure.message)
        self.assert_works()
        self.assertEqual(self.environment.process_ids(), before)

    def test_every_placement_fetches_the_same_values(self):
        original = self.environment.fetched_values({})
        self.assertContainsSubset(["loss:0@1", "loss:0@2", "w"], list(original))
        for x in _TASKS:
            for y in _TASKS:
                placed = self.environment.fetched_values({"x": x, "y": y})
                self.assertAllClose(placed, original)
        failure = self.environment.fetched_values({"x": "/job:nobody"})
        self.assertEqual(failure.kind, FailureKind.INVALID_PLACEMENT)

    def test_steps_are_traced_under_the_given_devices(self):
        profile = self.environment.trace({"x": _TASKS[0], "y": _TASKS[1]}, COLOCRL)
        self.assertLen(profile.step_secs, 9)
        self.assertContainsSubset(["x", "y", "w"], profile.operations)
        self.assertEqual(profile.operations["y"].output_bytes, {0: 8 * 8 * 4})
        self.assertGreater(profile.operations["x"].compute_secs, 0.0)
        failure = self.environment.trace({"x": "/job:nobody"}, COLOCRL)
        self.assertEqual(failure.kind, FailureKind.INVALID_PLACEMENT)
        self.assert_works()

    def test_operations_are_timed_each_alone(self):
        times = self.environment.time_each(["x", "y"])
        self.assertEqual([len(each.secs) for each in times], [9, 9])
        self.assertAllGreater([each.secs for each in times], 0.0)
        for each in times:
            self.assertEqual(set(each.cpu_secs), {"the worker", "task 0", "task 1"})
            self.assertGreater(each.cpu_secs["task 0"], 0.0)
        failure = self.environment.time_each(["x", "nowhere"])
        self.assertEqual(failure.kind, FailureKind.RUNTIME_ERROR)
        self.assertIn("nowhere", failure.message)
        self.assert_works()

    def test_a_server_that_is_killed_while_steps_are_traced_is_a_failure(self):
        self.environment.measure_assignment({})
        self.gate.write_text("wait")
        timer = threading.Timer(0.5, lambda: self.kill("task 1", signal.SIGKILL))
        timer.start()
        self.addCleanup(timer.join)
        failure = self.environment.trace({}, COLOCRL)
        self.assertEqual(failure.kind, FailureKind.WORKER_DIED)
        self.assertIn("task 1 was killed", failure.message)
        self.assert_works()

    def test_a_killed_server_is_a_failure_and_the_next_measurement_works(self):
        failure = self.measure_while_hung(lambda: self.kill("task 1", signal.SIGKILL)).failure
        self.assertEqual(failure.kind, FailureKind.WORKER_DIED)
        self.assertIn("task 1 was killed by signal 9 (SIGKILL)", failure.message)
        self.assert_works()

    def test_a_crashed_worker_is_a_failure_and_the_next_measurement_works(self):
        failure = self.measure_while_hung(lambda: self.kill("the worker", signal.SIGSEGV)).failure
        self.assertEqual(failure.kind, FailureKind.WORKER_DIED)
        self.assertIn("the worker was killed by signal 11 (SIGSEGV)", failure.message)
        self.assertIn("in the warm-up steps", failure.message)
        self.assert_works()

    def test_a_server_that_died_between_measurements_is_replaced(self):
        self.assert_works()
        before = self.environment.process_ids()
        self.kill("task 0", signal.SIGKILL)
        os.waitid(os.P_PID, before["task 0"], os.WEXITED | os.WNOWAIT)
        self.assert_works()

    def test_a_hung_step_is_a_timeout_and_the_next_measurement_works(self):
        self.environment.timeout_secs = 3.0
        try:
            failure = self.measure_while_hung(lambda: None).failure
        finally:
            self.environment.timeout_secs = 120.0
        self.assertEqual(failure.kind, FailureKind.TIMEOUT)
        self.assertIn("3 s", failure.message)
        self.assertIn("the warm-up steps", failure.message)
        self.assertEqual(self.environment.process_ids(), {})
        self.assert_works()

    def test_a_restart_brings_fresh_servers_under_the_same_worker(self):
        self.environment.open_session("a", {})
        before = self.environment.process_ids()
        self.environment.restart()
        self.assertEqual(self.environment.process_ids(), {"the worker": before["the worker"]})
        for name in ("task 0", "task 1"):
            self.assertFalse(_is_running(before[name]))
        self.assert_lost("a")
        self.assert_works()
        after = self.environment.process_ids()
        self.assertEqual(list(after), list(before))
        self.assertEqual(after["the worker"], before["the worker"])
        self.assertNoCommonElements(
            *([ids["task 0"], ids["task 1"]] for ids in (before, after)),
        )
        placed = self.environment.measure_assignment({"x": _TASKS[0], "y": _TASKS[1]})
        self.assertIsNone(placed.failure)
        self.assertIsInstance(self.environment.fetched_values({}, steps=1), dict)
        self.environment.stop()
        self.assertEqual(self.environment.process_ids(), {})
        self.assertFalse(any(map(_is_running, after.values())))

    def test_a_restart_after_the_death_of_the_worker_brings_fresh_processes_only(self):
        self.assert_works()
        before = self.environment.process_ids()
        self.kill("the worker", signal.SIGKILL)
        self.environment.restart()
        self.assertEqual(self.environment.process_ids(), {})
        self.assert_works()
        self.assertNoCommonElements(before.values(), self.environment.process_ids().values())
        for pid in before.values():
            self.assertFalse(_is_running(pid))

    # Sessions that stay open.

    def assert_steps(self, label: str, count: int):
        steps = self.environment.run_steps(label, count)
        self.assertLen(steps, count)
        self.assertGreater(min(steps), 0.0)

    def assert_lost(self, label: str):
        self.assertFalse(self.environment.has_session(label))
        failure = self.environment.run_steps(label, 1)
        self.assertIsInstance(failure, Failure)
        self.assertEqual(failure.kind, FailureKind.WORKER_DIED)
        self.assertIn(f"the session '{label}' is lost", failure.message)

    def test_sessions_take_turns_and_survive_the_measuring_of_others(self):
        self.assert_works()
        before = self.environment.process_ids()
        for label, task in zip("ab", _TASKS, strict=True):
            self.assertFalse(self.environment.has_session(label))
            secs = self.environment.open_session(label, {"x": task, "y": task})
            self.assertIsInstance(secs, float)
            self.assertGreater(secs, 0.0)
            self.assertTrue(self.environment.has_session(label))
        for label, count in (("a", 1), ("b", 3), ("a", 2)):
            self.assert_steps(label, count)
        for measurement in self.environment.measure(np.array([[0, 1], [1, 0]], np.int32)):
            self.assertIsNone(measurement.failure)
        failure = self.environment.measure_assignment({"x": "/job:nobody"}).failure
        self.assertEqual(failure.kind, FailureKind.INVALID_PLACEMENT)
        self.environment.trace({}, COLOCRL)
        self.environment.fetched_values({}, steps=1)
        self.assert_steps("b", 1)
        self.environment.close_session("b")
        self.assertFalse(self.environment.has_session("b"))
        self.assert_steps("a", 1)
        self.environment.close_session("a")
        self.assertEqual(self.environment.process_ids(), before)

    def test_closing_what_is_not_open_does_nothing(self):
        self.assert_works()
        before = self.environment.process_ids()
        self.environment.close_session("never opened")
        self.assertEqual(self.environment.process_ids(), before)

    def test_steps_of_a_session_that_was_never_opened_or_is_closed_are_a_failure(self):
        self.environment.open_session("a", {})
        self.environment.close_session("a")
        self.assert_lost("a")
        self.assert_lost("never opened")

    def test_a_session_that_does_not_open_is_not_there(self):
        self.environment.open_session("a", {})
        self.environment.open_session("b", {})
        before = self.environment.process_ids()
        for label in "bc":
            failure = self.environment.open_session(label, {"x": "/job:nobody"})
            self.assertEqual(failure.kind, FailureKind.INVALID_PLACEMENT)
            self.assert_lost(label)
        self.assert_steps("a", 1)
        self.assertEqual(self.environment.process_ids(), before)

    def test_sessions_are_lost_with_a_process_that_died_between(self):
        self.environment.open_session("a", {})
        self.environment.open_session("b", {})
        before = self.environment.process_ids()
        self.kill("task 1", signal.SIGKILL)
        os.waitid(os.P_PID, before["task 1"], os.WEXITED | os.WNOWAIT)
        self.assert_lost("a")
        self.assert_lost("b")
        self.environment.close_session("a")
        self.environment.open_session("a", {})
        self.assert_steps("a", 2)
        self.assert_lost("b")

    def test_a_hung_step_of_an_open_session_is_a_timeout_and_loses_all(self):
        for label in "ab":
            self.environment.open_session(label, {})
        self.gate.write_text("wait")
        failure = self.environment.run_steps("a", 1, timeout_secs=2.0)
        self.assertEqual(failure.kind, FailureKind.TIMEOUT)
        self.assertIn("2 s", failure.message)
        self.assertIn("the counted steps", failure.message)
        self.assertEqual(self.environment.process_ids(), {})
        self.gate.write_text("go")
        self.assert_lost("b")
        self.assert_works()

    def test_a_server_that_is_killed_in_a_step_of_an_open_session_is_a_failure(self):
        self.environment.open_session("a", {})
        self.gate.write_text("wait")
        timer = threading.Timer(0.5, lambda: self.kill("task 1", signal.SIGKILL))
        timer.start()
        self.addCleanup(timer.join)
        failure = self.environment.run_steps("a", 1)
        self.assertEqual(failure.kind, FailureKind.WORKER_DIED)
        self.assertIn("in the counted steps, task 1 was killed by signal 9", failure.message)
        self.assertFalse(self.environment.has_session("a"))
        self.assert_works()

    def test_no_time_left_is_a_timeout_after_which_nothing_runs(self):
        self.environment.open_session("a", {})
        failure = self.environment.run_steps("a", 1000, timeout_secs=-1.0)
        self.assertEqual(failure.kind, FailureKind.TIMEOUT)
        self.assertEqual(self.environment.process_ids(), {})
        # Nothing of this needs processes.
        self.environment.close_session("a")
        self.environment.restart()
        self.environment.stop()
        self.assertEqual(self.environment.process_ids(), {})
        self.assert_lost("a")


class SharedVariablesTest(tf.test.TestCase):
    """Which sessions go on with the variables of those before."""

    def setUp(self):
        super().setUp()
        self.directory = pathlib.Path(self.create_tempdir().full_path)

    def environment(self, machine: Machine) -> SessionEnvironment:
        """Every step appends its number since the initialisers to a file."""
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
        machine = find_machine("attached")
        environment = self.environment(machine)
        for _ in range(2):
            self.assertEqual(self.counts(environment, machine.devices[0].name), [1, 2, 3])
        worker = environment.process_ids()
        # There are no servers to replace.
        environment.restart()
        self.assertEqual(environment.process_ids(), {})
        self.assertEqual(self.counts(environment, machine.devices[0].name), [1, 2, 3])
        self.assertNotEqual(environment.process_ids(), worker)


class RicherStepTest(tf.test.TestCase):
    def test_all_of_a_step_reaches_the_worker(self):
        with tf.Graph().as_default() as graph:
            start = v1.placeholder(tf.float32, [], name="start")
            fed = v1.get_variable("fed", initializer=start, use_resource=True)
            restored = v1.get_variable("restored", initializer=0.0, use_resource=True)
            queue = v1.FIFOQueue(3, [tf.float32], [[]], name="queue")
            v1.train.add_queue_runner(v1.train.QueueRunner(queue, [queue.enqueue(100.0)]))
            y = queue.dequeue() + 10.0 * fed + restored
        source = read_source(graph, y, {start: 2.0})
        step = dataclasses.replace(source.step, restored={"restored": np.float32(3.0)})
        path = pathlib.Path(self.create_tempfile("graph.pb").full_path)
        path.write_bytes(source.graph_def.SerializeToString())
        with SessionEnvironment(path, step, _LOCAL, lambda row: {}) as environment:
            measurement = environment.measure_assignment({})
            self.assertIsNone(measurement.failure)
            values = environment.fetched_values({"restored": _TASKS[1]})
        self.assertEqual([values[f"{y.name}@{k}"] for k in (1, 2)], [123.0, 123.0])


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
        with SessionEnvironment(path, step, machine, assign) as environment:
            full, split, swapped = environment.measure(np.array([[0, 0], [0, 1], [1, 0]], np.int32))
        self.assertEqual(full.failure.kind, FailureKind.OUT_OF_MEMORY)
        # TensorFlow reports it as an error or, in some kernels, crashes on it.
        self.assertRegex(full.failure.message, "task.0.*(OOM when allocating|out of memory)")
        self.assertIsNone(split.failure)
        # The variables of "split" are not in its way.
        self.assertIsNone(swapped.failure)


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
        _write_gate_graph(self.directory / "graph.pb")
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
        self.assertTrue(all(map(_is_running, pids)))
        parent.kill()
        parent.wait()
        deadline = time.monotonic() + 60.0
        while any(map(_is_running, pids)) and time.monotonic() < deadline:
            time.sleep(0.01)
        self.assertFalse(any(map(_is_running, pids)))

    def test_no_process_and_no_file_outlives_the_environment(self):
        work_dir = self.directory / "work"
        step = Step(("loss:0",), {"gate:0": np.array(str(self.directory / "gate"))}, ("init",))
        with SessionEnvironment(
            self.directory / "graph.pb",
            step,
            find_machine("attached"),
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
            self.assertLen(pids, 1)
        self.assertFalse(any(map(_is_running, pids.values())))
        self.assertEqual(list(work_dir.iterdir()), [])
        for use in (
            environment.measure_assignment,
            environment.fetched_values,
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
        _write_gate_graph(self.path)

    def environment(self, step: Step, machine: Machine) -> SessionEnvironment:
        environment = SessionEnvironment(self.path, step, machine, lambda row: {})
        self.addCleanup(environment.close)
        return environment

    def test_a_graph_that_lacks_what_the_step_needs_is_no_placements_fault(self):
        environment = self.environment(Step(("nowhere:0",)), find_machine("attached"))
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


if __name__ == "__main__":
    tf.test.main()
