from __future__ import annotations

import tensorflow as tf

from tests.tf_placer.functions.two_devices import DEVICES
from tf_placer.functions.moved_variables import move_variables


class MovedVariablesTest(tf.test.TestCase):
    def test_values_stay_and_so_does_who_holds_them(self):
        with tf.device(DEVICES[0]):
            variable = tf.Variable([1.0, 2.0], name="weights")
        checkpoint = tf.train.Checkpoint(weights=variable)
        self.assertEqual(move_variables({variable.ref(): DEVICES[1]}), 1)
        self.assertEqual(variable.device, DEVICES[1])
        self.assertEqual(variable.name, "weights:0")
        self.assertAllEqual(variable, [1.0, 2.0])
        self.assertIs(checkpoint.weights, variable)
        variable.assign_add([1.0, 1.0])
        self.assertAllEqual(checkpoint.weights, [2.0, 3.0])
        self.assertEqual(move_variables({variable.ref(): DEVICES[1]}), 0)

    def test_functions_that_were_traced_before_see_the_variable(self):
        with tf.device(DEVICES[0]):
            variable = tf.Variable(1.0)

        @tf.function
        def read():
            return variable * 1.0

        @tf.function
        def add(x):
            variable.assign_add(x)
            return read()

        add(tf.constant(1.0))
        move_variables({variable.ref(): DEVICES[1]})
        self.assertEqual(add(tf.constant(5.0)).numpy(), 7.0)
        self.assertEqual(variable.numpy(), 7.0)
        variable.assign(3.0)
        self.assertEqual(read().numpy(), 3.0)

    def test_it_may_have_any_shape_still(self):
        with tf.device(DEVICES[0]):
            variable = tf.Variable([1.0], shape=[None])
        move_variables({variable.ref(): DEVICES[1]})
        variable.assign([1.0, 2.0, 3.0])
        self.assertAllEqual(variable, [1.0, 2.0, 3.0])

    def test_what_does_not_fit_changes_nothing(self):
        with tf.device(DEVICES[0]):
            first, second = tf.Variable(1.0), tf.Variable(2.0)
        nowhere = DEVICES[1].replace("CPU:1", "CPU:7")
        with self.assertRaises((tf.errors.OpError, ValueError)):
            move_variables({first.ref(): DEVICES[1], second.ref(): nowhere})
        self.assertEqual((first.device, second.device), (DEVICES[0], DEVICES[0]))
        self.assertEqual((first.numpy(), second.numpy()), (1.0, 2.0))


if __name__ == "__main__":
    tf.test.main()
