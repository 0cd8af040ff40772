"""Tests of applying a placement to what is in this process."""

from __future__ import annotations

import keras
import numpy as np
import tensorflow as tf

from graph_passes.errors import GraphError
from graph_passes.placement import Placement
from tests.tf_placer.functions.two_devices import DEVICES, MACHINE
from tf_placer.functions.placement_application import apply_placement
from tf_placer.functions.traced_call import trace_call
from tf_placer.machines.machine import MachineError


def plan_for(target, example_inputs) -> Placement:
    """Makes a placement that puts all operations of a step on the second device."""
    graph = trace_call(target, example_inputs).workload.op_graph
    needed = [name for name, is_needed in zip(graph.names, graph.needed, strict=True) if is_needed]
    return Placement("", DEVICES, dict.fromkeys(needed, DEVICES[1]))


class ApplyPlacementTest(tf.test.TestCase):
    def test_operations_of_a_graph_get_their_devices(self):
        with tf.Graph().as_default() as graph:
            a = tf.constant([1.0], name="a")
            b = tf.tanh(a, name="b")
        placement = Placement("", DEVICES, {"b": DEVICES[1]})
        self.assertIs(apply_placement(graph, placement), graph)
        self.assertEqual((a.device, b.device), (DEVICES[1], DEVICES[1]))

    def test_a_function_runs_where_it_was_planned(self):
        weights = tf.Variable([[2.0]], name="weights")

        @tf.function
        def double(x):
            return x @ weights

        x = tf.constant([[3.0]])
        placed = apply_placement(
            double, plan_for(double, (x,)), example_inputs=(x,), machine=MACHINE
        )
        self.assertAllEqual(placed(x), [[6.0]])
        self.assertEndsWith(weights.device, "CPU:1")

    def test_a_model_trains_where_it_was_planned(self):
        model = keras.Sequential([keras.Input([4]), keras.layers.Dense(1)])
        model.compile("sgd", "mse", jit_compile=False)
        x, y = np.ones([8, 4], np.float32), np.ones([8, 1], np.float32)
        placement = plan_for(model, (x, y))
        apply_placement(model, placement, example_inputs=(x, y), machine=MACHINE)
        losses = model.fit(x, y, batch_size=8, epochs=3, verbose=0).history["loss"]
        self.assertLess(losses[-1], losses[0])
        self.assertEndsWith(model.trainable_variables[0].value.device, "CPU:1")

    def test_bad_input_is_named(self):
        @tf.function
        def same(x):
            return tf.identity(x)

        x = (tf.constant([1.0]),)
        elsewhere = Placement("", ("/device:GPU:7",), {"x": "/device:GPU:7"})
        unlike = Placement("", DEVICES, {"nothing_like_it": DEVICES[1]})
        for arguments, keywords, error, message in (
            ((same, unlike), {}, ValueError, "needs example_inputs"),
            ((same, elsewhere), {"example_inputs": x}, GraphError, "uses /device:GPU:7, which"),
            ((same, unlike), {"example_inputs": x}, GraphError, "nothing of the placement fits"),
            ((7, unlike), {}, GraphError, "takes a tf.Graph, .* not int: the command `apply`"),
            ((tf.Graph(), unlike), {"example_inputs": x}, ValueError, "no example_inputs"),
            ((tf.Graph(), None), {}, ValueError, "is None if nothing was placed, not .* NoneType"),
        ):
            if arguments[0] is same and keywords:
                with self.assertRaisesRegex(MachineError, "'1xK80' is described, not attached"):
                    apply_placement(*arguments, **keywords, machine="1xK80")
                keywords = {**keywords, "machine": MACHINE}
            with self.assertRaisesRegex(error, message):
                apply_placement(*arguments, **keywords)


if __name__ == "__main__":
    tf.test.main()
