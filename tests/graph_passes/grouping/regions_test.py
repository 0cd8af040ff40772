from __future__ import annotations

import tensorflow as tf
from absl.testing import parameterized

from graph_passes.colocation import find_colocation_groups
from graph_passes.grouping.regions import (
    Regions,
    carries_data,
    find_forward_operation,
    find_regions,
    find_weight_sources,
)
from graph_passes.op_graph import OpGraph
from tests import graph_parts as parts
from tests import graphs
from tests.graph_passes.grouping import models

tf1 = tf.compat.v1


def graph_of(*names: str) -> OpGraph:
    """Builds a graph of NoOps with these names."""
    graph_def = tf1.GraphDef()
    for name in names:
        graph_def.node.add(name=name, op="NoOp")
    return OpGraph.from_graph_def(graph_def)


class NamedRegions:
    """The regions of a graph, with access by operation name."""

    def __init__(self, made: graphs.TestGraph) -> None:
        self.graph = models.op_graph_of(made)
        self.regions: Regions = find_regions(self.graph, find_colocation_groups(self.graph))
        self.anchors = [self.graph.names[i] for i in self.regions.anchors]

    def anchor_of(self, name: str) -> str | None:
        region = int(self.regions.region[self.graph.index[name]])
        return self.anchors[region] if region >= 0 else None

    def is_forward(self, name: str) -> bool:
        return bool(self.regions.forward[self.graph.index[name]])

    def weight_of(self, anchor: str) -> str | None:
        weight = self.regions.weights[self.anchors.index(anchor)]
        return None if weight is None else self.graph.names[weight]


class ForwardOperationTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters(
        ("gradients/lm/MatMul_grad/MatMul_1", "lm/MatMul"),
        ("gradients_2/lm/MatMul_grad/tuple/group_deps", "lm/MatMul"),
        ("tower_0/gradients/lm/MatMul_grad/MatMul", "lm/MatMul"),
        ("gradients/lm/odd_grad/op_grad/Mul", "lm/odd_grad/op"),
        ("gradients/lm/MatMul_grad_1/MatMul", "lm/MatMul"),
        ("gradient_tape/lm/MatMul/MatMul_1", "lm/MatMul"),
        ("train/gradient_tape/lm/MatMul/a/b", "lm/MatMul"),
        ("gradients/AddN_3", None),
        ("gradients/lost_grad/Mul", None),
        ("gradient_tape/lost/Mul", None),
        ("my_gradients/lm/MatMul_grad/MatMul", None),
        ("lm/MatMul_grad/MatMul", None),
        ("lm/MatMul", None),
    )
    def test_finds_the_forward_operation_by_name(self, name, expected):
        graph = graph_of(*{"lm/MatMul", "lm/odd_grad/op", name})
        found = find_forward_operation(graph, graph.index[name])
        self.assertEqual(None if found is None else graph.names[found], expected)

    @parameterized.parameters("lstm", "v1_ref_variables", "small_convnet", "while_loop_v1")
    def test_finds_the_forward_operations_of_tensorflow_gradients(self, name):
        made = graphs.share_graph(name)
        graph = models.op_graph_of(made)
        found = 0
        for i, operation in enumerate(graph.names):
            forward = find_forward_operation(graph, i)
            if forward is not None:
                self.assertStartsWith(operation, f"gradients/{graph.names[forward]}_grad")
                found += 1
        self.assertGreater(found, 30)


class RegionsTest(tf.test.TestCase, parameterized.TestCase):
    def test_region_extends_to_the_next_anchor(self):
        found = NamedRegions(graphs.resource_variables())
        self.assertEqual(found.anchors, ["layer_0/MatMul", "layer_1/MatMul", "logits/MatMul"])
        for layer in ("layer_0", "layer_1"):
            self.assertEqual(found.anchor_of(f"{layer}/BiasAdd"), f"{layer}/MatMul")
            self.assertEqual(found.weight_of(f"{layer}/MatMul"), f"{layer}/weights")
        self.assertEqual(found.anchor_of("Relu"), "layer_0/MatMul")
        self.assertEqual(found.anchor_of("loss"), "logits/MatMul")

    def test_region_includes_operations_that_only_it_reads(self):
        with parts.new_graph() as graph:
            x = tf1.placeholder(tf.float32, [2, 3], name="x")
            weights = parts.weight_variable("w", [6, 4], use_resource=True)
            both = tf.concat([x, tf.exp(x, name="before")], 1, name="join")
            tf.matmul(both, weights, name="product")
        found = NamedRegions(graphs.TestGraph(graph, ("product:0",), {"x:0": None}))
        self.assertEqual(found.anchors, ["product"])
        for name in ("before", "join", "join/axis"):
            self.assertEqual(found.anchor_of(name), "product", name)
        self.assertIsNone(found.anchor_of("w"))

    def test_only_lookups_in_weights_are_anchors(self):
        for use_resource in (True, False):
            with parts.new_graph() as graph:
                table = parts.weight_variable("table", [5, 3], use_resource)
                rows = tf.gather(table, [0, 1], name="lookup")
                tf.gather(rows * 2.0, [0], name="picked")
            found = NamedRegions(graphs.TestGraph(graph, ("picked:0",)))
            self.assertEqual(found.anchors, ["lookup"])
            self.assertEqual(found.weight_of("lookup"), "table")

    def test_gradients_and_updates_are_not_forward(self):
        found = NamedRegions(graphs.resource_variables())
        for name in ("layer_0/MatMul", "loss", "layer_1/weights"):
            self.assertTrue(found.is_forward(name), name)
        for name in (
            "gradients/loss_grad/Tile",
            "global_norm/global_norm",
            "train/update_layer_0/weights/ResourceApplyAdam",
        ):
            self.assertFalse(found.is_forward(name), name)
        self.assertFalse(found.is_forward("layer_0/weights/Assign"))

    def test_functional_loop_is_forward_despite_inputs_from_its_gradient(self):
        found = NamedRegions(graphs.while_loop_v2())
        self.assertTrue(found.is_forward("while"))
        self.assertTrue(found.is_forward("loss"))
        self.assertFalse(found.is_forward("gradients/while_grad/while_grad"))
        self.assertEqual(found.anchors, ["logits/MatMul"])

    def test_finds_weights_through_identities(self):
        with parts.new_graph() as graph:
            weights = parts.weight_variable("w", [2, 3], use_resource=True)
            turned = tf.transpose(tf.identity(weights), name="turned")
            tf.multiply(turned, 2.0, name="changed")
        op_graph = models.op_graph_of(graphs.TestGraph(graph, ("changed:0",)))
        sources = find_weight_sources(op_graph)
        self.assertEqual(sources[op_graph.index["turned"]], op_graph.index["w"])
        self.assertIsNone(sources[op_graph.index["changed"]])

    def test_data_depends_on_more_than_variables_and_constants(self):
        with parts.new_graph() as graph:
            x = tf1.placeholder(tf.float32, [2, 3], name="x")
            weights = parts.weight_variable("w", [2, 3], use_resource=True)
            decay = tf.multiply(weights, 0.1, name="decay")
            tf.add(decay, x, name="sum")
            tf.random.uniform([2], name="noise")
        op_graph = models.op_graph_of(graphs.TestGraph(graph, ("sum:0",)))
        regions = find_regions(op_graph, find_colocation_groups(op_graph))
        carries = carries_data(op_graph, regions.region)
        told = {name: bool(carries[i]) for name, i in op_graph.index.items()}
        self.assertTrue(told["x"] and told["sum"])
        self.assertFalse(told["w"] or told["decay"] or told["decay/y"])

    def test_graph_without_contractions_has_no_regions(self):
        with tf.Graph().as_default() as graph:
            tf.negative(tf.constant(1.0), name="end")
        found = NamedRegions(graphs.TestGraph(graph, ("end:0",)))
        self.assertEmpty(found.anchors)
        self.assertTrue((found.regions.region == -1).all())


if __name__ == "__main__":
    tf.test.main()
