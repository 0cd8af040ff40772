from __future__ import annotations

from unittest import mock

import numpy as np
import tensorflow as tf
from absl.testing import parameterized
from google.protobuf import text_format

from graph_passes import fingerprint
from graph_passes.fingerprint import graph_fingerprint
from tests import graphs
from tests.function_parts import build_nested_functions

tf1 = tf.compat.v1


def function_graph_def() -> tf1.GraphDef:
    with tf.Graph().as_default() as graph:
        tf.function(lambda value: tf.tanh(value) * 2.0)(tf.constant(1.0, name="value"))
    return graph.as_graph_def()


def copy_graph(graph_def: tf1.GraphDef) -> tf1.GraphDef:
    copy = tf1.GraphDef()
    copy.CopyFrom(graph_def)
    return copy


def rename(graph_def: tf1.GraphDef) -> None:
    graph_def.node[0].name += "_"


def change_type(graph_def: tf1.GraphDef) -> None:
    next(n for n in graph_def.node if n.op == "Tanh").op = "Sigmoid"


def change_constant(graph_def: tf1.GraphDef) -> None:
    node = next(n for n in graph_def.node if n.op == "Const" and n.attr["value"].tensor.float_val)
    node.attr["value"].tensor.float_val[0] += 1e-6


def swap_inputs(graph_def: tf1.GraphDef) -> None:
    node = next(n for n in graph_def.node if n.op == "Sub")
    node.input[0], node.input[1] = node.input[1], node.input[0]


def add_control_edge(graph_def: tf1.GraphDef) -> None:
    graph_def.node[-1].input.append(f"^{graph_def.node[0].name}")


def drop_operation(graph_def: tf1.GraphDef) -> None:
    del graph_def.node[-1]


def drop_attribute(graph_def: tf1.GraphDef) -> None:
    node = next(n for n in graph_def.node if "_class" in n.attr)
    del node.attr["_class"]


def change_function(graph_def: tf1.GraphDef) -> None:
    function = graph_def.library.function[0]
    next(n for n in function.node_def if n.op == "Tanh").op = "Sigmoid"


def add_function(graph_def: tf1.GraphDef) -> None:
    graph_def.library.function.add().signature.name = "another"


def add_gradient(graph_def: tf1.GraphDef) -> None:
    name = graph_def.library.function[0].signature.name
    graph_def.library.gradient.add(function_name=name, gradient_func=name)


def while_loop() -> None:
    value = tf.constant(1.0)
    _, result = tf.while_loop(lambda i, _: i < 3, lambda i, r: (i + 1, r * value), [0, value])
    tf.gradients(result, value)


def condition() -> None:
    value = tf.constant(1.0)
    tf.cond(value > 0, lambda: value * 2, lambda: value)


def function_with_gradient() -> None:
    value = tf.constant(1.0)
    tf.gradients(tf.function(lambda x: tf.tanh(x) * 2.0)(value), value)


def custom_gradient() -> None:
    @tf.custom_gradient
    def square(value):
        return value * value, lambda above: above * 3.0

    value = tf.constant(1.0)
    tf.gradients(square(value), value)


def dataset_map() -> None:
    dataset = tf.data.Dataset.range(5).map(lambda value: value + 1)
    tf1.data.make_initializable_iterator(dataset).get_next()


def lookup_table() -> None:
    values = tf.lookup.KeyValueTensorInitializer(["a"], [1])
    tf.lookup.StaticHashTable(values, 0).lookup(tf.constant(["a"]))


def build_graph(build) -> tf1.GraphDef:
    with tf.Graph().as_default() as graph:
        build()
    return graph.as_graph_def()


class FingerprintTest(tf.test.TestCase, parameterized.TestCase):
    def test_looks_like_a_hash(self):
        self.assertRegex(graph_fingerprint(function_graph_def()), "^[0-9a-f]{64}$")

    def test_rebuilt_graph_has_the_same_fingerprint(self):
        for name, factory in graphs.FACTORIES.items():
            made = graphs.share_graph(name), factory()
            first, second = (each.graph.as_graph_def() for each in made)
            self.assertEqual(graph_fingerprint(first), graph_fingerprint(second), name)

    @parameterized.parameters(
        while_loop, condition, function_with_gradient, custom_gradient, dataset_map, lookup_table
    )
    def test_generated_numbers_in_names_do_not_matter(self, build):
        first, second = build_graph(build), build_graph(build)
        self.assertNotEqual(first, second)
        self.assertEqual(graph_fingerprint(first), graph_fingerprint(second))

    def test_called_function_matters(self):
        graph_def = build_graph(condition)
        call = next(n for n in graph_def.node if "then_branch" in n.attr)
        exchanged = copy_graph(graph_def)
        other = next(n for n in exchanged.node if n.name == call.name)
        other.attr["then_branch"].func.name = call.attr["else_branch"].func.name
        other.attr["else_branch"].func.name = call.attr["then_branch"].func.name
        self.assertNotEqual(graph_fingerprint(exchanged), graph_fingerprint(graph_def))

    def test_nested_functions_matter(self):
        graph_def = tf1.GraphDef()
        for name, op in (("outer", "inner"), ("inner", "Tanh")):
            function = graph_def.library.function.add()
            function.signature.name = name
            function.node_def.add(name="node", op=op)
        graph_def.node.add(name="call", op="outer")
        changed = copy_graph(graph_def)
        changed.library.function[1].node_def[0].op = "Sigmoid"
        self.assertNotEqual(graph_fingerprint(changed), graph_fingerprint(graph_def))

    def test_accepts_recursive_functions(self):
        graph_def = tf1.GraphDef()
        function = graph_def.library.function.add()
        function.signature.name = "again"
        function.node_def.add(name="node", op="again")
        graph_def.node.add(name="call", op="again")
        self.assertRegex(graph_fingerprint(graph_def), "^[0-9a-f]{64}$")

    def test_accepts_deeply_nested_calls(self):
        prints = {graph_fingerprint(build_nested_functions(depth)) for depth in (499, 500)}
        self.assertLen(prints, 2)

    def test_accepts_missing_gradient_functions(self):
        graph_def = function_graph_def()
        name = graph_def.library.function[0].signature.name
        graph_def.library.gradient.add(function_name=name, gradient_func="lost")
        self.assertRegex(graph_fingerprint(graph_def), "^[0-9a-f]{64}$")

    def test_test_graphs_have_different_fingerprints(self):
        made = map(graphs.share_graph, graphs.FACTORIES)
        prints = [graph_fingerprint(each.graph.as_graph_def()) for each in made]
        self.assertLen(set(prints), len(graphs.FACTORIES))

    def test_order_of_nodes_does_not_matter(self):
        graph_def = graphs.lstm().graph.as_graph_def()
        graph_def.library.CopyFrom(function_graph_def().library)
        shuffled = copy_graph(graph_def)
        del shuffled.node[:], shuffled.library.function[:]
        random = np.random.default_rng(0)
        shuffled.node.extend(graph_def.node[i] for i in random.permutation(len(graph_def.node)))
        shuffled.library.function.extend(reversed(graph_def.library.function))
        self.assertEqual(graph_fingerprint(shuffled), graph_fingerprint(graph_def))

    def test_devices_and_notes_do_not_matter(self):
        graph_def = function_graph_def()
        noted = copy_graph(graph_def)
        for nodes in (noted.node, noted.library.function[0].node_def):
            for node in nodes:
                node.device = "/device:GPU:1"
                node.experimental_debug_info.original_node_names.append("other")
                node.attr["_output_shapes"].list.shape.add()
        self.assertEqual(graph_fingerprint(noted), graph_fingerprint(graph_def))

    @parameterized.parameters(
        "while_loop_v2", "cond_v2", "function_call", "tf_data_iterators", "lstm", "cond_v1"
    )
    def test_attributes_changed_by_an_export_do_not_matter(self, name):
        live = graphs.share_graph(name).graph.as_graph_def()
        with tf.Graph().as_default() as graph:
            tf.graph_util.import_graph_def(live, name="")
            exported = {
                "import": graph.as_graph_def(),
                "shapes": graph.as_graph_def(add_shapes=True),
                "meta": tf1.train.export_meta_graph().graph_def,
                "no defaults": tf1.train.export_meta_graph(strip_default_attrs=True).graph_def,
                "text": text_format.Parse(text_format.MessageToString(live), tf1.GraphDef()),
            }
            exported["once more"] = tf1.MetaGraphDef.FromString(
                tf1.train.export_meta_graph(graph_def=exported["no defaults"]).SerializeToString()
            ).graph_def
        for form, graph_def in exported.items():
            self.assertEqual(graph_fingerprint(graph_def), graph_fingerprint(live), form)

    def test_attributes_other_than_defaults_matter(self):
        graph_def = graphs.share_graph("while_loop_v1").graph.as_graph_def()
        changed = copy_graph(graph_def)
        next(n for n in changed.node if n.op == "MatMul").attr["transpose_a"].b ^= True
        self.assertNotEqual(graph_fingerprint(changed), graph_fingerprint(graph_def))

    @parameterized.parameters(
        rename,
        change_type,
        change_constant,
        swap_inputs,
        add_control_edge,
        drop_operation,
        drop_attribute,
    )
    def test_change_of_the_graph_matters(self, change):
        graph_def = graphs.share_graph("while_loop_v1").graph.as_graph_def()
        changed = copy_graph(graph_def)
        change(changed)
        self.assertNotEqual(graph_fingerprint(changed), graph_fingerprint(graph_def))

    @parameterized.parameters(change_function, add_function, add_gradient)
    def test_change_of_the_library_matters(self, change):
        graph_def = function_graph_def()
        changed = copy_graph(graph_def)
        change(changed)
        self.assertNotEqual(graph_fingerprint(changed), graph_fingerprint(graph_def))

    def test_large_constants_of_functions_are_hashed_as_in_text_format(self):
        def build(values: np.ndarray) -> tf1.GraphDef:
            with tf.Graph().as_default() as graph:
                tf.function(lambda i: tf.gather(tf.constant(values), i))(tf.constant(1, name="i"))
            return graph.as_graph_def()

        # All bytes, some of which have longer texts, in more than one part.
        values = np.tile(np.arange(256, dtype=np.uint8), 300)
        found = graph_fingerprint(build(values))
        self.assertEqual(found, graph_fingerprint(build(values)))
        with mock.patch.object(fingerprint, "_LARGE_BYTES", 10**9):
            self.assertEqual(found, graph_fingerprint(build(values)))
        values[-1] ^= 1
        self.assertNotEqual(found, graph_fingerprint(build(values)))

    def test_does_not_change_the_graph(self):
        graph_def = function_graph_def()
        for node in graph_def.node:
            node.device = "/cpu:0"
        before = graph_def.SerializeToString(deterministic=True)
        graph_fingerprint(graph_def)
        self.assertEqual(graph_def.SerializeToString(deterministic=True), before)


if __name__ == "__main__":
    tf.test.main()
