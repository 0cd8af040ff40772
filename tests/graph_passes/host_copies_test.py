"""Tests of the pass by which tensors wait on the CPU."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from graph_passes.errors import GraphError
from graph_passes.host_copies import AddHostCopies, HostCopy, find_copyable
from graph_passes.op_graph import OpGraph
from tests import graphs
from tests.graph_parts import control_flow, new_graph

tf1 = tf.compat.v1
HOST = "/job:localhost/replica:0/task:0/device:CPU:0"
_COPY = HostCopy("hidden:0", ("late",), ("gate",), "trigger", HOST)


def build() -> tf1.GraphDef:
    """Builds a hidden tensor with an early and a late reader, and operations between them."""
    with new_graph() as graph:
        x = tf1.placeholder(tf.float32, [3], name="x")
        hidden = tf.square(x, name="hidden")
        gate = tf.exp(hidden, name="gate")
        trigger = tf.sin(gate, name="trigger")
        tf.multiply(hidden, tf.cos(trigger), name="late")
    return graph.as_graph_def()


def run(graph_def: tf1.GraphDef, fetches, feeds, *, optimize: bool, initializer=None) -> list:
    config = tf1.ConfigProto()
    config.graph_options.rewrite_options.disable_meta_optimizer = not optimize
    with tf.Graph().as_default() as graph:
        tf.import_graph_def(graph_def, name="")
    with tf1.Session(graph=graph, config=config) as session:
        if initializer is not None:
            session.run(initializer)
        return [np.asarray(session.run(fetches, feeds)).tobytes() for _ in range(3)]


class AddHostCopiesTest(tf.test.TestCase):
    def copy(self, graph_def: tf1.GraphDef | None = None, **changes) -> tf1.GraphDef:
        copy = HostCopy(**{**vars(_COPY), **changes})
        return AddHostCopies([copy]).run(graph_def or build())

    def find_inputs(self, graph_def: tf1.GraphDef) -> dict[str, list[str]]:
        return {node.name: list(node.input) for node in graph_def.node}

    def test_the_late_reader_reads_a_copy_on_the_host(self):
        before = build()
        after = self.copy(before)
        inputs = self.find_inputs(after)
        self.assertEqual(inputs["hidden/to_host"], ["hidden"])
        self.assertEqual(inputs["hidden/from_host"], ["hidden/to_host", "^trigger"])
        self.assertEqual(inputs["gate"], ["hidden", "^hidden/to_host"])
        self.assertEqual(inputs["late"], ["hidden/from_host", "Cos"])
        devices = {node.name: node.device for node in after.node if node.device}
        self.assertEqual(devices, {"hidden/to_host": HOST, "hidden/from_host": HOST})
        unchanged = set(inputs) - {"hidden/to_host", "hidden/from_host", "gate", "late"}
        self.assertEqual(
            {name: inputs[name] for name in unchanged},
            {name: self.find_inputs(before)[name] for name in unchanged},
        )

    def test_changes_neither_its_input_nor_a_graph_without_copies(self):
        before = build()
        kept = before.SerializeToString()
        self.copy(before)
        self.assertEqual(before.SerializeToString(), kept)
        self.assertIs(AddHostCopies([]).run(before), before)

    def test_computes_the_same_bits_with_and_without_optimization(self):
        feeds = {"x:0": np.float32([0.1, 2.0, -3.0])}
        for optimize in (False, True):
            expected = run(build(), "late:0", feeds, optimize=optimize)
            self.assertEqual(run(self.copy(), "late:0", feeds, optimize=optimize), expected)

    def test_training_computes_the_same_bits(self):
        made = graphs.share_graph("small_convnet")
        graph_def = made.graph.as_graph_def()
        graph = OpGraph.from_graph_def(graph_def, made.fetches)
        copyable = find_copyable(graph)
        copies = []
        for i in graph.order[graph.needed[graph.order]].tolist():
            readers = [r for r in graph.consumers[i] if graph.needed[r]]
            last = max(readers, key=lambda r: graph.position[r], default=i)
            if graph.output_start[i + 1] - graph.output_start[i] != 1 or len(readers) < 2:
                continue
            if not copyable[[i, *readers]].all() or graph.tensor_dtypes[graph.output_start[i]] != 1:
                continue
            # The first reader triggers the way back of the copy for the last one.
            first = min(readers, key=lambda r: graph.position[r])
            names = graph.names
            copies.append(HostCopy(f"{names[i]}:0", (names[last],), (), names[first], HOST))
        self.assertGreater(len(copies), 5)
        after = AddHostCopies(copies).run(graph_def)
        feeds = {name: np.asarray(value) for name, value in (made.feeds or {}).items()}
        fetches = [name for name in made.fetches if ":" in name] or list(made.fetches)
        initializer = [node.name for node in graph_def.node if node.name == "init"]
        steps = [
            run(each, fetches, feeds, optimize=False, initializer=initializer)
            for each in (graph_def, after)
        ]
        self.assertEqual(*steps)

    def test_refuses_what_has_state_or_follows_control_flow(self):
        with new_graph() as graph, control_flow(v2=False):
            x = tf1.placeholder(tf.float32, [3], name="x")
            hidden = tf.square(x, name="hidden")
            tf.exp(hidden, name="gate")
            tf.sin(x, name="trigger")
            chosen = tf.cond(tf.reduce_sum(x) > 0.0, lambda: hidden + 1.0, lambda: hidden)
            tf.multiply(hidden, chosen, name="late")
            tf.add(hidden, tf1.random_uniform([3], name="random"), name="later")
        graph_def = graph.as_graph_def()
        with self.assertRaisesRegex(
            GraphError, "'late' has state, is a variable or depends on control"
        ):
            self.copy(graph_def)
        with self.assertRaisesRegex(GraphError, "'random/RandomUniform' has state"):
            self.copy(graph_def, readers=("later",), trigger="random/RandomUniform")
        copied = self.copy(graph_def, readers=("later",))
        self.assertEqual(self.find_inputs(copied)["later"][0], "hidden/from_host")

    def test_leaves_variables_and_references_alone(self):
        for name in ("v1_ref_variables", "resource_variables", "while_loop_v1"):
            graph = OpGraph.from_graph_def(graphs.share_graph(name).graph.as_graph_def())
            copyable = find_copyable(graph)
            for i, op_type in enumerate(graph.types):
                kind = graph.type_names[op_type]
                if "Variable" in kind or "Apply" in kind or kind in ("Enter", "Merge", "Switch"):
                    self.assertFalse(copyable[i], graph.names[i])

    def test_refuses_the_memory_of_a_reference_variable(self):
        # A reader that waits for the update sees it in the memory, and not in a copy.
        with new_graph() as graph:
            variable = tf1.get_variable("v", [3], use_resource=False)
            read = tf.identity(variable, name="hidden")
            tf.exp(read, name="gate")
            tf.sin(tf.reshape(read, [3], name="reshaped"), name="trigger")
            with tf.control_dependencies([tf1.assign(variable, [1.0, 2.0, 3.0])]):
                tf.multiply(read, 2.0, name="late")
        copyable = find_copyable(OpGraph.from_graph_def(graph.as_graph_def()))
        index = {node.name: i for i, node in enumerate(graph.as_graph_def().node)}
        self.assertFalse(copyable[[index["hidden"], index["reshaped"]]].any())
        self.assertTrue(copyable[index["trigger"]])
        with self.assertRaisesRegex(GraphError, "'hidden' has state"):
            self.copy(graph.as_graph_def())

    def test_refuses_what_is_not_in_the_graph(self):
        for changes, message in (
            ({"tensor": "gone:0"}, "no tensor 'gone:0'"),
            ({"trigger": "gone"}, "no operation 'gone'"),
            ({"readers": ("Cos",)}, "'Cos' does not read 'hidden:0'"),
            ({"gates": ("late",), "readers": ("gate",), "trigger": "late"}, "cycle"),
        ):
            with self.assertRaisesRegex(GraphError, message):
                self.copy(**changes)


if __name__ == "__main__":
    tf.test.main()
