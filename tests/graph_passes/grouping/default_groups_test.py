from __future__ import annotations

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from graph_passes.colocation import find_colocation_groups
from graph_passes.grouping.default_groups import default_groups
from graph_passes.grouping.grouping import OPERATIONS, PINNED
from tests import graph_parts, graphs
from tests.graph_passes.grouping import models

tf1 = tf.compat.v1


class Default:
    """The default groups of a graph, with access by operation name."""

    def __init__(self, made: graphs.TestGraph) -> None:
        self.graph = models.op_graph_of(made)
        self.colocation = find_colocation_groups(self.graph)
        self.grouping = default_groups(self.graph, self.colocation)
        of_operation = self.grouping.expand_to_operations(self.colocation)
        self.group = dict(zip(self.graph.names, of_operation.tolist(), strict=True))

    def are_together(self, *names: str) -> bool:
        return len({self.group[name] for name in names}) == 1


class DefaultGroupsTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters(*graphs.FACTORIES)
    def test_each_needed_colocation_group_has_a_group(self, name):
        default = Default(graphs.share_graph(name))
        needed = np.unique(default.colocation.group[default.graph.needed])
        self.assertEqual(np.flatnonzero(default.grouping.group >= 0).tolist(), needed.tolist())
        self.assertEqual(
            np.unique(default.grouping.group[needed]).tolist(),
            list(range(default.grouping.num_groups)),
        )
        alone = default.colocation.pinned[needed]
        kinds = np.array(default.grouping.kinds)[default.grouping.group[needed]]
        self.assertEqual((kinds == PINNED).tolist(), alone.tolist())
        self.assertEqual(set(kinds[~alone]), {OPERATIONS})
        # Joined groups have the same legal devices, so no group loses a device.
        types = default.grouping.legal_types(default.colocation)
        for bit, device_type in enumerate(sorted(default.colocation.legal)):
            free = needed[~alone]
            self.assertAllEqual(
                (types[default.grouping.group[free]] >> bit & 1).astype(bool),
                default.colocation.legal[device_type][free],
            )
        self.assertAllEqual(default.grouping.sealed, [k == PINNED for k in default.grouping.kinds])

    @parameterized.parameters("resource_variables", "v1_ref_variables")
    def test_operations_join_their_gradients(self, name):
        default = Default(graphs.share_graph(name))
        for layer in ("layer_0", "layer_1", "logits"):
            self.assertTrue(
                default.are_together(
                    f"{layer}/MatMul",
                    f"gradients/{layer}/MatMul_grad/MatMul_1",
                    f"gradients/{layer}/MatMul_grad/tuple/control_dependency_1",
                )
            )
            self.assertTrue(
                default.are_together(
                    f"{layer}/BiasAdd", f"gradients/{layer}/BiasAdd_grad/BiasAddGrad"
                )
            )
            self.assertFalse(default.are_together(f"{layer}/MatMul", f"{layer}/BiasAdd"))
        self.assertFalse(default.are_together("layer_0/MatMul", "layer_1/MatMul"))

    def test_operations_join_their_gradients_of_a_tape(self):
        with graph_parts.new_graph() as graph:
            weights = graph_parts.weight_variable("w", [3, 3], use_resource=True)
            with tf.GradientTape() as tape:
                value = tf.tanh(tf.matmul(tf.ones([2, 3]), weights, name="product"), name="gate")
                loss = tf.reduce_sum(tf.sigmoid(value, name="other"), name="loss")
            (gradient,) = tape.gradient(loss, [weights])
            tf.reduce_sum(gradient, name="result")
        default = Default(graphs.TestGraph(graph, ("loss:0", "result:0")))
        gradient_of = {
            op.type: op.name
            for op in graph.get_operations()
            if "gradient_tape/" in op.name and default.group[op.name] >= 0
        }
        self.assertTrue(default.are_together("product", gradient_of["MatMul"]))
        self.assertTrue(default.are_together("gate", gradient_of["TanhGrad"]))
        self.assertTrue(default.are_together("other", gradient_of["SigmoidGrad"]))
        self.assertLen({default.group[name] for name in ("product", "gate", "other")}, 3)

    def test_residual_stream_does_not_join_layers(self):
        default = Default(models.mlp_of_residuals(layers=4))
        products = [f"layer_{i}/{name}" for i in range(4) for name in ("expand", "shrink")]
        self.assertLen({default.group[name] for name in products}, 8)
        for name in products:
            self.assertTrue(default.are_together(name, f"gradients/{name}_grad/MatMul_1"), name)
        self.assertLen({default.group[f"layer_{i}/stream"] for i in range(4)}, 4)

    def test_pinned_operations_are_one_group_per_device(self):
        with tf.Graph().as_default() as graph:
            lengths = []
            for device in ("", "/cpu:0", "/gpu:0", "", "/cpu:0"):
                with tf.device(device):
                    text = tf.constant(f"text on {device}", name="text")
                    lengths.append(tf.strings.length(text, name="length"))
            tf.add_n(lengths, name="sum")
        default = Default(graphs.TestGraph(graph, ("sum:0",)))
        groups = [default.group[f"length{suffix}"] for suffix in ("", "_1", "_2", "_3", "_4")]
        self.assertEqual([groups.index(group) for group in groups], [0, 1, 2, 0, 1])
        self.assertCountEqual(default.grouping.kinds, [PINNED] * 3 + [OPERATIONS])
        self.assertEqual(default.group["text"], groups[0])

    def test_gradients_with_other_legal_devices_stay_separate(self):
        with tf.Graph().as_default() as graph:
            product = tf.matmul([[1.0]], [[2.0]], name="product")
            with tf.name_scope("gradients/product_grad/"):
                plain = tf.negative(product, name="plain")
                # Integer products have no GPU kernel.
                numbers = tf.cast(plain, tf.int32, name="cast")
                odd = tf.matmul(numbers, numbers, name="odd")
                tf.negative(odd, name="even")
        default = Default(graphs.TestGraph(graph, ("gradients/product_grad/even:0",)))
        scope = "gradients/product_grad"
        self.assertTrue(
            default.are_together("product", *(f"{scope}/{n}" for n in ("plain", "cast", "even")))
        )
        self.assertFalse(default.are_together("product", f"{scope}/odd"))
        types = default.grouping.legal_types(default.colocation)
        self.assertNotEqual(types[default.group["product"]], types[default.group[f"{scope}/odd"]])


if __name__ == "__main__":
    tf.test.main()
