from __future__ import annotations

import tensorflow as tf
from absl.testing import parameterized

from graph_passes.annotate import Annotate, ClearDevices, DropDanglingColocation
from graph_passes.errors import GraphError
from graph_passes.graph_pass import GraphPass
from tests import graphs

tf1 = tf.compat.v1

CPU = "/job:localhost/replica:0/task:0/device:CPU:0"
GPU = "/job:localhost/replica:0/task:0/device:GPU:0"


def functional_graph_def() -> tf1.GraphDef:
    """Builds value -> call of a function -> negative."""
    with tf.Graph().as_default() as graph:
        double = tf.function(lambda value: value * 2.0)
        tf.negative(double(tf.constant(1.0, name="value")), name="negative")
    return graph.as_graph_def()


def copy_graph(graph_def: tf1.GraphDef) -> tf1.GraphDef:
    copy = tf1.GraphDef()
    copy.CopyFrom(graph_def)
    return copy


def clear_devices(graph_def: tf1.GraphDef) -> tf1.GraphDef:
    copy = copy_graph(graph_def)
    for nodes in (copy.node, *(f.node_def for f in copy.library.function)):
        for node in nodes:
            node.device = ""
    return copy


def devices(graph_def: tf1.GraphDef) -> dict[str, str]:
    return {node.name: node.device for node in graph_def.node if node.device}


class PassTestCase(tf.test.TestCase):
    def assert_unmodified(self, graph_pass: GraphPass, graph_def: tf1.GraphDef) -> None:
        before = copy_graph(graph_def)
        self.assertIs(graph_pass.run(graph_def), graph_def)
        self.assertEqual(graph_def, before)

    def run_and_check_input(self, graph_pass: GraphPass, graph_def: tf1.GraphDef) -> tf1.GraphDef:
        """Runs a pass, and checks that its input is unchanged."""
        before = copy_graph(graph_def)
        result = graph_pass.run(graph_def)
        self.assertIsNot(result, graph_def)
        self.assertEqual(graph_def, before)
        return result


class AnnotateTest(PassTestCase, parameterized.TestCase):
    @parameterized.parameters(*graphs.FACTORIES)
    def test_writes_device_fields_and_nothing_else(self, name):
        graph_def = graphs.share_graph(name).graph.as_graph_def()
        names = [node.name for node in graph_def.node]
        assignment = {n: (CPU, GPU)[i % 2] for i, n in enumerate(names) if i % 3}
        placed = self.run_and_check_input(Annotate(assignment), graph_def)
        self.assertEqual(devices(placed), assignment | devices(graph_def))
        self.assertEqual(
            clear_devices(placed).SerializeToString(deterministic=True),
            clear_devices(graph_def).SerializeToString(deterministic=True),
        )

    def test_operations_keep_their_device(self):
        graph_def = functional_graph_def()
        graph_def.node[0].device = "/gpu:3"
        placed = self.run_and_check_input(Annotate({"value": CPU, "negative": GPU}), graph_def)
        self.assertEqual(devices(placed), {graph_def.node[0].name: "/gpu:3", "negative": GPU})

    def test_placed_graph_is_unchanged(self):
        annotate = Annotate({"value": CPU, "negative": GPU})
        self.assert_unmodified(annotate, annotate.run(functional_graph_def()))

    def test_empty_assignment_changes_nothing(self):
        for assignment in ({}, {"value": ""}):
            self.assert_unmodified(Annotate(assignment), functional_graph_def())

    def test_unknown_operation_is_named(self):
        with self.assertRaisesRegex(GraphError, "'lost'"):
            Annotate({"value": CPU, "lost": GPU}).run(functional_graph_def())


class ClearDevicesTest(PassTestCase):
    def test_clears_devices_and_nothing_else(self):
        graph_def = functional_graph_def()
        placed = copy_graph(graph_def)
        for nodes in (placed.node, placed.library.function[0].node_def):
            for node in nodes:
                node.device = "/device:GPU:1"
        self.assertEqual(self.run_and_check_input(ClearDevices(), placed), graph_def)

    def test_clears_devices_in_functions(self):
        graph_def = functional_graph_def()
        graph_def.library.function[0].node_def[0].device = "/gpu:0"
        cleared = self.run_and_check_input(ClearDevices(), graph_def)
        self.assertEqual(cleared, clear_devices(graph_def))

    def test_keeps_devices_in_functions_if_asked_to(self):
        graph_def = functional_graph_def()
        graph_def.library.function[0].node_def[0].device = "/gpu:0"
        self.assert_unmodified(ClearDevices(in_functions=False), graph_def)
        placed = copy_graph(graph_def)
        placed.node[0].device = "/gpu:0"
        cleared = self.run_and_check_input(ClearDevices(in_functions=False), placed)
        self.assertEqual(cleared, graph_def)

    def test_graph_without_devices_is_unchanged(self):
        self.assert_unmodified(ClearDevices(), functional_graph_def())


class DropDanglingColocationTest(PassTestCase):
    def graph_def(self, *classes: bytes) -> tf1.GraphDef:
        """Builds constants a, b and c; c has these classes."""
        with tf.Graph().as_default() as graph:
            for name in "abc":
                tf.constant(1.0, name=name)
        graph_def = graph.as_graph_def()
        if classes:
            graph_def.node[2].attr["_class"].list.s.extend(classes)
        return graph_def

    def test_drops_missing_names_only(self):
        graph_def = self.graph_def(b"loc:@a", b"loc:@lost", b"own", b"loc:@b")
        dropped = self.run_and_check_input(DropDanglingColocation(), graph_def)
        self.assertEqual(dropped, self.graph_def(b"loc:@a", b"own", b"loc:@b"))

    def test_drops_empty_attributes(self):
        graph_def = self.graph_def(b"loc:@lost", b"loc:@lost_too")
        dropped = DropDanglingColocation().run(graph_def)
        self.assertEqual(dropped, self.graph_def())
        with tf.Graph().as_default():
            tf.graph_util.import_graph_def(dropped)

    def test_graph_without_dangling_names_is_unchanged(self):
        for graph_def in (self.graph_def(), self.graph_def(b"loc:@a"), self.graph_def(b"own")):
            self.assert_unmodified(DropDanglingColocation(), graph_def)
        made = graphs.v1_ref_variables()
        self.assert_unmodified(DropDanglingColocation(), made.graph.as_graph_def())

    def test_pruned_graph_can_be_imported(self):
        made = graphs.v1_ref_variables()
        graph_def = made.graph.as_graph_def()
        kept = [node for node in graph_def.node if node.name.startswith("layer_0/weights/Adam")]
        pruned = tf1.GraphDef(node=[node for node in kept if not node.input])
        with self.assertRaises(ValueError), tf.Graph().as_default():
            tf.graph_util.import_graph_def(pruned)
        dropped = DropDanglingColocation().run(pruned)
        with tf.Graph().as_default():
            tf.graph_util.import_graph_def(dropped)


if __name__ == "__main__":
    tf.test.main()
