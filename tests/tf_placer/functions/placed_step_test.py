from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.eager import context

from graph_passes.placement import Placement
from tests.tf_placer.functions.two_devices import DEVICES, MACHINE, random_placements
from tf_placer.functions.placed_step import PlacedStep
from tf_placer.functions.traced_call import trace_call

X = np.random.default_rng(0).normal(size=(4, 3)).astype(np.float32)


class Training(tf.Module):
    """A training step with a loop, a conditional and calls."""

    def __init__(self) -> None:
        super().__init__()
        self.left = tf.Variable(tf.fill([3, 3], 0.5), name="left")
        self.right = tf.Variable(tf.fill([3, 3], -0.5), name="right")
        self.steps = tf.Variable(0, name="steps")

    @tf.function
    def branch(self, x: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
        return tf.tanh(x @ weights)

    @tf.function
    def train(self, x: tf.Tensor) -> dict[str, tf.Tensor]:
        with tf.GradientTape() as tape:
            left, right = self.branch(x, self.left), self.branch(x, self.right)
            for _ in tf.range(3):
                right = tf.sin(right @ self.right)
            if tf.reduce_sum(left) > 0.0:
                left = left * 2.0
            loss = tf.reduce_sum(left) + tf.reduce_sum(right**2)
        variables = [self.left, self.right]
        for variable, gradient in zip(variables, tape.gradient(loss, variables), strict=True):
            variable.assign_sub(0.1 * gradient)
        self.steps.assign_add(1)
        return {"loss": loss, "left": left}


def three_steps(function: Any, x: np.ndarray = X) -> list[Any]:
    return [{k: v.numpy() for k, v in function(tf.constant(x)).items()} for _ in range(3)]


class PlacedFunctionTest(tf.test.TestCase):
    def check_devices(self, run: Callable[[], Any], placement: Placement) -> Any:
        """Checks the devices of the operations in a first run."""
        context.enable_run_metadata()
        context.export_run_metadata()  # discards the metadata of earlier runs
        result = run()
        metadata = context.export_run_metadata()
        context.disable_run_metadata()
        # Return operations have no device, and TensorFlow moves constants to their consumers.
        found = max(
            (
                {
                    node.name: node.device
                    for graph in function.partition_graphs
                    for node in graph.node
                    if node.op not in ("Const", "Identity", "NoOp")
                }
                for function in metadata.function_graphs
            ),
            key=lambda devices: len(devices.keys() & placement.assignment.keys()),
        )
        names = list(placement.assignment.keys() & found.keys())
        self.assertGreater(len(names), 10)
        self.assertEqual({n: found[n] for n in names}, {n: placement.assignment[n] for n in names})
        return result

    def test_every_legal_placement_computes_the_same_where_it_should(self):
        original = Training()
        expected = three_steps(original.train)
        untouched = Training()
        traced = trace_call(untouched.train, X)
        for placement in random_placements(traced.workload, 6):
            training = Training()
            step = PlacedStep(trace_call(training.train, X), MACHINE, placement)
            found = self.check_devices(lambda step=step: three_steps(step.function), placement)
            tf.nest.map_structure(self.assertAllEqual, found, expected)
            self.assertAllEqual(training.right, original.right)
            self.assertEqual(training.steps.numpy(), 3)
            self.assertLen(set(placement.assignment.values()), 2)
            for name, variable in step.traced.variables.items():
                self.assertEqual(variable.device, placement.assignment[name])

    def test_other_arguments_are_placed_alike(self):
        training = Training()
        traced = trace_call(training.train, X)
        [placement] = random_placements(traced.workload, 1)
        function = PlacedStep(traced, MACHINE, placement).function
        more = np.concatenate([X, X])
        original = Training()
        found = self.check_devices(lambda: three_steps(function, more), placement)
        self.assertAllClose(found, three_steps(original.train, more))

    def test_variables_that_are_arguments_move(self):
        def train_image(image, scale):
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum(tf.sin(image @ image) * scale)
            image.assign_sub(0.1 * tape.gradient(loss, image))
            image.assign(tf.clip_by_value(image, 0.0, 1.0))
            return {"loss": loss}

        function, start = tf.function(train_image), tf.eye(3) * 0.5
        original, moved = tf.Variable(start), tf.Variable(start)
        expected = [function(original, 2.0)["loss"] for _ in range(3)]
        step = trace_call(function, (moved, 2.0))
        for placement in random_placements(step.workload, 3):
            moved.assign(start)
            placed = PlacedStep(step, MACHINE, placement).function
            found = self.check_devices(
                lambda placed=placed: [placed(moved, 2.0)["loss"] for _ in range(3)], placement
            )
            self.assertAllEqual(found, expected)
            self.assertAllEqual(moved, original)
            self.assertEqual(moved.device, placement.assignment["image"])

    def test_a_concrete_function_stays_one(self):
        variable = tf.Variable(2.0)

        @tf.function
        def scale(x):
            return {"y": x * variable, "z": -x}

        concrete = scale.get_concrete_function(tf.TensorSpec([None], tf.float32))
        traced = trace_call(concrete, np.ones(2, np.float32))
        placement = Placement("", DEVICES, {"mul": DEVICES[1], "Neg": DEVICES[0]})
        placed = PlacedStep(traced, MACHINE, placement).function
        x = tf.constant([1.0, 2.0, 3.0])
        self.assertAllEqual(placed(x)["y"], [2.0, 4.0, 6.0])
        self.assertAllEqual(placed(x)["z"], concrete(x)["z"])
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(placed(x)["y"])
        self.assertEqual(tape.gradient(loss, variable).numpy(), 6.0)
        on = {each.name: each.device for each in placed.graph.get_operations()}
        self.assertEqual((on["mul"], on["Neg"]), (DEVICES[1], DEVICES[0]))

    def test_tables_stay_where_they_are(self):
        weights = tf.Variable(tf.ones([3]))
        table = tf.lookup.StaticHashTable(
            tf.lookup.KeyValueTensorInitializer(["a", "b"], [1, 2]), default_value=0
        )

        @tf.function
        def step(x):
            weights.scatter_add(tf.IndexedSlices(tf.ones([2]), table.lookup(x)))
            return weights * 2.0

        x = tf.constant(["b", "c"])
        traced = trace_call(step, x)
        expected = [step(x), step(x)]
        weights.assign(tf.ones([3]))
        for placement in random_placements(traced.workload, 4):
            placed = PlacedStep(traced, MACHINE, placement).function
            self.assertAllEqual([placed(x), placed(x)], expected)
            weights.assign(tf.ones([3]))

    def test_summaries_are_written_as_they_were(self):
        folder = self.create_tempdir().full_path
        writer = tf.summary.create_file_writer(folder)
        step_number = tf.Variable(0, dtype=tf.int64)

        @tf.function
        def step(x):
            step_number.assign_add(1)
            with writer.as_default():
                tf.summary.write("sum", tf.reduce_sum(x), step=step_number)
            return tf.reduce_sum(x) * 2.0

        traced = trace_call(step, X)
        for placement in random_placements(traced.workload, 2):
            placed = PlacedStep(traced, MACHINE, placement).function
            for _ in range(2):
                self.assertAllClose(placed(X), 2.0 * X.sum())
        writer.close()
        [path] = tf.io.gfile.glob(f"{folder}/*")
        values = [
            (event.step, tf.make_ndarray(value.tensor))
            for event in tf.compat.v1.train.summary_iterator(path)
            for value in event.summary.value
        ]
        self.assertEqual([number for number, _ in values], [1, 2, 3, 4])
        self.assertAllClose([value for _, value in values], [X.sum()] * 4)

    def test_without_a_placement_it_is_the_function_itself(self):
        training = Training()
        step = PlacedStep(trace_call(training.train, X), MACHINE)
        self.assertIs(step.function, step.traced.target)


if __name__ == "__main__":
    tf.test.main()
