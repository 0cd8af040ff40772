from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from graph_passes.inlined_calls import InlinedGraph, inline_calls, put_devices
from tests.function_parts import build_nested_functions

tf1 = tf.compat.v1
X = np.arange(6, dtype=np.float32).reshape(2, 3)
DEVICES = ("/device:CPU:0", "/device:CPU:1")


def build_graph(build: Any) -> tf1.GraphDef:
    with tf.Graph().as_default() as graph:
        build()
    return graph.as_graph_def()


def build_nested_calls() -> None:
    """Builds a counter that grows in each call, and a function that calls another twice."""
    x = tf1.placeholder(tf.float32, [2, 3], name="x")
    count = tf1.get_variable("count", initializer=tf.constant(0.0), use_resource=True)

    @tf.function
    def inner(value):
        count.assign_add(1.0)
        return tf.tanh(value) * 2.0, value

    @tf.function
    def outer(value):
        first, same = inner(value)
        second, _ = inner(first)
        return {"sum": first + second, "same": same}

    results = outer(x)
    tf.identity(results["sum"], name="sum")
    tf.identity(results["same"], name="same")
    with tf.control_dependencies([results["sum"].op]):
        tf.identity(count.read_value(), name="counted")


def run(graph_def: tf1.GraphDef, fetches: Sequence[str], steps: int = 2) -> list[Any]:
    """Runs steps in a session with two devices; returns the fetched values and the devices."""
    config = tf1.ConfigProto(device_count={"CPU": 2})
    config.graph_options.rewrite_options.disable_meta_optimizer = True
    with tf.Graph().as_default() as graph, tf1.Session(config=config) as session:
        tf.import_graph_def(graph_def, name="")
        session.run(graph.get_operation_by_name("count/Assign"))
        elements = [graph.as_graph_element(name) for name in fetches]
        return [session.run(elements, {"x:0": X}) for _ in range(steps)]


def inline(graph_def: tf1.GraphDef, fetches: Sequence[str]) -> InlinedGraph:
    return inline_calls(graph_def, fetches, ["x:0"], ["x", "count/Assign"])


def devices_of(graph_def: tf1.GraphDef, function: str) -> dict[str, str]:
    [found] = [f for f in graph_def.library.function if f.signature.name == function]
    return {node.name: node.device for node in found.node_def}


class InlinedCallsTest(tf.test.TestCase):
    def test_keeps_values_and_side_effects(self):
        graph_def = build_graph(build_nested_calls)
        for fetches in (["sum:0", "same:0", "counted:0"], ["sum:0"], ["same:0", "counted"]):
            flat = inline(graph_def, fetches)
            self.assertFalse({node.op for node in flat.graph_def.node} & {"PartitionedCall"})
            self.assertNotIn("StatefulPartitionedCall", {n.op for n in flat.graph_def.node})
            expected = run(graph_def, [*fetches, "counted:0"])
            found = run(
                inline(graph_def, [*fetches, "counted:0"]).graph_def, [*fetches, "counted:0"]
            )
            tf.nest.map_structure(self.assertAllEqual, found, expected)
            self.assertEqual(expected[1][-1], 4.0)  # Each step adds two.

    def test_fetches_side_effects_that_nothing_else_runs(self):
        graph_def = build_graph(build_nested_calls)
        call = next(n.name for n in graph_def.node if n.op == "StatefulPartitionedCall")
        # In functions of earlier versions, results do not wait for side effects.
        for function in graph_def.library.function:
            for node in function.node_def:
                if node.op == "Identity":
                    del node.input[1:]
        flat = inline(graph_def, [f"{call}:0"])
        self.assertGreater(len(flat.fetches), 1)
        with tf.Graph().as_default() as graph, tf1.Session() as session:
            tf.import_graph_def(flat.graph_def, name="")
            handle = graph.get_tensor_by_name("count:0")
            count = tf.raw_ops.ReadVariableOp(resource=handle, dtype=tf.float32)
            session.run(graph.get_operation_by_name("count/Assign"))
            session.run([graph.as_graph_element(name) for name in flat.fetches], {"x:0": X})
            self.assertEqual(session.run(count), 2.0)

    def test_names_contain_the_calls(self):
        flat = inline(build_graph(build_nested_calls), ["sum:0"])
        [(name, call)] = flat.calls.items()
        names = {node.name for node in flat.graph_def.node}
        self.assertLen(call.calls, 2)
        for inner, of_inner in call.calls.items():
            self.assertEqual(of_inner.names["Tanh"], f"{name}/{inner}/Tanh")
            self.assertContainsSubset(of_inner.names.values(), names)

    def test_copies_functions_with_different_devices(self):
        graph_def = build_graph(build_nested_calls)
        flat = inline(graph_def, ["sum:0"])
        [call] = flat.calls.values()
        first, second = call.calls.values()
        assignment = {first.names["Tanh"]: DEVICES[0], second.names["Tanh"]: DEVICES[1]}
        placed = put_devices(graph_def, flat.calls, assignment)
        self.assertEqual(devices_of(placed, first.function)["Tanh"], DEVICES[0])
        self.assertLen(placed.library.function, len(graph_def.library.function) + 1)
        [copy] = {f.signature.name for f in placed.library.function} - {
            f.signature.name for f in graph_def.library.function
        }
        self.assertEqual(devices_of(placed, copy)["Tanh"], DEVICES[1])
        # TensorFlow runs the copies, and a new inlining finds the devices.
        fetches = ["sum:0", "counted:0"]
        tf.nest.map_structure(self.assertAllEqual, run(placed, fetches), run(graph_def, fetches))
        self.assertEqual(inline(placed, fetches).calls.keys(), flat.calls.keys())
        again = {
            node.name: node.device
            for node in inline(placed, ["sum:0"]).graph_def.node
            if node.device
        }
        self.assertEqual(again, assignment)

    def test_shares_functions_with_the_same_devices(self):
        graph_def = build_graph(build_nested_calls)
        flat = inline(graph_def, ["sum:0"])
        [call] = flat.calls.values()
        assignment = {inner.names["Tanh"]: DEVICES[1] for inner in call.calls.values()}
        placed = put_devices(graph_def, flat.calls, {**assignment, "count": DEVICES[0]})
        self.assertLen(placed.library.function, len(graph_def.library.function))
        self.assertEqual({n.name: n.device for n in placed.node if n.device}, {"count": DEVICES[0]})
        self.assertFalse([n for n in graph_def.node if n.device], "the graph itself stays")

    def test_keeps_original_devices(self):
        def build() -> None:
            tf1.get_variable("count", initializer=tf.constant(0.0), use_resource=True)
            x = tf1.placeholder(tf.float32, [2, 3], name="x")

            @tf.function
            def call(value):
                with tf.device(DEVICES[1]):
                    value = tf.tanh(value, name="there")
                return tf.sin(value, name="anywhere")

            with tf.device(DEVICES[1]):
                whole = call(x)
            tf.add(call(x), whole, name="sum")

        graph_def = build_graph(build)
        flat = inline(graph_def, ["sum:0"])
        [call] = flat.calls.values()  # A call with a device is one operation.
        self.assertLen([n for n in flat.graph_def.node if "PartitionedCall" in n.op], 1)
        there, anywhere = call.names["there"], call.names["anywhere"]
        placed = put_devices(graph_def, flat.calls, {there: DEVICES[0], anywhere: DEVICES[0]})
        devices = devices_of(placed, call.function)
        self.assertEqual((devices["there"], devices["anywhere"]), (DEVICES[1], DEVICES[0]))

    def test_does_not_inline_calls_that_tensorflow_keeps(self):
        attributes: tuple[Mapping[str, Any], ...] = (
            {"experimental_attributes": {"_noinline": True}},
            {"experimental_attributes": {"api_implements": "of something"}},
            {"jit_compile": True},
        )
        for attribute in attributes:

            def build(attribute=attribute) -> None:
                tf1.get_variable("count", initializer=tf.constant(0.0), use_resource=True)
                x = tf1.placeholder(tf.float32, [2, 3], name="x")
                tf.identity(tf.function(tf.tanh, **attribute)(x), name="sum")

            self.assertEmpty(inline(build_graph(build), ["sum:0"]).calls, attribute)

    def test_avoids_names_of_existing_operations(self):
        def build() -> None:
            tf1.get_variable("count", initializer=tf.constant(0.0), use_resource=True)
            x = tf1.placeholder(tf.float32, [2, 3], name="x")
            call = tf.function(tf.tanh)(x)
            tf.add(call, tf.sin(x, name=f"{call.op.name}/Tanh"), name="sum")

        graph_def = build_graph(build)
        flat = inline(graph_def, ["sum:0"]).graph_def
        self.assertLen({node.name for node in flat.node}, len(flat.node))
        self.assertAllEqual(run(flat, ["sum:0"]), run(graph_def, ["sum:0"]))


class DeepCallsTest(tf.test.TestCase):
    def test_accepts_deeply_nested_calls(self):
        graph_def = build_nested_functions(500)
        flat = inline_calls(graph_def, ["call:0"])
        self.assertEqual([node.op for node in flat.graph_def.node], ["Const", "Neg"])
        [fetch] = flat.fetches
        placed = put_devices(graph_def, flat.calls, {fetch.partition(":")[0]: "/cpu:0"})
        devices = [node.device for each in placed.library.function for node in each.node_def]
        self.assertEqual(devices, [""] * 499 + ["/cpu:0"])


if __name__ == "__main__":
    tf.test.main()
