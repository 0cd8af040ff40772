"""Tests of sessions that run in a thread of this process, which has the Python functions."""

from __future__ import annotations

import os
import pathlib
import threading
import time
from unittest import mock

import numpy as np
import tensorflow as tf

from tf_placer.environments import in_process_worker
from tf_placer.environments.environment import FailureKind
from tf_placer.environments.in_process_worker import WorkerHost
from tf_placer.environments.live_processes import LiveProcesses
from tf_placer.environments.session import SessionEnvironment, WorkerStartError
from tf_placer.inputs.step import Step
from tf_placer.machines.machine import Device, Machine

tf1 = tf.compat.v1
_CPUS = [f"/job:localhost/replica:0/task:0/device:CPU:{i}" for i in range(2)]
_MACHINE = Machine("attached", "attached", tuple(Device(name, "CPU") for name in _CPUS), ())
_STEP = Step(("y:0",))
_CONFIG = tf1.ConfigProto(device_count={"CPU": 2})


class InProcessWorkerTest(tf.test.TestCase):
    def setUp(self):
        super().setUp()
        self.directory = pathlib.Path(self.create_tempdir().full_path)
        self.host = self.enter_context(WorkerHost())

    def environment(self, graph: tf.Graph, step: Step, timeout_secs=30.0) -> SessionEnvironment:
        path = self.directory / "graph.pb"
        path.write_bytes(graph.as_graph_def().SerializeToString())
        self.processes = LiveProcesses(_MACHINE, self.directory, self.host.fileno())
        self.addCleanup(self.processes.stop)
        environment = SessionEnvironment(
            path,
            step,
            _MACHINE,
            lambda _: {},
            session_config=_CONFIG,
            timeout_secs=timeout_secs,
            processes=self.processes,
        )
        self.addCleanup(environment.close)
        return environment

    def calling(self, function) -> tf.Graph:
        with tf.Graph().as_default() as graph:
            tf.numpy_function(function, [2.0], tf.float32, name="y")
        return graph

    def test_functions_are_called_in_this_process(self):
        callers = set()

        def double(x):
            callers.add((os.getpid(), threading.current_thread() is threading.main_thread()))
            return 2 * x

        with tf.Graph().as_default() as graph:
            numbers = tf.data.Dataset.from_generator(
                lambda: iter([1.0, 2.0, 3.0]), output_signature=tf.TensorSpec([])
            )
            iterator = tf1.data.make_initializable_iterator(numbers.repeat())
            w = tf1.get_variable("w", [], initializer=tf1.ones_initializer(), use_resource=True)
            x = tf.numpy_function(double, [iterator.get_next()], tf.float32)
            x.set_shape([])
            y = tf.py_function(lambda x, w: double(x) * w * w, [x, w], tf.float32)
            y.set_shape([])
            # The gradient of a Python function calls another one.
            train = w.assign_add(tf.gradients(y, w)[0], name="train", read_value=False)
            tf.identity(y, name="y")
        initializers = [w.initializer.name, iterator.initializer.name]
        names = ["y:0", train.name]
        with tf1.Session(graph=graph) as session:
            for name in initializers:
                session.run(name)
            expected = [session.run(names)[0] for _ in range(2)]
            expected_w = session.run(w)
        callers.clear()

        environment = self.environment(graph, Step(tuple(names), {}, tuple(initializers)))
        default = tf1.get_default_graph()
        for assignment in ({}, {"w": _CPUS[1], "w/Read/ReadVariableOp": _CPUS[1]}):
            values = environment.fetch_values(assignment)
            self.assertAllEqual([values["y:0@1"], values["y:0@2"]], expected)
            self.assertEqual(values["w"], expected_w)
        self.assertIs(tf1.get_default_graph(), default)
        self.assertEqual({pid for pid, _ in callers}, {os.getpid()})
        self.assertNotIn((os.getpid(), True), callers)
        # Sessions take turns, and fresh ones follow.
        for _ in range(2):
            for label in ("a", "b"):
                self.assertIsInstance(environment.open_session(label, {}), float)
            self.assertLen(environment.run_steps("a", 3), 3)
            environment.restart()
            self.assertFalse(environment.has_session("a"))

    def test_a_function_that_fails_says_why(self):
        def failing(x):
            raise RuntimeError(f"no more than {x:.1f}")

        environment = self.environment(self.calling(failing), _STEP)
        failure = environment.measure_assignment({}).failure
        self.assertEqual(failure.kind, FailureKind.RUNTIME_ERROR)
        self.assertEqual(
            failure.message, "in the warm-up steps: UnknownError: RuntimeError: no more than 2.0"
        )
        # It may have done harm; what follows has a session of its own.
        self.assertIsNotNone(environment.measure_assignment({}).failure)

    def test_a_step_that_takes_too_long_is_canceled(self):
        with tf.Graph().as_default() as graph:
            # It waits for ever, unless its session is closed.
            tf.queue.FIFOQueue(1, [tf.float32]).dequeue(name="y")
        environment = self.environment(graph, Step(("y:0",)))
        load = environment._load
        self.processes.start(load)
        command = {"command": "open_session", "label": "a", "assignment": {}, "dropped": 1}
        # The single run has more time than the request.
        failure = self.processes.request(
            load, {**command, "timeout_secs": 300.0}, 1.0, "opening a session"
        )
        self.assertEqual(failure.message, "no result within 1 s, still in the warm-up steps")
        start_secs = time.monotonic()
        self.processes.start(load)
        self.assertLess(time.monotonic() - start_secs, 10.0)

    def test_a_function_that_never_returns_is_reported(self):
        returns = threading.Event()
        self.addCleanup(returns.set)

        def waiting(x):
            returns.wait()
            return x

        environment = self.environment(self.calling(waiting), _STEP, timeout_secs=1.0)
        failure = environment.measure_assignment({}).failure
        self.assertEqual(failure.kind, FailureKind.TIMEOUT)
        with (
            mock.patch.object(in_process_worker, "_CANCEL_TIMEOUT_SECS", 0.2),
            self.assertRaisesRegex(
                WorkerStartError, "still runs in the calling process, where nothing can end it"
            ),
        ):
            environment.measure_assignment({})
        returns.set()
        # The worker still serves other commands.
        self.assertIsNone(environment.measure_assignment({}).failure)

    def test_its_threads_end_with_it(self):
        before = threading.active_count()
        with WorkerHost() as host:
            self.host, outer = host, self.host
            environment = self.environment(self.calling(np.float32), _STEP)
            self.assertIsInstance(environment.open_session("a", {}), float)
            self.assertTrue(self.processes.are_running())
            # As the end of the process that searches does.
            self.processes.stop()
        self.host = outer
        self.assertEqual(threading.active_count(), before)


if __name__ == "__main__":
    tf.test.main()
