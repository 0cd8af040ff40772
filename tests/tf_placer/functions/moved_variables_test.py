from __future__ import annotations

import tensorflow as tf

from tests.tf_placer.functions.two_devices import DEVICES
from tf_placer.functions.moved_variables import move_variables


class MovedVariablesTest(tf.test.TestCase):
    def test_moving_keeps_values_and_references(self):
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

    def test_all_objects_that_are_the_variable_move(self):
        with tf.device(DEVICES[0]):
            variable = tf.Variable(1.0)
        assigned = variable.assign(2.0)
        self.assertIsNot(assigned, variable)
        move_variables({variable.ref(): DEVICES[1]})
        variable.assign(3.0)
        self.assertEqual((assigned.numpy(), assigned.device), (3.0, DEVICES[1]))
        assigned.assign_add(1.0)
        self.assertAllEqual(variable, 4.0)
        move_variables({assigned.ref(): DEVICES[0]})
        self.assertEqual(variable.device, DEVICES[0])

    def test_functions_that_were_traced_before_are_saved_with_the_variable(self):
        module = tf.Module()
        with tf.device(DEVICES[0]):
            module.weight = tf.Variable(2.0)
        module.scaled = tf.function(lambda x: x * module.weight, [tf.TensorSpec([])])
        concrete = module.scaled.get_concrete_function()
        move_variables({module.weight.ref(): DEVICES[1]})
        module.weight.assign(3.0)
        path = self.create_tempdir().full_path
        tf.saved_model.save(module, path, signatures=concrete)
        loaded = tf.saved_model.load(path)
        self.assertAllEqual(loaded.scaled(2.0), 6.0)
        self.assertAllEqual(loaded.signatures["serving_default"](tf.constant(2.0))["output_0"], 6.0)

    def test_ignores_variable_creator_scopes(self):
        with tf.device(DEVICES[0]):
            variable = tf.Variable(1.0)
        strategy = tf.distribute.MirroredStrategy(DEVICES)
        with strategy.scope():
            move_variables({variable.ref(): DEVICES[1]})
        self.assertEqual((variable.numpy(), variable.device), (1.0, DEVICES[1]))

    def test_keeps_unknown_shapes(self):
        with tf.device(DEVICES[0]):
            variable = tf.Variable([1.0], shape=[None])
        move_variables({variable.ref(): DEVICES[1]})
        variable.assign([1.0, 2.0, 3.0])
        self.assertAllEqual(variable, [1.0, 2.0, 3.0])

    def test_a_value_that_does_not_fit_moves_no_variable(self):
        with tf.device(DEVICES[0]):
            first, second = tf.Variable(1.0), tf.Variable(2.0)
        nowhere = DEVICES[1].replace("CPU:1", "CPU:7")
        with self.assertRaises((tf.errors.OpError, ValueError)):
            move_variables({first.ref(): DEVICES[1], second.ref(): nowhere})
        self.assertEqual((first.device, second.device), (DEVICES[0], DEVICES[0]))
        self.assertEqual((first.numpy(), second.numpy()), (1.0, 2.0))


if __name__ == "__main__":
    tf.test.main()
