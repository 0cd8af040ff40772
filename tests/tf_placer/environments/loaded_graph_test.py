"""Tests of running a graph under placements, in this process with two logical CPU devices."""

from __future__ import annotations

import os
import pathlib

import numpy as np
import tensorflow as tf

from tf_placer.environments.environment import FailureKind
from tf_placer.environments.failures import failure_of_error
from tf_placer.environments.loaded_graph import LoadedGraph, SessionFailed

v1 = tf.compat.v1
_CPU = [
    "/job:localhost/replica:0/task:0/device:CPU:0",
    "/job:localhost/replica:0/task:0/device:CPU:1",
]


def _load(graph: tf.Graph, fetches, feeds=None, initializers=(), **config) -> LoadedGraph:
    proto = v1.ConfigProto(device_count={"CPU": 2}, **config)
    proto.graph_options.rewrite_options.disable_meta_optimizer = True
    return LoadedGraph(
        graph.as_graph_def(),
        fetches=fetches,
        feeds=feeds or {},
        initializers=initializers,
        target="",
        config=proto,
    )


def _counting_graph(path: str) -> tf.Graph:
    """Every step appends the number of the step since the initialisers to a file."""
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
        return loaded.measure(assignment or {}, steps, dropped, 60.0, self.stages.append)

    def failure(self, loaded: LoadedGraph, assignment=None, steps=2, dropped=1):
        with self.assertRaises(SessionFailed) as caught:
            self.measure(loaded, assignment, steps, dropped)
        error = caught.exception
        return failure_of_error(error.error_type, error.message, error.stage, error.steps_done)

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
            ["opening the session", "the initialisers", "the warm-up steps", "the counted steps"],
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
        """Where TensorFlow really ran each operation."""
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

    def test_what_is_not_initialised_asks_for_initializers(self):
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
            _load(graph, ["never"]).measure({}, 2, 1, 0.2, self.stages.append)
        self.assertEqual(caught.exception.error_type, "DeadlineExceededError")

    def test_a_trace_counts_steps_without_it_and_sums_up_those_with_it(self):
        path = self.create_tempfile().full_path
        loaded = _load(_counting_graph(path), ["count:0"], initializers=["init"])
        result = loaded.trace({}, 5, 2, 60.0, self.stages.append)
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
        apart = loaded.trace({"a": _CPU[0], "b": _CPU[1]}, 2, 1, 60.0, self.stages.append)
        self.assertEqual(apart["operations"]["b"]["output_bytes"], {0: 24})
        # What is sent between the devices is none of the graph's operations.
        self.assertEmpty([name for name in apart["operations"] if name.startswith("a/")])

    def test_a_failing_trace_says_after_how_many_steps(self):
        with tf.Graph().as_default() as graph:
            v1.data.make_one_shot_iterator(tf.data.Dataset.range(7)).get_next("next")
        loaded = _load(graph, ["next"])
        for steps, stage in ((5, "the traced steps"), (9, "the steps")):
            with self.assertRaises(SessionFailed) as caught:
                loaded.trace({}, steps, 1, 60.0, self.stages.append)
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
        self.assertAllGreater([each["cpu_secs"] for each in times], 0.0)
        self.assertEqual(pathlib.Path(path).read_text().split(), ["a", "b"] * 4)
        self.assertEqual(self.stages[-1], "the timed operations")

    def test_what_cannot_be_timed_is_a_failure(self):
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


if __name__ == "__main__":
    tf.test.main()
