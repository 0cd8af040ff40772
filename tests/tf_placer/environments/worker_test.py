"""Tests of the worker process, spoken to directly."""

from __future__ import annotations

import os
import pathlib
import time

import tensorflow as tf

from tests.tf_placer.environments.shared_template import find_template
from tf_placer.environments.tensor_file import read_tensors, write_tensors
from tf_placer.processes import ChildProcess, await_message

v1 = tf.compat.v1


def start_worker(directory: str, cores=()) -> ChildProcess:
    return ChildProcess(
        "the worker",
        "tf_placer.environments.worker",
        {"cores": cores},
        log_path=pathlib.Path(directory, "worker.log"),
        fork_server=find_template(),
    )


class WorkerTestCase(tf.test.TestCase):
    """A worker and its commands, each for a new graph unless the test names one."""

    worker: ChildProcess

    def setUp(self):
        super().setUp()
        self.directory = pathlib.Path(self.create_tempdir().full_path)

    def ask(self, **command) -> list[dict]:
        """Sends a command; returns all answers."""
        command.setdefault("graph", self.id())
        deadline = time.monotonic() + 120.0
        self.worker.send(command, deadline)
        answers = []
        while not answers or "stage" in answers[-1]:
            answers += await_message(self.worker, (), deadline)
        return answers

    def load(
        self, graph: tf.Graph, *fetches: str, initializers=(), share=False, name=None
    ) -> list[dict]:
        (self.directory / "graph.pb").write_bytes(graph.as_graph_def().SerializeToString())
        (self.directory / "config").write_bytes(v1.ConfigProto().SerializeToString())
        write_tensors(self.directory / "feeds", {})
        return self.ask(
            command="load",
            graph=name or self.id(),
            path=str(self.directory / "graph.pb"),
            fetches=fetches,
            initializers=initializers,
            queue_runners=[],
            tensors={"feeds": str(self.directory / "feeds")},
            session_config=str(self.directory / "config"),
            meta_optimizer=False,
            isolate=share,
            share_variables=share,
        )

    def open(self, label: str, assignment=None, dropped=1) -> list[dict]:
        return self.ask(
            command="open_session",
            label=label,
            assignment=assignment or {},
            dropped=dropped,
            timeout_secs=60.0,
        )

    def counting_graph(self) -> tf.Graph:
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
        return graph

    def counts(self) -> list[int]:
        return [int(line) for line in (self.directory / "counts").read_text().split()]


class WorkerTest(WorkerTestCase):
    """One worker for all tests: it serves any number of graphs."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.worker = start_worker(cls.get_temp_dir(cls()))
        cls.addClassCleanup(cls.worker.stop)

    def test_commands_are_answered_one_by_one_and_noise_goes_to_the_log(self):
        with tf.Graph().as_default() as graph:
            x = tf.identity(tf.random.uniform([4]), name="x")
            with tf.control_dependencies([tf.print("a loud graph")]):
                tf.reduce_sum(x, name="y")
        self.assertEqual(self.load(graph, "y:0"), [{"loaded": True}])

        *stages, answer = self.open("a")
        self.assertEqual(
            [stage["stage"] for stage in stages], ["opening the session", "the warm-up steps"]
        )
        self.assertGreater(answer["setup_secs"], 0.0)
        (answer,) = self.ask(command="run_steps", label="a", count=2)
        self.assertLen(answer["step_secs"], 2)
        self.assertEqual(self.ask(command="close_session", label="a"), [{"closed": True}])
        self.assertIn("a loud graph", self.worker.log_tail())

        answer = self.open("a", {"x": "/job:no"})[-1]
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

    def test_several_sessions_take_turns(self):
        self.load(self.counting_graph(), "count:0", initializers=["init"])
        self.open("a", dropped=0)
        self.open("b", dropped=2)
        for label, count in (("a", 2), ("b", 3), ("a", 1)):
            (answer,) = self.ask(command="run_steps", label=label, count=count)
            self.assertLen(answer["step_secs"], count)
        self.assertEqual(self.counts(), [1, 2, 1, 2, 3, 4, 5, 3])
        self.assertEqual(self.ask(command="close_sessions"), [{"closed": True}])
        self.open("a")
        self.assertEqual(self.counts()[-1], 1)

    def test_a_failing_step_says_when(self):
        with tf.Graph().as_default() as graph:
            v1.data.make_one_shot_iterator(tf.data.Dataset.range(3)).get_next("next")
        self.load(graph, "next")
        self.open("a")
        (answer,) = self.ask(command="run_steps", label="a", count=5)
        self.assertEqual(answer["error"]["type"], "OutOfRangeError")
        self.assertEqual(answer["error"]["stage"], "the counted steps")
        self.assertEqual(answer["error"]["steps_done"], 3)

    def test_traces_and_times_are_answers(self):
        with tf.Graph().as_default() as graph:
            x = tf.identity(tf.random.uniform([4]), name="x")
            tf.reduce_sum(x, name="y")
        self.load(graph, "y:0")
        rounds = {"dropped": 1, "timeout_secs": 60.0}
        trace = {"command": "trace", "steps": 3, "alone_on": None, **rounds}
        *stages, answer = self.ask(assignment={}, **trace)
        self.assertEqual(stages[-1], {"stage": "the traced steps"})
        self.assertLen(answer["step_secs"], 2)
        self.assertEqual(answer["operations"]["x"]["output_bytes"], {"0": 16})

        answer = self.ask(assignment={"x": "/job:no"}, **trace)[-1]
        self.assertEqual(answer["error"]["type"], "InvalidArgumentError")

        rounds = {**rounds, "rounds": 3, "processes": []}
        *stages, answer = self.ask(command="time_each", fetches=["x", "y"], **rounds)
        self.assertEqual(stages[-1], {"stage": "the timed operations"})
        self.assertEqual([len(times["secs"]) for times in answer["times"]], [2, 2])

        answer = self.ask(command="time_each", fetches=["z"], **rounds)[-1]
        self.assertEqual(answer["error"]["type"], "KeyError")

    def test_several_graphs_have_sessions_of_their_own(self):
        self.load(self.counting_graph(), "count:0", initializers=["init"])
        with tf.Graph().as_default() as graph:
            tf.constant(1.0, name="y")
        self.assertEqual(self.load(graph, "y:0", name="other"), [{"loaded": True}])
        self.open("a", dropped=0)
        answer = self.ask(
            command="open_session", graph="other", label="a", assignment={}, dropped=0,
            timeout_secs=60.0,
        )[-1]  # fmt: skip
        self.assertIn("setup_secs", answer)
        self.ask(command="run_steps", label="a", count=1)
        self.assertEqual(self.ask(command="unload", graph="other"), [{"unloaded": True}])
        self.ask(command="run_steps", label="a", count=1)
        self.assertEqual(self.counts(), [1, 2])

    def test_a_graph_that_cannot_be_loaded_is_told(self):
        (answer,) = self.load(tf.Graph(), "missing")
        self.assertIn("missing", answer["refused"])


class OwnWorkerTest(WorkerTestCase):
    """Tests of changes to the whole worker: its server or its cores."""

    def start_worker(self, cores=()) -> None:
        self.worker = start_worker(str(self.directory), cores)
        self.addCleanup(self.worker.stop)

    def test_sessions_run_on_the_server_that_the_worker_is_connected_to(self):
        graph = self.counting_graph()
        self.start_worker()
        self.load(graph, "count:0", initializers=["init"], share=True)
        everywhere = {op.name: "/job:there/task:0/device:CPU:0" for op in graph.get_operations()}
        self.open("a")
        # There is no such device in the worker itself.
        self.assertIn("error", self.open("b", everywhere)[-1])
        values = {"command": "values", "steps": 1, "path": str(self.directory / "values")}
        values |= {"assignment": everywhere, "timeout_secs": 60.0}
        self.assertIn("error", self.ask(**values)[-1])

        first, second = (tf.distribute.Server({"there": ["localhost:0"]}) for _ in range(2))
        for server in (first, second):
            self.assertEqual(
                self.ask(command="connect", target=server.target), [{"connected": True}]
            )
            (self.directory / "counts").unlink()
            for _ in range(2):
                self.assertNotIn("error", self.open("b", everywhere)[-1])
                self.ask(command="run_steps", label="b", count=1)
            # It was initialized once.
            self.assertEqual(self.counts(), [1, 2, 3, 4])
            self.assertEqual(self.ask(**values)[-1], {"written": True})
            self.assertEqual(read_tensors(values["path"])["count:0@1"], 1)

    def test_sessions_run_on_the_given_cores_alone(self):
        core = max(os.sched_getaffinity(0))
        with tf.Graph().as_default() as graph:
            tf.reduce_sum(tf.random.uniform([4]), name="y")
        self.start_worker([core])
        self.load(graph, "y:0")
        self.open("a")
        self.ask(command="run_steps", label="a", count=1)
        threads = [int(thread) for thread in os.listdir(f"/proc/{self.worker.pid}/task")]
        self.assertGreater(len(threads), 1)
        self.assertEqual({tuple(os.sched_getaffinity(thread)) for thread in threads}, {(core,)})

    def test_a_step_is_traced_in_the_worker_beside_a_server(self):
        core = max(os.sched_getaffinity(0))
        graph = self.counting_graph()
        server = tf.distribute.Server({"there": ["localhost:0"]})
        self.start_worker()
        self.assertEqual(self.ask(command="connect", target=server.target), [{"connected": True}])
        self.load(graph, "count:0", initializers=["init"], share=True)
        everywhere = {op.name: "/job:there/task:0/device:CPU:0" for op in graph.get_operations()}
        self.open("a", everywhere, dropped=0)
        anywhere = dict.fromkeys(everywhere, "")
        answer = self.ask(
            command="trace", assignment=anywhere, steps=4, dropped=1, alone_on=[core],
            timeout_secs=60.0,
        )[-1]  # fmt: skip
        self.assertLen(answer["step_secs"], 2)
        # Three steps without a trace and four with one, from variables of its own.
        self.assertEqual(self.counts(), [1, 2, 3, 4, 5, 6, 7])
        self.ask(command="run_steps", label="a", count=1)
        self.assertEqual(self.counts()[-1], 1)
        # Other sessions may use all cores.
        self.assertEqual(os.sched_getaffinity(self.worker.pid), os.sched_getaffinity(0))


if __name__ == "__main__":
    tf.test.main()
