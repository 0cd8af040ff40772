"""Tests of functions that run on servers that this process started."""

from __future__ import annotations

import gc
import unittest

import tensorflow as tf
from tensorflow.python.eager import context

from tf_placer.functions.connection import connect, full_name
from tf_placer.machines.lookup import find_machine
from tf_placer.machines.machine import MachineError

_NUM_CHAINS, _LENGTH, _SIZE = 6, 30, 400


class ConnectionTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.machine = find_machine("local:1")
        cls.traced = [tf.function(tf.sin).get_concrete_function(tf.TensorSpec([], tf.float32))]
        connect(cls.machine)

    def test_what_is_ready_to_be_sent_does_not_wait_for_the_end_of_a_chain(self):
        @tf.function
        def step(x):
            sums = []
            for number in range(_NUM_CHAINS):  # None is like another.
                with tf.device(self.machine.devices[0].name):
                    chain, ready = x[number:], tf.tanh(x[: number + 1])
                    for _ in range(_LENGTH):
                        chain = tf.tanh(chain @ x)
                    sums.append(tf.reduce_sum(chain))
                with tf.device(full_name("/device:CPU:0")):
                    sums.append(tf.reduce_sum(ready))
                    with tf.control_dependencies(sums[-1:]):
                        last_arrival = tf.timestamp()
            return last_arrival, sums

        x = tf.random.stateless_uniform([_SIZE, _SIZE], [1, 2])
        step(x)  # The first call sets things up.
        shares = []
        for _ in range(5):  # What else runs here may hold anything up now and then.
            start = float(tf.timestamp())
            last_arrival = float(step(x)[0])
            shares.append((last_arrival - start) / (float(tf.timestamp()) - start))
        self.assertLess(min(shares), 0.5)

    def test_servers_are_not_told_about_functions_that_they_never_had(self):
        name = self.traced.pop().name
        gc.collect()
        context.async_wait()  # Raises what servers answered.
        self.assertTrue(context.context().has_function(name))

    def test_a_process_is_connected_to_one_cluster(self):
        connect(self.machine)
        with self.assertRaisesRegex(MachineError, "connected to another cluster: .* 'local:2'"):
            connect(find_machine("local:2"))


if __name__ == "__main__":
    unittest.main()
