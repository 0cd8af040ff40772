"""Tests of Keras models with jit_compile="auto" beside a GPU."""

from __future__ import annotations

import unittest
from unittest import mock

import tensorflow as tf

from tf_placer.scripts.keras_without_xla import disable_auto_xla


class ChooseNoXlaTest(tf.test.TestCase):
    def compile_model(self, **settings) -> tf.keras.Model:
        model = tf.keras.Sequential([tf.keras.Input((2,)), tf.keras.layers.Dense(1)])
        gpu = tf.config.PhysicalDevice("/physical_device:GPU:0", "GPU")
        with mock.patch.object(tf.config, "list_physical_devices", lambda *_: [gpu]):
            model.compile("sgd", "mse", **settings)
        return model

    @unittest.skipUnless(hasattr(tf.keras.Model, "_resolve_auto_jit_compile"), "Keras 2")
    def test_models_are_compiled_by_xla_only_where_they_ask_for_it(self):
        self.assertTrue(self.compile_model().jit_compile)
        resolve = tf.keras.Model._resolve_auto_jit_compile
        with mock.patch.object(tf.keras.Model, "_resolve_auto_jit_compile", resolve):
            disable_auto_xla(tf.keras)
            self.assertFalse(self.compile_model().jit_compile)
            self.assertTrue(self.compile_model(jit_compile=True).jit_compile)

    def test_keras_without_such_a_choice_stays_as_it_is(self):
        keras = mock.Mock(Model=type("Model", (), {}))
        disable_auto_xla(keras)
        self.assertFalse(hasattr(keras.Model, "_resolve_auto_jit_compile"))


if __name__ == "__main__":
    tf.test.main()
