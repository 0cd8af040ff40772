"""Tests of graphs that differ only in names."""

from __future__ import annotations

import tensorflow as tf

from graph_passes.placement import Placement
from graph_passes.renaming import map_names, rename_placement
from tests.graph_parts import control_flow, new_graph

tf1 = tf.compat.v1
FIRST, SECOND = (f"/job:localhost/replica:0/task:0/device:CPU:{i}" for i in range(2))


def build(prefix: str, *, width: int = 2, scale: float = 2.0, swapped: bool = False) -> tf.Graph:
    with new_graph() as graph:
        x = tf1.placeholder(tf.float32, [None, 3], name=f"{prefix}x")
        weights = tf1.get_variable(f"{prefix}w", [3, width], use_resource=True)
        with tf1.colocate_with(weights.op):
            product = tf.matmul(x, weights, name=f"{prefix}product")
        with tf.control_dependencies([product]):
            parts = [product, product * scale]
            tf.subtract(*(reversed(parts) if swapped else parts), name=f"{prefix}y")
    return graph


class NamesInTest(tf.test.TestCase):
    def test_maps_operations_with_other_names(self):
        one, other = build("a_").as_graph_def(), build("model/b_").as_graph_def()
        names = map_names(one, other)
        self.assertEqual([names[node.name] for node in one.node], [n.name for n in other.node])
        self.assertEqual(names["a_product"], "model/b_product")
        self.assertEqual(map_names(one, one), {node.name: node.name for node in one.node})

    def test_rejects_graphs_with_other_differences(self):
        one = build("a_").as_graph_def()
        for other in (build("b_", width=5), build("b_", scale=3.0), build("b_", swapped=True)):
            self.assertIsNone(map_names(one, other.as_graph_def()))
        longer = build("b_")
        with longer.as_default():
            tf.no_op("more")
        self.assertIsNone(map_names(one, longer.as_graph_def()))

    def test_maps_operations_of_equal_functions(self):
        def build_loop(number: int, scale: float, *, swapped: bool) -> tf1.GraphDef:
            def body(v: tf.Tensor) -> tf.Tensor:
                with tf.name_scope(f"layer_{number}"):
                    parts = [v * scale, tf.sin(weights, name=f"sin_{number}")]
                    return tf.subtract(*(reversed(parts) if swapped else parts))

            with new_graph() as graph, control_flow(v2=True):
                x = tf1.placeholder(tf.float32, [], name=f"x_{number}")
                weights = tf1.placeholder(tf.float32, [], name=f"weights_{number}")
                y = tf.nest.flatten(tf.while_loop(lambda v: v < 9.0, body, [x]))[0]
                tf.cond(x > 0.0, lambda: tf.exp(x, name=f"e_{number}"), lambda: y, name="if")
            return graph.as_graph_def()

        one = build_loop(0, 2.0, swapped=False)
        self.assertEqual(map_names(one, build_loop(1, 2.0, swapped=False))["x_0"], "x_1")
        self.assertIsNone(map_names(one, build_loop(2, 3.0, swapped=False)))
        self.assertIsNone(map_names(one, build_loop(3, 2.0, swapped=True)))

    def test_renames_placements(self):
        placement = Placement("f", (FIRST, SECOND), {"a": FIRST, "b": SECOND})
        renamed = rename_placement(placement, {"a": "c", "b": "d", "more": "e"})
        self.assertEqual(renamed.assignment, {"c": FIRST, "d": SECOND})
        self.assertEqual(renamed.devices, placement.devices)


if __name__ == "__main__":
    tf.test.main()
