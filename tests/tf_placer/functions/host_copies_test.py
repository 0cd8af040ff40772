"""Tests of tensors that wait on the CPU in a traced graph."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from graph_passes.host_copies import AddHostCopies, HostCopy
from tests.tf_placer.functions.two_devices import DEVICES
from tf_placer.functions.host_copies import insert_host_copies
from tf_placer.functions.placed_function import place_function
from tf_placer.functions.traced_call import trace_call

_COPY = HostCopy("hidden:0", ("late",), ("gate",), "trigger", DEVICES[1])
X = tf.constant([0.1, 2.0, -3.0])


def step(x):
    """Computes a tensor with an early and a late reader, and operations between them."""
    hidden = tf.square(x, name="hidden")
    trigger = tf.sin(tf.exp(hidden, name="gate"), name="trigger")
    return tf.multiply(hidden, tf.cos(trigger), name="late")


def place(*copies: HostCopy):
    return place_function(step, lambda name: "", copies, inline=True, autograph=False)


def nodes_of(graph_def: tf.compat.v1.GraphDef) -> dict[str, tuple[str, str, tuple[str, ...]]]:
    return {node.name: (node.op, node.device, tuple(node.input)) for node in graph_def.node}


class InsertHostCopiesTest(tf.test.TestCase):
    def test_makes_the_graph_that_the_pass_on_files_makes(self):
        plain, copied = (
            f.get_concrete_function(X).graph.as_graph_def() for f in (place(), place(_COPY))
        )
        self.assertEqual(nodes_of(copied), nodes_of(AddHostCopies([_COPY]).run(plain)))

    def test_values_and_gradients_are_the_same(self):
        results = []
        for function in (place(), place(_COPY)):
            with tf.GradientTape() as tape:
                tape.watch(X)
                y = function(X)
            results.append((y.numpy().tobytes(), tape.gradient(y, X).numpy().tobytes()))
        self.assertEqual(results[0], results[1])
        self.assertNotEqual(np.frombuffer(results[1][1], np.float32)[0], 0.0)

    def test_holds_for_another_batch_and_for_a_concrete_function(self):
        longer = tf.range(5.0)
        self.assertAllEqual(place(_COPY)(longer), step(longer))
        concrete = place().get_concrete_function(X)
        placed = trace_call(concrete, (X,)).place(lambda name: "", [_COPY])
        self.assertIn("hidden/from_host", [each.name for each in placed.graph.get_operations()])
        self.assertAllEqual(placed(X), step(X))

    def test_copies_of_what_a_trace_lacks_are_left_out(self):
        with tf.Graph().as_default() as graph:
            step(tf.constant([1.0]))
        before = graph.as_graph_def()
        for change in ({"tensor": "other:0"}, {"tensor": "hidden:1"}, {"readers": ("other",)}):
            insert_host_copies(graph, [HostCopy(**{**vars(_COPY), **change})])
        self.assertEqual(graph.as_graph_def(), before)


if __name__ == "__main__":
    tf.test.main()
