from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from graph_passes.placement import Placement
from tests.tf_placer.functions.two_devices import DEVICES, MACHINE
from tf_placer.functions.moved_variables import move_variables
from tf_placer.functions.placed_step import PlacedStep
from tf_placer.functions.traced_call import trace_call

X = tf.constant([[0.1, 0.2, 0.3], [0.4, -0.5, 0.6]])


class Network(tf.Module):
    """Two weights on the first device, a training step and a prediction with all kinds of calls."""

    def __init__(self) -> None:
        super().__init__()
        with tf.device(DEVICES[0]):
            self.left = tf.Variable(tf.fill([3, 3], 0.5), name="left")
            self.right = tf.Variable(tf.fill([3, 3], -0.5), name="right")

    @tf.function
    def branch(self, x: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
        return tf.tanh(x @ weights)

    @tf.function(input_signature=[tf.TensorSpec([None, 3])])
    def predict(self, x: tf.Tensor) -> dict[str, tf.Tensor]:
        left, right = self.branch(x, self.left), self.branch(x, self.right)
        for _ in tf.range(2):
            right = self.branch(right, self.right)
        if tf.reduce_sum(left) > 0.0:
            left = left * 2.0
        return {"sum": left + right}

    @tf.function(input_signature=[tf.TensorSpec([None, 3])])
    def train(self, x: tf.Tensor) -> tf.Tensor:
        variables = [self.left, self.right]
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(self.predict(x)["sum"] ** 2)
        for variable, gradient in zip(variables, tape.gradient(loss, variables), strict=True):
            variable.assign_sub(0.01 * gradient)
        return loss


def on_second_device(concrete: Any) -> Any:
    """Moves a function and its variables to the other device."""
    traced = trace_call(concrete, (X,))
    assignment = dict.fromkeys(traced.workload.op_graph.names, DEVICES[1])
    return PlacedStep(traced, MACHINE, Placement("", DEVICES, assignment)).function


def losses(function: Callable[..., Any]) -> list[float]:
    return [float(function(X)) for _ in range(3)]


class PlacedConcreteFunctionTest(tf.test.TestCase):
    def setUp(self):
        super().setUp()
        # Functions traced before may name the device where a variable was.
        tf.config.set_soft_device_placement(True)
        self.addCleanup(tf.config.set_soft_device_placement, False)

    def test_it_trains_the_variables_of_the_user(self):
        original = Network()
        expected = losses(original.train)
        network = Network()
        checkpoint = tf.train.Checkpoint(network=network)
        placed = on_second_device(network.train.get_concrete_function())
        self.assertAllClose(losses(placed), expected, rtol=1e-6)
        self.assertAllClose(network.left, original.left, rtol=1e-6)
        self.assertAllClose(network.right, original.right, rtol=1e-6)
        path = checkpoint.write(os.path.join(self.create_tempdir().full_path, "checkpoint"))
        saved = tf.train.load_checkpoint(path)
        name = "network/right/.ATTRIBUTES/VARIABLE_VALUE"
        self.assertAllEqual(saved.get_tensor(name), network.right)

    def test_it_sees_what_is_assigned_later(self):
        network = Network()
        placed = on_second_device(network.predict.get_concrete_function())
        self.assertEqual(network.left.device, DEVICES[1])
        for value in (0.0, 1.0):
            network.left.assign(tf.fill([3, 3], value))
            self.assertAllClose(placed(X)["sum"], network.predict(X)["sum"])
        move_variables({network.left.ref(): DEVICES[0]})
        network.left.assign(tf.zeros([3, 3]))
        self.assertAllClose(network.predict(X)["sum"], placed(X)["sum"])

    def test_the_function_that_was_passed_stays_as_it_is(self):
        network, original = Network(), Network()
        concrete = network.train.get_concrete_function()
        before = concrete.graph.as_graph_def()
        placed = on_second_device(concrete)
        self.assertEqual(concrete.graph.as_graph_def(), before)
        self.assertIsNot(placed.graph, concrete.graph)
        found = losses(concrete), losses(placed), losses(network.train)
        self.assertAllClose(found, [losses(original.train) for _ in range(3)], rtol=1e-6)

    def test_it_has_the_gradients_of_the_function(self):
        network = Network()
        variables = [network.left, network.right]

        def gradients(function: Any) -> Any:
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum(function(X)["sum"] ** 2)
            return tape.gradient(loss, variables)

        placed = on_second_device(network.predict.get_concrete_function())
        expected = gradients(network.predict)
        self.assertAllClose(gradients(placed), expected)
        self.assertAllClose(tf.function(lambda: gradients(placed))(), expected)

    def test_both_can_be_saved(self):
        network = Network()
        concrete = network.predict.get_concrete_function()
        network.placed = on_second_device(concrete)
        network.left.assign(tf.ones([3, 3]))
        path = os.path.join(self.create_tempdir().full_path, "saved")
        signatures = {"placed": network.placed, "passed": concrete}
        tf.saved_model.save(network, path, signatures=signatures)
        loaded = tf.saved_model.load(path)
        for name in signatures:
            found = loaded.signatures[name](X)["sum"]
            self.assertAllClose(found, network.predict(X)["sum"])

    def test_arguments_and_results_are_those_of_the_function(self):
        pair = tf.function(lambda x, y=3: {"a": x, "b": (x * y, None)})
        concrete = pair.get_concrete_function(tf.TensorSpec([None, 3], name="x"))
        placed = on_second_device(concrete)
        tf.nest.map_structure(self.assertAllEqual, placed(x=X)["b"][0], X * 3)
        self.assertIsNone(placed(X)["b"][1])
        self.assertEqual(placed.structured_input_signature, concrete.structured_input_signature)
        self.assertEqual(placed.structured_outputs["a"].shape, [None, 3])


if __name__ == "__main__":
    tf.test.main()
