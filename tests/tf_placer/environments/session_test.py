"""Tests of measuring in processes of their own, and of everything that can happen to those."""

from __future__ import annotations

import os
import pathlib
import signal
import threading
import time
from typing import ClassVar
from unittest import mock

import numpy as np
import tensorflow as tf

from tests.tf_placer.environments.gate_graph import write_gate_graph
from tests.tf_placer.environments.shared_template import share_template
from tests.tf_placer.process_tree import is_running
from tf_placer import processes
from tf_placer.environments.environment import Failure, FailureKind
from tf_placer.environments.measuring_protocol import COLOCRL
from tf_placer.environments.session import SessionEnvironment
from tf_placer.inputs.step import Step
from tf_placer.machines.lookup import find_machine

_LOCAL = find_machine("local:2")
_TASKS = [device.name for device in _LOCAL.devices]

setUpModule = share_template


class LocalSessionTest(tf.test.TestCase):
    """All tests share one environment: what one leaves behind must not disturb the next."""

    lines: ClassVar[list[str]] = []

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.directory = pathlib.Path(cls.get_temp_dir(cls()))
        cls.gate = cls.directory / "gate"
        write_gate_graph(cls.directory / "graph.pb", _TASKS[1])
        cls.environment = cls.enterClassContext(
            SessionEnvironment(
                cls.directory / "graph.pb",
                Step(("train", "loss:0"), {"gate:0": np.array(str(cls.gate))}, ("init",)),
                _LOCAL,
                lambda row: {"x": _TASKS[row[0]], "y": _TASKS[row[1]]},
                timeout_secs=120.0,
                work_dir=cls.directory / "work",
                report=lambda line: cls.lines.append(line),
            )
        )

    def setUp(self):
        super().setUp()
        type(self).lines = []
        self.gate.write_text("go")
        for label in "ab":
            self.addCleanup(self.environment.close_session, label)

    def assert_works(self):
        self.gate.write_text("go")
        measurement = self.environment.measure_assignment({})
        self.assertIsNone(measurement.failure)

    def hang(self, action):
        """Lets the next step hang, and does something when it hangs."""
        hung = pathlib.Path(f"{self.directory / 'graph.pb'}.hung")
        hung.unlink(missing_ok=True)
        self.gate.write_text("wait")

        def act():
            deadline = time.monotonic() + 60.0
            while not hung.exists() and time.monotonic() < deadline:
                time.sleep(0.01)
            action()

        thread = threading.Thread(target=act)
        thread.start()
        self.addCleanup(thread.join)

    def send_when_hung(self, name: str, number: signal.Signals):
        """Lets the next step hang, and sends a signal to a process when it does; only then."""

        def act():
            self.gate.write_text("go")
            self.kill(name, number)

        self.environment.measure_assignment({})
        self.hang(act)

    def kill(self, name: str, number: signal.Signals):
        os.kill(self.environment.process_ids()[name], number)

    def wait_for_death(self, name: str):
        children = self.environment.processes.children()
        [child] = [child for child in children if child.name == name]
        self.assertIn("was killed", child.exit_description())

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
        original = self.environment.fetch_values({})
        self.assertContainsSubset(["loss:0@1", "loss:0@2", "w"], list(original))
        for x in _TASKS:
            for y in _TASKS:
                placed = self.environment.fetch_values({"x": x, "y": y})
                self.assertAllClose(placed, original)
        failure = self.environment.fetch_values({"x": "/job:nobody"})
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
            self.assertAllGreater(each.cpu_secs["task 0"], 0.0)
        failure = self.environment.time_each(["x", "nowhere"])
        self.assertEqual(failure.kind, FailureKind.RUNTIME_ERROR)
        self.assertIn("nowhere", failure.message)
        self.assert_works()

    def test_steps_whose_server_is_killed_are_traced_once_more(self):
        self.send_when_hung("task 1", signal.SIGKILL)
        self.assertLen(self.environment.trace({}, COLOCRL).step_secs, 9)
        self.assertLen(self.lines, 1)
        self.assertRegex(self.lines[0], r"task 1 was killed by signal 9.*: trying once more")

    def test_a_placement_whose_server_is_stopped_is_measured_once_more(self):
        self.enterContext(mock.patch.object(processes, "_CHECK_INTERVAL_SECS", 0.1))
        before = self.environment.process_ids()
        self.send_when_hung("task 1", signal.SIGSTOP)
        self.assertIsNone(self.environment.measure_assignment({}).failure)
        self.assertLen(self.lines, 1)
        self.assertRegex(self.lines[0], r"task 1 was stopped by a signal \(SIGSTOP\) .*once more")
        self.assertFalse(any(map(is_running, before.values())))

    def test_a_placement_whose_worker_crashes_is_measured_once_more(self):
        self.send_when_hung("the worker", signal.SIGSEGV)
        self.assertIsNone(self.environment.measure_assignment({}).failure)
        self.assertLen(self.lines, 1)
        self.assertRegex(
            self.lines[0], r"in the warm-up steps, the worker was killed by signal 11 \(SIGSEGV\)"
        )

    def test_a_server_that_died_between_measurements_is_replaced(self):
        self.assert_works()
        self.kill("task 0", signal.SIGKILL)
        self.wait_for_death("task 0")
        self.assert_works()

    def test_a_hung_step_is_a_timeout_and_the_next_measurement_works(self):
        self.assert_works()
        self.gate.write_text("wait")
        self.environment.timeout_secs = 2.0
        try:
            failure = self.environment.measure_assignment({}).failure
        finally:
            self.environment.timeout_secs = 120.0
        self.assertEqual(failure.kind, FailureKind.TIMEOUT)
        self.assertIn("2 s", failure.message)
        self.assertIn("the warm-up steps", failure.message)
        self.assertEqual(self.environment.process_ids(), {})
        self.assert_works()

    def test_a_restart_brings_fresh_servers_under_the_same_worker(self):
        self.environment.open_session("a", {})
        before = self.environment.process_ids()
        self.environment.restart()
        self.assertEqual(self.environment.process_ids(), {"the worker": before["the worker"]})
        for name in ("task 0", "task 1"):
            self.assertFalse(is_running(before[name]))
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
        self.assertIsInstance(self.environment.fetch_values({}, steps=1), dict)
        self.environment.stop()
        self.assertEqual(self.environment.process_ids(), {})
        self.assertFalse(any(map(is_running, after.values())))

    def test_a_restart_after_the_death_of_the_worker_brings_fresh_processes_only(self):
        self.assert_works()
        before = self.environment.process_ids()
        self.kill("the worker", signal.SIGKILL)
        self.environment.restart()
        self.assertEqual(self.environment.process_ids(), {})
        self.assert_works()
        self.assertNoCommonElements(before.values(), self.environment.process_ids().values())
        for pid in before.values():
            self.assertFalse(is_running(pid))

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
        self.environment.fetch_values({}, steps=1)
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
        self.kill("task 1", signal.SIGKILL)
        self.wait_for_death("task 1")
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
        self.hang(lambda: self.kill("task 1", signal.SIGKILL))
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
        self.environment.stop()
        self.assertEqual(self.environment.process_ids(), {})
        self.assert_lost("a")


if __name__ == "__main__":
    tf.test.main()
