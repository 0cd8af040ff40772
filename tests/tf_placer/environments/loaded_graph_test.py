"""Tests of running a graph under placements, in this process with two logical CPU devices."""

from __future__ import annotations

import itertools
import os
import pathlib

import numpy as np
import tensorflow as tf

from tf_placer.environments.environment import FailureKind
from tf_placer.environments.failures import classify_error
from tf_placer.environments.loaded_graph import LoadedGraph, OpenSession, SessionFailed

v1 = tf.compat.v1
_CPU = [
    "/job:localhost/replica:0/task:0/device:CPU:0",
    "/job:localhost/replica:0/task:0/device:CPU:1",
]


def _load(
    graph: tf.Graph, fetches, feeds=None, initializers=(), *, target="", share=False, **config
) -> LoadedGraph:
    proto = v1.ConfigProto(device_count={"CPU": 2}, **config)
    proto.graph_options.rewrite_options.disable_meta_optimizer = True
    return LoadedGraph(
        graph.as_graph_def(),
        fetches=fetches,
        feeds=feeds or {},
        initializers=initializers,
        target=target,
        config=proto,
        share_variables=share,
    )


def _server(cpus: int) -> v1.train.Server:
    config = v1.ConfigProto(device_count={"CPU": cpus})
    return v1.train.Server.create_local_server(config=config)


def _counting_graph(path: str) -> tf.Graph:
    """Every step appends the number of the step since the initializers to a file."""
    with tf.Graph().as_default() as graph:
        counter = v1.get_variable(
            "counter", [], tf.int32, v1.zeros_initializer(), use_resource=True
        )
        count = counter.assign_add(1, read_value=True)
        with tf.control_dependencies([tf.print(count, output_stream="file://" + path)]):
            tf.identity(count, name="count")
        tf.group(counter.initializer, name="init")
    return graph


class LoadedGraphTest(tf.test.TestCase):
    def setUp(self):
        super().setUp()
        self.stages: list[str] = []

    def measure(self, loaded: LoadedGraph, assignment=None, steps=2, dropped=1):
        setup = loaded.open_session("m", assignment or {}, dropped, 60.0, self.stages.append)
        result = loaded.run_steps("m", steps - dropped)
        loaded.close_session("m")
        return {**setup, **result}

    def failure(self, loaded: LoadedGraph, assignment=None, steps=2, dropped=1):
        with self.assertRaises(SessionFailed) as caught:
            self.measure(loaded, assignment, steps, dropped)
        error = caught.exception
        return classify_error(error.error_type, error.message, error.stage, error.steps_done)

    def test_exactly_the_asked_steps_run_and_the_warm_up_is_not_counted(self):
        for steps, dropped in ((10, 1), (11, 1), (15, 5), (3, 0)):
            path = self.create_tempfile().full_path
            loaded = _load(_counting_graph(path), ["count:0"], initializers=["init"])
            result = self.measure(loaded, steps=steps, dropped=dropped)
            ran = [int(line) for line in pathlib.Path(path).read_text().split()]
            self.assertEqual(ran, list(range(1, steps + 1)))
            self.assertLen(result["step_secs"], steps - dropped)
            self.assertAllGreater(result["step_secs"], 0.0)
            self.assertGreater(result["setup_secs"], 0.0)

    def test_a_measurement_does_not_see_the_variables_of_the_one_before(self):
        path = self.create_tempfile().full_path
        loaded = _load(_counting_graph(path), ["count:0"], initializers=["init"])
        self.measure(loaded)
        self.measure(loaded, {"counter": _CPU[1]})
        self.assertEqual(pathlib.Path(path).read_text().split(), ["1", "2", "1", "2"])

    def test_stages_are_reported_in_order(self):
        path = self.create_tempfile().full_path
        self.measure(_load(_counting_graph(path), ["count:0"], initializers=["init"]))
        self.assertEqual(
            self.stages,
            ["opening the session", "the initializers", "the warm-up steps"],
        )

    def test_feeds_are_used(self):
        with tf.Graph().as_default() as graph:
            x = v1.placeholder(tf.float32, [2], name="x")
            words = v1.placeholder(tf.string, [None], name="words")
            tf.multiply(x, 3.0, name="y")
            tf.strings.length(words, name="lengths")
        feeds = {"x:0": np.array([1.0, 2.0], np.float32), "words:0": np.array(["a", "bcd"], object)}
        loaded = _load(graph, ["y:0", "lengths:0", "y"], feeds)
        with loaded.open({}, 60.0, self.stages.append) as opened:
            secs, (y, lengths, nothing) = opened.step()
        self.assertAllEqual(y, [3.0, 6.0])
        self.assertAllEqual(lengths, [1, 3])
        self.assertIsNone(nothing)
        self.assertGreater(secs, 0.0)

    def devices(self, loaded: LoadedGraph, tensor: str, assignment) -> dict[str, str]:
        """Finds the device on which TensorFlow ran each operation."""
        metadata = v1.RunMetadata()
        with loaded.open(assignment, 60.0, self.stages.append) as opened:
            opened.session.run(
                tensor,
                options=v1.RunOptions(output_partition_graphs=True),
                run_metadata=metadata,
            )
        return {n.name: n.device for part in metadata.partition_graphs for n in part.node}

    def test_operations_run_where_assigned_and_else_where_they_came_with(self):
        with tf.Graph().as_default() as graph:
            a = tf.random.uniform([2], name="a")
            with tf.device(_CPU[1]):
                b = tf.square(a, name="b")
            tf.exp(b, name="c")
        loaded = _load(graph, ["c:0"])
        original = self.devices(loaded, "c:0", {})
        self.assertEqual([original[name] for name in "bc"], [_CPU[1], _CPU[0]])
        moved = self.devices(loaded, "c:0", {"b": _CPU[0], "c": _CPU[1]})
        self.assertEqual([moved[name] for name in "bc"], [_CPU[0], _CPU[1]])
        self.assertEqual(self.devices(loaded, "c:0", {"c": _CPU[0]})["b"], _CPU[1])
        self.assertEqual(self.devices(loaded, "c:0", {}), original)

    def test_devices_are_as_in_the_file_although_the_import_moves_colocated_operations(self):
        with tf.Graph().as_default() as graph:
            with tf.device(_CPU[1]):
                a = tf.random.uniform([2], name="a")
            tf.square(a, name="b")
        graph_def = graph.as_graph_def()
        nodes = {node.name: node for node in graph_def.node}
        nodes["b"].attr["_class"].list.s.append(b"loc:@a/RandomUniform")
        nodes["b"].device = ""
        with tf.Graph().as_default() as changed:
            tf.import_graph_def(graph_def, name="")
        changed.get_operation_by_name("b")._set_device("")
        loaded = _load(changed, ["b:0"])
        self.assertEqual(self.devices(loaded, "b:0", {})["b"], _CPU[1])
        self.assertEqual(loaded._graph.get_operation_by_name("b").device, "")

    def test_an_unknown_device_is_an_invalid_placement(self):
        with tf.Graph().as_default() as graph:
            tf.identity(tf.random.uniform([2]), name="a")
        loaded = _load(graph, ["a"])
        for device in ("/job:nobody/replica:0/task:0/device:CPU:0", "/device:CPU:7", "nonsense"):
            failure = self.failure(loaded, {"a": device})
            self.assertEqual(failure.kind, FailureKind.INVALID_PLACEMENT, failure)
        self.assertLen(self.measure(loaded)["step_secs"], 1)

    def test_an_unknown_operation_is_an_invalid_placement(self):
        with tf.Graph().as_default() as graph:
            tf.identity(tf.random.uniform([2]), name="a")
        failure = self.failure(_load(graph, ["a"]), {"b": _CPU[0]})
        self.assertEqual(failure.kind, FailureKind.INVALID_PLACEMENT)
        self.assertIn("operation b: the graph has no such operation", failure.message)

    def test_a_split_colocation_group_is_an_invalid_placement(self):
        with tf.Graph().as_default() as graph:
            var = v1.get_variable("var", [2], use_resource=True)
            slot = v1.get_variable("slot", [2], use_resource=True)
            tf.raw_ops.ResourceApplyMomentum(
                var=var.handle, accum=slot.handle, lr=0.1, grad=[1.0, 2.0], momentum=0.9, name="up"
            )
            a = tf.random.uniform([2], name="a")
            with v1.colocate_with(a):
                tf.square(a, name="b")
            tf.group(var.initializer, slot.initializer, name="init")
        for fetch, assignment in (
            ("up", {"var": _CPU[0], "slot": _CPU[1]}),
            ("b", {"a/RandomUniform": _CPU[0], "a": _CPU[0], "b": _CPU[1]}),
        ):
            failure = self.failure(_load(graph, [fetch], initializers=["init"]), assignment)
            self.assertEqual(failure.kind, FailureKind.INVALID_PLACEMENT, failure)

    def test_soft_placement_is_as_the_user_has_it(self):
        with tf.Graph().as_default() as graph:
            tf.identity(tf.random.uniform([2]), name="a")
        assignment = {"a": "/device:GPU:0"}
        self.measure(_load(graph, ["a"], allow_soft_placement=True), assignment)
        self.failure(_load(graph, ["a"]), assignment)

    def test_an_input_that_ends_says_after_how_many_steps(self):
        with tf.Graph().as_default() as graph:
            v1.data.make_one_shot_iterator(tf.data.Dataset.range(3)).get_next("next")
        failure = self.failure(_load(graph, ["next"]), steps=10)
        self.assertEqual(failure.kind, FailureKind.RUNTIME_ERROR)
        self.assertIn("the input ended after 3 steps", failure.message)

    def test_an_uninitialized_variable_asks_for_initializers(self):
        for use_resource in (False, True):
            with tf.Graph().as_default() as graph:
                variable = v1.get_variable("v", [2], use_resource=use_resource)
                tf.add(variable, 1.0, name="a")
            failure = self.failure(_load(graph, ["a"]))
            self.assertEqual(failure.kind, FailureKind.RUNTIME_ERROR)
            self.assertIn("pass initializers=", failure.message)

        with tf.Graph().as_default() as graph:
            table = tf.lookup.StaticHashTable(
                tf.lookup.KeyValueTensorInitializer(["a"], [1]), default_value=0
            )
            tf.identity(table.lookup(tf.constant(["a"])), name="a")
        self.assertIn("pass initializers=", self.failure(_load(graph, ["a"])).message)

    def test_an_error_of_an_operation_names_it(self):
        with tf.Graph().as_default() as graph:
            size = tf.cast(tf.random.uniform([1], 3, 3.5), tf.int32)
            tf.reshape(tf.random.uniform([4]), size, name="bad")
        failure = self.failure(_load(graph, ["bad"]))
        self.assertEqual(failure.kind, FailureKind.RUNTIME_ERROR)
        self.assertRegex(failure.message, "in the warm-up steps: InvalidArgumentError: .*bad")

    def test_a_run_that_hangs_ends_at_the_limit(self):
        with tf.Graph().as_default() as graph:
            v1.FIFOQueue(1, [tf.float32]).dequeue("never")
        with self.assertRaises(SessionFailed) as caught:
            _load(graph, ["never"]).open_session("a", {}, 1, 0.2, self.stages.append)
        self.assertEqual(caught.exception.error_type, "DeadlineExceededError")
        self.assertEqual(caught.exception.stage, "the warm-up steps")

    def test_a_trace_counts_steps_without_it_and_sums_up_those_with_it(self):
        path = self.create_tempfile().full_path
        loaded = _load(_counting_graph(path), ["count:0"], initializers=["init"])
        result = loaded.trace({}, 5, 2, None, 60.0, self.stages.append)
        ran = [int(line) for line in pathlib.Path(path).read_text().split()]
        self.assertEqual(ran, list(range(1, 11)))
        self.assertLen(result["step_secs"], 3)
        self.assertAllGreater(result["step_secs"], 0.0)
        self.assertContainsSubset(["count", "counter"], result["operations"])
        self.assertNotIn("init", result["operations"])
        self.assertEqual(result["operations"]["count"]["runs"], 1)
        self.assertEqual(result["operations"]["count"]["output_bytes"], {0: 4})
        self.assertEqual(self.stages[-2:], ["the steps", "the traced steps"])

    def test_a_trace_is_of_the_assigned_devices_and_of_what_is_fed(self):
        with tf.Graph().as_default() as graph:
            x = v1.placeholder(tf.float32, [None], name="x")
            tf.exp(tf.square(x, name="a"), name="b")
        loaded = _load(graph, ["b:0"], {"x:0": np.zeros([6], np.float32)})
        apart = loaded.trace({"a": _CPU[0], "b": _CPU[1]}, 2, 1, None, 60.0, self.stages.append)
        self.assertEqual(apart["operations"]["b"]["output_bytes"], {0: 24})
        # Transfers between devices are not operations of the graph.
        self.assertEmpty([name for name in apart["operations"] if name.startswith("a/")])

    def test_a_failing_trace_says_after_how_many_steps(self):
        with tf.Graph().as_default() as graph:
            v1.data.make_one_shot_iterator(tf.data.Dataset.range(7)).get_next("next")
        loaded = _load(graph, ["next"])
        for steps, stage in ((5, "the traced steps"), (9, "the steps")):
            with self.assertRaises(SessionFailed) as caught:
                loaded.trace({}, steps, 1, None, 60.0, self.stages.append)
            self.assertEqual(caught.exception.error_type, "OutOfRangeError")
            self.assertEqual(caught.exception.steps_done, 7)
            self.assertEqual(caught.exception.stage, stage)

    def test_operations_are_timed_in_turns(self):
        path = self.create_tempfile().full_path
        with tf.Graph().as_default() as graph:
            v = v1.get_variable("v", [], use_resource=True)
            for name in ("a", "b"):
                with tf.control_dependencies([v.read_value()]):
                    tf.print(name, output_stream="file://" + path, name=name)
            tf.group(v.initializer, name="init")
        prints = [op.name for op in graph.get_operations() if op.type == "PrintV2"]
        loaded = _load(graph, prints[:1], initializers=["init"])
        times = loaded.time_each(prints, 4, 1, [os.getpid()], 60.0, self.stages.append)
        self.assertEqual([len(each["secs"]) for each in times], [3, 3])
        self.assertAllGreater([each["secs"] for each in times], 0.0)
        # The session is in this process.
        cpu_secs = np.array([each["cpu_secs"] for each in times])
        self.assertEqual(cpu_secs.shape, (2, 1, 3))
        self.assertAllGreater(cpu_secs, 0.0)
        self.assertEqual(pathlib.Path(path).read_text().split(), ["a", "b"] * 4)
        self.assertEqual(self.stages[-1], "the timed operations")

    def test_few_rounds_of_timed_operations_are_enough_where_they_take_long(self):
        with tf.Graph().as_default() as graph:
            tf.identity(tf.random.uniform([2]), name="a")
        loaded = _load(graph, ["a"])
        # Every look at the clock is ten seconds after the last one.
        for enough_secs, counted in ((5.0, 3), (35.0, 6), (1e9, 8)):
            [times] = loaded.time_each(
                *(["a"], 10, 2, [os.getpid()], 60.0, self.stages.append),
                enough_secs=enough_secs,
                clock=itertools.count(0.0, 10.0).__next__,
            )
            self.assertLen(times["secs"], counted)
            self.assertEqual(np.shape(times["cpu_secs"]), (1, counted))

    def test_operations_that_cannot_be_timed_are_a_failure(self):
        with tf.Graph().as_default() as graph:
            tf.identity(tf.random.uniform([2]), name="a")
            v1.FIFOQueue(1, [tf.float32]).dequeue("never")
        loaded = _load(graph, ["a"])
        for name, message in (("missing", "missing"), ("never", "")):
            with self.assertRaisesRegex(SessionFailed, message) as caught:
                loaded.time_each(["a", name], 2, 0, [], 0.2, self.stages.append)
            self.assertEqual(caught.exception.stage, "the timed operations")
        self.assertEqual(caught.exception.error_type, "DeadlineExceededError")

    def test_a_graph_without_what_the_step_needs_is_refused(self):
        with tf.Graph().as_default() as graph:
            v1.placeholder(tf.float32, [2], name="x")
        with self.assertRaisesRegex((KeyError, ValueError), "missing"):
            _load(graph, ["missing"])
        with self.assertRaisesRegex((KeyError, ValueError), "missing"):
            _load(graph, ["x:0"], initializers=["missing"])
        with self.assertRaisesRegex((KeyError, ValueError), "missing"):
            _load(graph, ["x:0"], {"missing:0": np.zeros(2)})
        with self.assertRaisesRegex(ValueError, r"'x:0' has shape \(2,\).* value of shape \(3,\)"):
            _load(graph, ["x:0"], {"x:0": np.zeros(3)})


class OpenSessionsTest(tf.test.TestCase):
    def setUp(self):
        super().setUp()
        self.stages: list[str] = []

    def open(self, loaded: LoadedGraph, label: str, assignment=None, dropped=0):
        loaded.open_session(label, assignment or {}, dropped, 60.0, self.stages.append)

    def counting(self, **options) -> tuple[LoadedGraph, pathlib.Path]:
        path = self.create_tempfile().full_path
        loaded = _load(_counting_graph(path), ["count:0"], initializers=["init"], **options)
        return loaded, pathlib.Path(path)

    def test_sessions_keep_their_own_placement(self):
        with tf.Graph().as_default() as graph:
            tf.square(tf.random.uniform([2], name="a"), name="b")
        loaded = _load(graph, ["b:0"])

        def device(opened: OpenSession) -> str:
            metadata = v1.RunMetadata()
            options = v1.RunOptions(output_partition_graphs=True)
            opened.session.run("b:0", options=options, run_metadata=metadata)
            (device,) = (
                n.device for p in metadata.partition_graphs for n in p.node if n.name == "b"
            )
            return device

        with loaded.open({"b": _CPU[1]}, 60.0, self.stages.append) as first:
            self.assertEqual(device(first), _CPU[1])
            with loaded.open({"b": _CPU[0]}, 60.0, self.stages.append) as second:
                self.assertEqual([device(second), device(first)], [_CPU[0], _CPU[1]])
                with loaded.open({}, 60.0, self.stages.append) as third:
                    opened = [first, second, third]
                    self.assertEqual(list(map(device, opened)), [_CPU[1], _CPU[0], _CPU[0]])
            self.assertEqual(device(first), _CPU[1])

    def test_sessions_take_turns_each_with_variables_of_its_own(self):
        loaded, path = self.counting()
        self.open(loaded, "a", dropped=1)
        self.open(loaded, "b", {"counter": _CPU[1]}, dropped=2)
        for label, count in (("a", 2), ("b", 1), ("a", 1), ("b", 2)):
            self.assertLen(loaded.run_steps(label, count)["step_secs"], count)
        ran = [int(line) for line in path.read_text().split()]
        self.assertEqual(ran, [1, 1, 2, 2, 3, 3, 4, 4, 5])

    def test_a_session_is_replaced_by_one_of_the_same_name(self):
        loaded, path = self.counting()
        for _ in range(2):
            self.open(loaded, "a", dropped=1)
            loaded.run_steps("a", 1)
        self.assertEqual(path.read_text().split(), ["1", "2", "1", "2"])

    def test_closed_sessions_run_no_steps_and_others_do(self):
        loaded, path = self.counting()
        for label in "abc":
            self.open(loaded, label)
        loaded.close_session("b")
        loaded.close_session("b")
        loaded.close_session("never opened")
        with self.assertRaises(KeyError):
            loaded.run_steps("b", 1)
        loaded.run_steps("a", 1)
        loaded.run_steps("c", 1)
        loaded.close_sessions()
        for label in "ac":
            with self.assertRaises(KeyError):
                loaded.run_steps(label, 1)
        self.assertEqual(path.read_text().split(), ["1", "1"])

    def test_a_session_that_fails_in_its_warm_up_is_not_open_and_others_are(self):
        loaded, _ = self.counting()
        self.open(loaded, "a")
        self.open(loaded, "b")
        for label in "bc":
            with self.assertRaises(SessionFailed):
                self.open(loaded, label, {"counter": "/job:nobody"}, dropped=1)
            with self.assertRaises(KeyError):
                loaded.run_steps(label, 1)
        loaded.run_steps("a", 1)

    def test_a_failing_step_says_where_and_leaves_the_session_open(self):
        path = pathlib.Path(self.create_tempfile("wait", "no").full_path)
        with tf.Graph().as_default() as graph:
            # A constant path would be read once for all steps.
            name = v1.placeholder(tf.string, [], name="path")
            opened = tf.equal(tf.io.read_file(name), "no")
            tf.raw_ops.Assert(condition=opened, data=["shut"], name="check")
        loaded = _load(graph, ["check"], {"path:0": np.array(str(path))})
        self.open(loaded, "a", dropped=2)
        loaded.run_steps("a", 3)
        path.write_text("yes")
        with self.assertRaises(SessionFailed) as caught:
            loaded.run_steps("a", 3)
        self.assertEqual(caught.exception.error_type, "InvalidArgumentError")
        self.assertEqual(caught.exception.stage, "the counted steps")
        self.assertEqual(caught.exception.steps_done, 5)
        path.write_text("no")
        self.assertLen(loaded.run_steps("a", 2)["step_secs"], 2)


class InitialStateTest(tf.test.TestCase):
    """A step that fails because of the state is run again from the initial state."""

    def setUp(self):
        super().setUp()
        self.log = pathlib.Path(self.create_tempfile("log").full_path)

    def print(self, *values) -> tf.Operation:
        return tf.print(*values, output_stream=f"file://{self.log}")

    def read_log(self) -> list[str]:
        return self.log.read_text().split()

    def open(self, loaded: LoadedGraph, dropped=0):
        loaded.open_session("a", {}, dropped, 60.0, lambda stage: None)

    def graph_with_input(self, elements: int) -> tf.Graph:
        with tf.Graph().as_default() as graph:
            dataset = tf.data.Dataset.range(10, 10 + elements)
            iterator = v1.data.make_initializable_iterator(dataset)
            with tf.control_dependencies([self.print("init")]):
                tf.no_op("tell")
            element = iterator.get_next()
            with tf.control_dependencies([self.print(element)]):
                tf.identity(element, name="element")
            tf.group(iterator.initializer, name="init")
        return graph

    def test_an_input_that_ends_restarts_from_its_beginning(self):
        graph = self.graph_with_input(3)
        loaded = _load(graph, ["element"], initializers=["init", "tell"])
        self.open(loaded, dropped=2)
        self.assertLen(loaded.run_steps("a", 6)["step_secs"], 6)
        first, second, third = ["10", "11", "12"], ["10", "11", "12"], ["10", "11"]
        self.assertEqual(self.read_log(), ["init", *first, "init", *second, "init", *third])

    def test_an_input_without_elements_fails_at_once(self):
        graph = self.graph_with_input(0)
        loaded = _load(graph, ["element"], initializers=["init", "tell"])
        with self.assertRaises(SessionFailed) as caught:
            self.open(loaded, dropped=1)
        error = caught.exception
        failure = classify_error(error.error_type, error.message, error.stage, error.steps_done)
        self.assertEqual(failure.kind, FailureKind.RUNTIME_ERROR)
        self.assertIn("the input ended after 0 steps", failure.message)
        self.assertEqual(self.read_log(), ["init"])

    def asserting_graph(self, allowed) -> tf.Graph:
        """Logs the count of each step, and fails where `allowed` says that it is not allowed."""
        with tf.Graph().as_default() as graph:
            counter = v1.get_variable(
                "counter", [], tf.int32, v1.zeros_initializer(), use_resource=True
            )
            count = counter.assign_add(1, read_value=True)
            with tf.control_dependencies([self.print(count)]):
                checked = tf.raw_ops.Assert(condition=allowed(count), data=[count])
            with tf.control_dependencies([checked]):
                tf.identity(count, name="count")
            tf.group(counter.initializer, name="init")
        return graph

    def test_an_assertion_broken_by_a_variable_starts_over(self):
        graph = self.asserting_graph(lambda count: tf.less(count, 3))
        loaded = _load(graph, ["count"], initializers=["init"])
        self.open(loaded, dropped=1)
        self.assertLen(loaded.run_steps("a", 5)["step_secs"], 5)
        self.assertEqual(self.read_log(), ["1", "2", "3", "1", "2", "3", "1", "2"])

    def test_an_assertion_broken_by_the_initial_state_fails_at_once(self):
        graph = self.asserting_graph(lambda count: tf.less(count, 1))
        loaded = _load(graph, ["count"], initializers=["init"])
        with self.assertRaises(SessionFailed) as caught:
            self.open(loaded, dropped=1)
        self.assertEqual(caught.exception.error_type, "InvalidArgumentError")
        self.assertEqual(caught.exception.steps_done, 0)
        self.assertEqual(self.read_log(), ["1"])

    def load_gated(self, gate: pathlib.Path) -> LoadedGraph:
        """A graph whose steps fail unless a file says "open"."""

        def check_gate(count):
            # A constant path would be read once for all steps.
            return tf.equal(tf.io.read_file(v1.placeholder(tf.string, [], "gate")), "open")

        feeds = {"gate:0": np.array(str(gate))}
        return _load(self.asserting_graph(check_gate), ["count"], feeds, initializers=["init"])

    def test_a_step_is_run_again_only_once(self):
        gate = pathlib.Path(self.create_tempfile("gate", "open").full_path)
        loaded = self.load_gated(gate)
        self.open(loaded)
        loaded.run_steps("a", 2)
        gate.write_text("shut")
        with self.assertRaises(SessionFailed) as caught:
            loaded.run_steps("a", 2)
        self.assertEqual(caught.exception.stage, "the counted steps")
        self.assertEqual(caught.exception.steps_done, 2)
        self.assertEqual(self.read_log(), ["1", "2", "3", "1"])

    def test_a_step_that_fails_for_other_reasons_is_not_run_again(self):
        gate = pathlib.Path(self.create_tempfile("gate", "open").full_path)
        loaded = self.load_gated(gate)
        self.open(loaded, dropped=1)
        gate.unlink()
        with self.assertRaises(SessionFailed) as caught:
            loaded.run_steps("a", 1)
        self.assertEqual(caught.exception.error_type, "NotFoundError")
        self.assertLen(self.read_log(), 2)


class SharedVariablesTest(tf.test.TestCase):
    """Sessions on a server in this process, which share what they leave there."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.servers = [_server(2), _server(3)]

    def setUp(self):
        super().setUp()
        self.stages: list[str] = []
        self.target = self.servers[0].target
        # So that no test sees what another left.
        for server in self.servers:
            v1.Session.reset(server.target)

    def steps(self, loaded: LoadedGraph, assignment, count: int) -> list:
        """Fetches steps in a session of their own."""
        with loaded.open(assignment, 60.0, self.stages.append) as opened:
            return [opened.step()[1][0] for _ in range(count)]

    def load(self, graph: tf.Graph, fetch: str, *, share=True) -> LoadedGraph:
        return _load(
            graph,
            [fetch],
            initializers=["init"],
            target=self.target,
            share=share,
            # As the worker has it.
            isolate_session_state=True,
        )

    def counting(self, *, share=True) -> LoadedGraph:
        graph = _counting_graph(self.create_tempfile().full_path)
        return self.load(graph, "count:0", share=share)

    def everywhere(self, loaded: LoadedGraph, device: str) -> dict[str, str]:
        return {op.name: device for op in loaded._graph.get_operations()}

    def test_each_variable_is_initialized_once_on_each_device(self):
        loaded = self.counting()
        here, there = (self.everywhere(loaded, device) for device in _CPU)
        self.assertEqual(self.steps(loaded, here, 2), [1, 2])
        self.assertEqual(self.steps(loaded, there, 1), [1])
        self.stages.clear()
        self.assertEqual(self.steps(loaded, here, 2), [3, 4])
        self.assertEqual(self.steps(loaded, there, 1), [2])
        self.assertEqual(self.stages, ["opening the session"] * 2)

    def test_a_session_initializes_what_is_new_on_its_device(self):
        with tf.Graph().as_default() as graph:
            counts = []
            for name in "ab":
                with v1.variable_scope(name, use_resource=name == "a"):
                    variable = v1.get_variable("v", [], tf.int32, v1.zeros_initializer())
                    counts.append(tf.identity(v1.assign_add(variable, 1)))
            tf.stack(counts, name="counts")
            tf.group(v1.global_variables_initializer(), name="init")
        names = [op.name for op in graph.get_operations()]
        loaded = self.load(graph, "counts:0")

        def devices(a: int, b: int) -> dict[str, str]:
            return {name: _CPU[b if name.startswith("b/") else a] for name in names}

        self.assertAllEqual(self.steps(loaded, devices(0, 0), 2)[-1], [2, 2])
        # "b" is new there, and all are initialized.
        self.assertAllEqual(self.steps(loaded, devices(0, 1), 3)[-1], [3, 3])
        # "b" resumes with its own values.
        self.assertAllEqual(self.steps(loaded, devices(0, 0), 1)[-1], [4, 3])

    def test_sessions_that_are_open_together_share_too(self):
        path = pathlib.Path(self.create_tempfile().full_path)
        loaded = self.load(_counting_graph(str(path)), "count:0")
        here, there = (self.everywhere(loaded, device) for device in _CPU)
        for label, assignment in (("a", here), ("b", there), ("c", here)):
            loaded.open_session(label, assignment, 1, 60.0, self.stages.append)
        for label in "abc":
            loaded.run_steps(label, 1)
        self.assertEqual(path.read_text().split(), ["1", "1", "2", "3", "2", "4"])
        loaded.close_sessions()

    def drawing(self, *, share: bool) -> LoadedGraph:
        with tf.Graph().as_default() as graph:
            drawn = v1.get_variable("drawn", initializer=tf.random.uniform([4]), use_resource=True)
            tf.identity(drawn, name="value")
            tf.group(drawn.initializer, name="init")
        return self.load(graph, "value:0", share=share)

    def test_values_that_were_drawn_stay(self):
        for share in (True, False):
            loaded = self.drawing(share=share)
            here = self.everywhere(loaded, _CPU[0])
            (first,), (second,) = (self.steps(loaded, here, 1) for _ in range(2))
            self.assertEqual(np.array_equal(first, second), share)

    def test_without_sharing_every_session_begins_anew(self):
        loaded = self.counting(share=False)
        here = self.everywhere(loaded, _CPU[0])
        for _ in range(2):
            self.assertEqual(self.steps(loaded, here, 2), [1, 2])

    def test_variables_without_a_device_are_initialized_each_time(self):
        loaded = self.counting()
        for _ in range(2):
            self.assertEqual(self.steps(loaded, {}, 2), [1, 2])

    def test_a_graph_with_other_state_is_not_shared(self):
        with tf.Graph().as_default() as graph:
            counter = v1.get_variable(
                "counter", [], tf.int64, v1.zeros_initializer(), use_resource=True
            )
            iterator = v1.data.make_initializable_iterator(tf.data.Dataset.range(1, 9))
            count = counter.assign_add(1, read_value=True)
            tf.stack([count, iterator.get_next()], name="counts")
            tf.group(counter.initializer, iterator.initializer, name="init")
        loaded = self.load(graph, "counts:0")
        here = self.everywhere(loaded, _CPU[0])
        for _ in range(2):
            self.assertAllEqual(self.steps(loaded, here, 2), [[1, 1], [2, 2]])

    def test_another_server_knows_no_variable(self):
        loaded = self.counting()
        here = self.everywhere(loaded, _CPU[0])
        only_there = self.everywhere(loaded, _CPU[0][:-1] + "2")
        loaded.open_session("a", here, 1, 60.0, self.stages.append)
        self.assertEqual(self.steps(loaded, here, 2), [2, 3])
        with self.assertRaisesRegex(SessionFailed, "available devices are"):
            self.steps(loaded, only_there, 1)
        loaded.connect(self.servers[1].target)
        with self.assertRaises(KeyError):
            loaded.run_steps("a", 1)
        self.assertEqual(self.steps(loaded, here, 2), [1, 2])
        self.assertEqual(self.steps(loaded, only_there, 1), [1])
        # The contents do not matter: they may belong to another graph.
        loaded.connect(self.servers[0].target)
        self.assertEqual(self.steps(loaded, here, 2), [1, 2])
        self.assertEqual(self.steps(loaded, here, 1), [3])

    def test_a_variable_that_got_lost_is_initialized_again(self):
        loaded = self.drawing(share=True)
        here = self.everywhere(loaded, _CPU[0])
        (first,) = self.steps(loaded, here, 1)
        v1.Session.reset(self.target)
        second, third = self.steps(loaded, here, 2)
        self.assertNotAllEqual(first, second)
        self.assertAllEqual(second, third)

    def test_an_impossible_device_is_told_where_nothing_is_to_be_initialized(self):
        with tf.Graph().as_default() as graph:
            v = v1.get_variable("v", [], use_resource=True)
            tf.square(v, name="a")
            tf.group(v.initializer, name="init")
        loaded = self.load(graph, "a")
        here = self.everywhere(loaded, _CPU[0])
        self.steps(loaded, here, 1)
        for wrong in ("/job:nobody/replica:0/task:0/device:CPU:0", _CPU[0][:-1] + "7"):
            with self.assertRaises(SessionFailed) as caught:
                self.steps(loaded, {**here, "a": wrong}, 1)
            error = caught.exception
            failure = classify_error(error.error_type, error.message, error.stage, 0)
            self.assertEqual(failure.kind, FailureKind.INVALID_PLACEMENT, failure)
        self.steps(loaded, here, 1)


if __name__ == "__main__":
    tf.test.main()
