from __future__ import annotations

import numpy as np
import tensorflow as tf

from graph_passes.errors import GraphError
from graph_passes.placement import Placement
from tests.tf_placer.functions.two_devices import DEVICES, MACHINE
from tf_placer.functions.data_sets import check_before_connection, check_before_move
from tf_placer.functions.placed_step import PlacedStep
from tf_placer.functions.traced_call import trace_call
from tf_placer.machines.machine import MachineError

X = np.ones(2, np.float32)
NUMBERS = tf.data.Dataset.range(3)


class DataSetsTest(tf.test.TestCase):
    def setUp(self):
        super().setUp()
        with tf.device(DEVICES[0]):
            self.weight = tf.Variable(1.0, name="weight")
            self.other = tf.Variable(2.0, name="other")

    def scale(self, number: tf.Tensor) -> tf.Tensor:
        return tf.cast(number, tf.float32) * self.weight

    def place(self, device: str) -> PlacedStep:
        function = tf.function(lambda x: self.weight.assign_add(x[0]), autograph=False)
        step = trace_call(function, X)
        assignment = dict.fromkeys(step.workload.op_graph.names, device)
        return PlacedStep(step, MACHINE, Placement("", DEVICES, assignment))

    def test_refuses_steps_whose_variables_a_data_set_uses(self):
        def positive(number):
            del number
            return NUMBERS.filter(lambda n: self.weight > 0.0)

        step = self.place(DEVICES[1])
        used = NUMBERS.map(self.scale).batch(2)
        with self.assertRaisesRegex(GraphError, "uses the variable 'weight:0' of the step"):
            step.check()
        used = iter(NUMBERS.flat_map(positive))
        with self.assertRaisesRegex(GraphError, "uses the variable 'weight:0' of the step"):
            self.assertIsNone(step.function)
        self.assertEqual(self.weight.device, DEVICES[0])
        self.assertIsNotNone(self.place(DEVICES[0]).function, "the variable does not move")
        del used

    def test_accepts_later_and_deleted_data_sets(self):
        gone = [iter(NUMBERS.map(self.scale))]
        gone.append(gone)  # It is there until garbage is collected.
        del gone
        others = NUMBERS.map(lambda n: tf.cast(n, tf.float32) * self.other)
        step = self.place(DEVICES[1])
        step.check()
        step.function(X)
        scaled = NUMBERS.map(self.scale)
        step.function(X)
        self.assertAllEqual([float(each) for each in scaled], [0.0, 3.0, 6.0])
        self.assertAllEqual([float(each) for each in others], [0.0, 2.0, 4.0])

    def test_refuses_to_connect_if_a_data_set_assigns(self):
        check_before_connection()

        def count(number):
            if number > 0:
                self.other.assign(self.other + 1.0)
            return self.other.read_value()

        counted = NUMBERS.map(count)
        with self.assertRaisesRegex(MachineError, "assigns to the variable 'other:0', which"):
            check_before_connection()
        check_before_move([self.weight])
        del counted
        read = NUMBERS.map(lambda n: self.other + 1.0)
        with self.assertLogs(level="WARNING") as logs:
            check_before_connection()
        self.assertIn("a data set reads the variable 'other:0'", logs.output[0])
        del read


if __name__ == "__main__":
    tf.test.main()
