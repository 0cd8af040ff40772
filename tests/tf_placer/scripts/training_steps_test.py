"""Tests of recognizing training steps."""

from __future__ import annotations

import unittest
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from tf_placer.scripts.training_steps import (
    find_needed_operations,
    is_training_function,
    is_training_step,
)

tf1 = tf.compat.v1


class SessionStepTest(tf.test.TestCase):
    def setUp(self):
        super().setUp()
        self.graph = self.enter_context(tf.Graph().as_default())
        self.x = tf1.placeholder(tf.float32, [None, 3], name="x")
        self.weights = tf1.get_variable("weights", [3, 2], use_resource=True)
        self.old = tf1.get_variable("old", [2], use_resource=False)
        self.loss = tf.reduce_sum(tf.matmul(self.x, self.weights) + self.old)
        self.variables = [self.weights, self.old]

    def trains(self, *fetches: Any) -> bool:
        return is_training_step(self.graph, [each.name for each in fetches], ["x:0"])

    def test_optimizers_train(self):
        for optimizer in (tf1.train.GradientDescentOptimizer(0.1), tf1.train.AdamOptimizer()):
            train = optimizer.minimize(self.loss)
            self.assertTrue(self.trains(self.loss, train))
        self.assertFalse(self.trains(self.loss))

    def test_plain_assignments_train(self):
        gradients = tf.gradients(self.loss, self.variables)
        for variable, gradient in zip(self.variables, gradients, strict=True):
            self.assertTrue(self.trains(tf1.assign(variable, variable - 0.1 * gradient)))
            self.assertTrue(self.trains(tf1.assign_sub(variable, 0.1 * gradient * variable)))

    def test_a_step_behind_a_conditional_trains(self):
        train = tf1.train.GradientDescentOptimizer(0.1)
        for version in (tf1.enable_control_flow_v2, tf1.disable_control_flow_v2):
            version()
            done = tf.cond(
                tf.reduce_sum(self.x) > 0,
                lambda: tf1.group(train.minimize(tf.reduce_sum(tf.matmul(self.x, self.weights)))),
                tf.no_op,
            )
            self.assertTrue(self.trains(done))

    def test_an_assignment_in_a_conditional_trains(self):
        [gradient] = tf.gradients(self.loss, [self.weights])
        other = tf1.get_variable("other", [3, 2], use_resource=True)
        for version in (tf1.enable_control_flow_v2, tf1.disable_control_flow_v2):
            version()
            for value, trains in (
                (self.weights - 0.1 * gradient, True),
                (0.9 * self.weights + 0.1 * other, False),
                (tf.zeros([3, 2]), False),
            ):
                done = tf.cond(
                    tf.reduce_sum(self.x) > 0,
                    lambda value=value: tf1.assign(self.weights, value).op,
                    tf.no_op,
                )
                self.assertEqual(self.trains(done), trains)

    def test_gradients_that_a_script_applies_itself_train(self):
        gradients = tf.gradients(self.loss**2, self.variables)
        clipped, norm = tf.clip_by_global_norm(gradients, 1.0)
        in_one = tf.concat([tf.reshape(each, [-1]) for each in gradients], 0)
        for given in (gradients[1], clipped[0], in_one):
            self.assertTrue(self.trains(self.loss, given))
        of_data = tf.gradients(self.loss**2, self.x)[0]
        for given in (norm, of_data, in_one[:3], self.weights + 1.0):
            self.assertFalse(self.trains(self.loss, given))

    def test_initializers_do_not_train(self):
        copy = tf1.get_variable("copy", initializer=self.old.initialized_value())
        self.assertFalse(self.trains(tf1.global_variables_initializer()))
        self.assertFalse(self.trains(copy.initializer))

    def test_counters_do_not_train(self):
        step = tf1.train.get_or_create_global_step()
        count = tf1.get_variable("count", [], use_resource=False)
        self.assertFalse(self.trains(tf1.assign_add(step, 1), tf1.assign(count, count + 1)))

    def test_copies_and_averages_of_variables_do_not_train(self):
        other = tf1.get_variable("other", [3, 2])
        self.assertFalse(self.trains(tf1.assign(other, self.weights)))
        soft = tf1.assign(other, 0.9 * other + 0.1 * self.weights)
        self.assertFalse(self.trains(soft))
        average = tf1.train.ExponentialMovingAverage(0.9).apply([self.weights])
        self.assertFalse(self.trains(average))

    def test_metrics_and_restored_values_do_not_train(self):
        _, update = tf1.metrics.mean(tf.matmul(self.x, self.weights))
        self.assertFalse(self.trains(update))
        saver = tf1.train.Saver()
        self.assertFalse(is_training_step(self.graph, [saver.saver_def.restore_op_name], []))

    def test_operations_behind_fetches_are_found_in_loops_too(self):
        [total] = tf.while_loop(lambda i, _: i < 3, lambda i, s: (i + 1, s + 2), [0, 0])[1:]
        behind = find_needed_operations(self.graph, [total.name])
        self.assertNotIn("x", behind)
        self.assertIn(total.op.name, behind)
        self.assertIn("x", find_needed_operations(self.graph, [self.loss.name]))


class FunctionStepTest(tf.test.TestCase):
    def setUp(self):
        super().setUp()
        self.weights = tf.Variable(np.ones([3, 2], np.float32))
        self.x = tf.ones([4, 3])

    def trains(self, function: Callable[..., Any]) -> bool:
        return is_training_function(tf.function(function).get_concrete_function(self.x).graph)

    def gradient(self, x: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum((x @ self.weights) ** 2)
        return tape.gradient(loss, self.weights)

    def test_gradient_tapes_train(self):
        self.assertTrue(self.trains(lambda x: self.weights.assign_sub(self.gradient(x))))
        optimizer = tf.keras.optimizers.Adam()
        optimizer.build([self.weights])
        self.assertTrue(
            self.trains(lambda x: optimizer.apply_gradients([(self.gradient(x), self.weights)]))
        )

    def test_updates_in_conditionals_train(self):
        count = tf.Variable(0, trainable=False)
        total = tf.Variable(tf.zeros([3, 2]), trainable=False)

        def accumulate(x: tf.Tensor) -> None:
            total.assign_add(self.gradient(x))
            if count % 2 == 1:
                self.weights.assign_sub(total)
                total.assign(tf.zeros([3, 2]))

        def nest_conditionals(x: tf.Tensor) -> None:
            gradient = self.gradient(x)
            if count > 1:
                if count > 2:
                    self.weights.assign_sub(gradient)
                count.assign_add(1)

        update = tf.function(lambda gradient: self.weights.assign_sub(gradient))

        def call_update(x: tf.Tensor) -> None:
            gradient = self.gradient(x)
            if count > 1:
                update(gradient)

        def one_of_three(x: tf.Tensor) -> tf.Tensor:
            gradient = self.gradient(x)
            update = [lambda: 0.0, lambda: self.weights.assign_sub(gradient)[0, 0], lambda: 1.0]
            return tf.switch_case(count.value(), update)

        def repeat_update(x: tf.Tensor) -> None:
            gradient = self.gradient(x)
            for _ in tf.range(3):
                self.weights.assign_sub(gradient)

        for step in (accumulate, nest_conditionals, call_update, one_of_three, repeat_update):
            self.assertTrue(self.trains(step), step.__name__)

    @unittest.skipIf(tf.keras.__version__ < "3", "Keras 2 updates by operations of optimizers")
    def test_optimizers_that_update_now_and_then_train(self):
        optimizers = tf.keras.optimizers
        for optimizer in (
            optimizers.LossScaleOptimizer(optimizers.Adam()),
            optimizers.SGD(0.1, gradient_accumulation_steps=2),
            optimizers.Adam(0.1, gradient_accumulation_steps=2),
        ):
            optimizer.build([self.weights])
            self.assertTrue(
                self.trains(lambda x, by=optimizer: by.apply([self.gradient(x)], [self.weights]))
            )

    def test_variables_that_are_arguments_are_trained(self):
        def step(image: tf.Variable, x: tf.Tensor) -> None:
            image.assign_sub(0.1 * image * tf.reduce_sum(x @ image))

        def copy(image: tf.Variable, x: tf.Tensor) -> None:
            image.assign(x[:3, :2])

        for function, trains in ((step, True), (copy, False)):
            function = tf.function(function)
            graph = function.get_concrete_function(self.weights, self.x).graph
            self.assertEqual(is_training_function(graph), trains)

    def test_functions_that_give_back_gradients_train(self):
        self.assertTrue(self.trains(self.gradient))
        places = tf.reshape(tf.range(6), [3, 2])
        self.assertTrue(self.trains(lambda x: tf.dynamic_stitch([places], [self.gradient(x)])))
        inner = tf.function(self.gradient)
        self.assertTrue(self.trains(lambda x: (1.0, [inner(x)])))
        self.assertFalse(self.trains(lambda x: tf.reduce_sum(self.gradient(x))))
        self.assertFalse(self.trains(lambda x: self.weights + x[0, 0]))

    def test_a_function_that_calls_one_that_trains_trains(self):
        inner = tf.function(lambda x: self.weights.assign_sub(self.gradient(x)))
        self.assertTrue(self.trains(lambda x: inner(x) + 1.0))

    def test_a_function_that_goes_through_a_data_set_trains(self):
        batches = tf.data.Dataset.from_tensors(self.x)

        def epoch(_: tf.Tensor) -> tf.Tensor:
            total = tf.constant(0.0)
            for x in batches:
                self.weights.assign_sub(self.gradient(x))
                total += 1.0
            return total

        self.assertTrue(self.trains(epoch))

    def test_predictions_counters_and_metrics_do_not_train(self):
        count = tf.Variable(0.0)
        total = tf.Variable(0.0, trainable=False)
        self.assertFalse(self.trains(lambda x: x @ self.weights))
        self.assertFalse(self.trains(lambda x: count.assign_add(1.0)))
        self.assertFalse(self.trains(lambda x: total.assign_add(tf.reduce_sum(x @ self.weights))))

    def test_conditionals_and_calls_without_training_do_not_train(self):
        count = tf.Variable(0, trainable=False)
        total = tf.Variable(0.0, trainable=False)
        average, seen = (tf.Variable(tf.ones([3, 2])) for _ in range(2))
        update = tf.function(lambda x: total.assign_add(tf.reduce_sum(x @ self.weights)))

        def metric(x: tf.Tensor) -> None:
            if count > 1:
                update(x)

        def initializer(x: tf.Tensor) -> tf.Tensor:
            if count == 0:
                self.weights.assign(tf.random.normal([3, 2]) @ tf.ones([2, 2]))
            return x @ self.weights

        def copy(x: tf.Tensor) -> tf.Tensor:
            if count % 10 == 0:
                average.assign(0.9 * average + 0.1 * self.weights)
            return x @ average

        def data(x: tf.Tensor) -> None:
            for _ in tf.range(2):
                seen.assign(x[:3, :2])

        for function in (update.python_function, metric, initializer, copy, data):
            self.assertFalse(self.trains(function), function.__name__)


if __name__ == "__main__":
    tf.test.main()
