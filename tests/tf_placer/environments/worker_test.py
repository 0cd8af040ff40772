"""Tests of the worker process, spoken to directly."""

from __future__ import annotations

import os
import pathlib
import time

import tensorflow as tf

from tf_placer.environments.tensor_file import read_tensors, write_tensors
from tf_placer.processes import ChildDied, ChildProcess, await_message

v1 = tf.compat.v1


class WorkerTest(tf.test.TestCase):
    def setUp(self):
        super().setUp()
        self.directory = pathlib.Path(self.create_tempdir().full_path)
        self.worker = ChildProcess(
            "the worker",
            "tf_placer.environments.worker",
            {},
            log_path=self.directory / "worker.log",
        )
        self.addCleanup(self.worker.stop)

    def ask(self, **command) -> list[dict]:
        """Sends a command; returns all answers to it."""
        deadline = time.monotonic() + 120.0
        self.worker.send(command, deadline)
        answers = []
        while not answers or "stage" in answers[-1]:
            answers += await_message(self.worker, (), deadline)
        return answers

    def load(self, graph: tf.Graph, *fetches: str, cores=()) -> list[dict]:
        (self.directory / "graph.pb").write_bytes(graph.as_graph_def().SerializeToString())
        (self.directory / "config").write_bytes(v1.ConfigProto().SerializeToString())
        write_tensors(self.directory / "feeds", {})
        return self.ask(
            graph=str(self.directory / "graph.pb"),
            fetches=fetches,
            initializers=[],
            feeds=str(self.directory / "feeds"),
            session_config=str(self.directory / "config"),
            meta_optimizer=False,
            isolate=False,
            target="",
            cores=cores,
        )

    def test_commands_are_answered_one_by_one_and_noise_goes_to_the_log(self):
        with tf.Graph().as_default() as graph:
            x = tf.identity(tf.random.uniform([4]), name="x")
            with tf.control_dependencies([tf.print("a loud graph")]):
                tf.reduce_sum(x, name="y")
        self.assertEqual(self.load(graph, "y:0"), [{"loaded": True}])

        *stages, answer = self.ask(
            command="measure", assignment={}, steps=3, dropped=1, timeout_secs=60.0
        )
        self.assertEqual(
            [stage["stage"] for stage in stages],
            ["opening the session", "the warm-up steps", "the counted steps"],
        )
        self.assertLen(answer["step_secs"], 2)
        self.assertIn("a loud graph", self.worker.log_tail())

        answer = self.ask(
            command="measure", assignment={"x": "/job:no"}, steps=3, dropped=1, timeout_secs=60.0
        )[-1]
        self.assertEqual(answer["error"]["type"], "InvalidArgumentError")
        self.assertEqual(answer["error"]["steps_done"], 0)

        path = str(self.directory / "values")
        values = []
        for _ in range(2):
            answer = self.ask(
                command="values", assignment={}, steps=1, path=path, timeout_secs=60.0
            )[-1]
            self.assertEqual(answer, {"written": True})
            values.append(read_tensors(path))
        self.assertEqual(list(values[0]), ["y:0@1"])
        self.assertAllEqual(values[0], values[1])

    def test_traces_and_times_are_answers(self):
        with tf.Graph().as_default() as graph:
            x = tf.identity(tf.random.uniform([4]), name="x")
            tf.reduce_sum(x, name="y")
        self.load(graph, "y:0")
        rounds = {"dropped": 1, "timeout_secs": 60.0}
        *stages, answer = self.ask(command="trace", assignment={}, steps=3, **rounds)
        self.assertEqual(stages[-1], {"stage": "the traced steps"})
        self.assertLen(answer["step_secs"], 2)
        self.assertEqual(answer["operations"]["x"]["output_bytes"], {"0": 16})

        wrong = {"assignment": {"x": "/job:no"}, "steps": 3, **rounds}
        answer = self.ask(command="trace", **wrong)[-1]
        self.assertEqual(answer["error"]["type"], "InvalidArgumentError")

        rounds = {**rounds, "rounds": 3, "processes": []}
        *stages, answer = self.ask(command="time_each", fetches=["x", "y"], **rounds)
        self.assertEqual(stages[-1], {"stage": "the timed operations"})
        self.assertEqual([len(times["secs"]) for times in answer["times"]], [2, 2])

        answer = self.ask(command="time_each", fetches=["z"], **rounds)[-1]
        self.assertEqual(answer["error"]["type"], "KeyError")

    def test_sessions_run_on_the_given_cores_alone(self):
        core = max(os.sched_getaffinity(0))
        with tf.Graph().as_default() as graph:
            tf.reduce_sum(tf.random.uniform([4]), name="y")
        self.load(graph, "y:0", cores=[core])
        self.ask(command="measure", assignment={}, steps=2, dropped=1, timeout_secs=60.0)
        threads = [int(thread) for thread in os.listdir(f"/proc/{self.worker.pid}/task")]
        self.assertGreater(len(threads), 1)
        self.assertEqual({tuple(os.sched_getaffinity(thread)) for thread in threads}, {(core,)})

    def test_a_graph_that_cannot_be_loaded_is_told_and_ends_the_worker(self):
        (answer,) = self.load(tf.Graph(), "missing")
        self.assertIn("missing", answer["error"])
        with self.assertRaises(ChildDied):
            await_message(self.worker, (), time.monotonic() + 60.0)
        self.assertFalse(os.path.exists(f"/proc/{self.worker.pid}"))


if __name__ == "__main__":
    tf.test.main()
