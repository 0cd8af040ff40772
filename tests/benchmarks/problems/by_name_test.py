from __future__ import annotations

import tensorflow as tf
from absl.testing import absltest

from benchmarks.problems.by_name import colocate_by_name, is_gradient_sum

tf1 = tf.compat.v1


def build_graph() -> tf.compat.v1.GraphDef:
    """Builds a graph that multiplies twice with the same weights, and its gradients."""
    with tf.Graph().as_default() as graph:
        weights = tf1.get_variable("weights", [4, 4], use_resource=False)
        value = tf1.placeholder(tf.float32, [2, 4])
        for step in range(2):
            with tf1.name_scope(f"layer_0/step_{step}"):
                value = tf.matmul(value, weights, name="product")
        tf.gradients(tf.reduce_sum(value), [weights])
    return graph.as_graph_def()


def read_classes(graph_def: tf.compat.v1.GraphDef) -> dict[str, list[bytes]]:
    return {node.name: list(node.attr["_class"].list.s) for node in graph_def.node}


class ByNameTest(absltest.TestCase):
    def test_gradients_are_with_their_forward_operations(self):
        given = build_graph()
        before = given.SerializeToString()
        classes = read_classes(colocate_by_name(given))
        for step in range(2):
            forward = f"layer_0/step_{step}/product"
            self.assertIn(f"loc:@{forward}".encode(), classes[f"gradients/{forward}_grad/MatMul_1"])
        self.assertEqual(given.SerializeToString(), before)

    def test_sums_of_gradients_are_with_nothing(self):
        given = build_graph()
        sums = [node.name for node in given.node if is_gradient_sum(node.name)]
        self.assertEqual(sums, ["gradients/AddN"])
        self.assertNotEmpty(read_classes(given)["gradients/AddN"])
        self.assertEmpty(read_classes(colocate_by_name(given))["gradients/AddN"])

    def test_other_operations_are_unchanged(self):
        given = build_graph()
        before, after = read_classes(given), read_classes(colocate_by_name(given))
        for name, classes in before.items():
            if not name.startswith("gradients/"):
                self.assertEqual(after[name], classes)

    def test_names_tell_what_a_sum_is(self):
        self.assertTrue(is_gradient_sum("gradients/AddN_12"))
        for name in ("AddN", "gradients/AddN_1/inputs", "gradients/x_grad/AddN"):
            self.assertFalse(is_gradient_sum(name))


if __name__ == "__main__":
    absltest.main()
