"""Tests of advice on scripts that were written for TensorFlow 1 or Keras 2."""

from __future__ import annotations

import importlib
import os
import types
from unittest import mock

import keras
import tensorflow as tf
from absl.testing import absltest

from tf_placer.scripts.former_tensorflow import advise_on_former_tensorflow


def catch(action) -> Exception:
    try:
        action()
    except Exception as error:
        return error
    raise AssertionError("nothing was raised")


def import_name(module: str, name: str) -> None:
    exec(f"from {module} import {name}")


class FormerTensorFlowTest(absltest.TestCase):
    def advise(self, action) -> str | None:
        return advise_on_former_tensorflow(catch(action), "train.py")

    def test_names_of_tensorflow_1_are_in_compat_v1(self):
        for name, action in (
            ("tf.placeholder", lambda: tf.placeholder),
            ("tf.train.AdamOptimizer", lambda: tf.train.AdamOptimizer),
            ("tf.app", lambda: tf.app.flags),
            ("tf.Session", lambda: import_name("tensorflow", "Session")),
        ):
            advice = self.advise(action)
            self.assertRegex(advice, f"^'{name}' belongs to TensorFlow 1: write 'import tensorfl")
            self.assertIn("tf_upgrade_v2 --infile train.py", advice)

    def test_graphs_need_the_behavior_of_tensorflow_1(self):
        advice = self.advise(lambda: tf.compat.v1.placeholder(tf.float32))
        self.assertIn("tf.compat.v1.disable_v2_behavior()", advice)

    def test_names_without_a_successor_have_other_advice(self):
        for action in (
            lambda: tf.contrib,
            lambda: tf.compat.v1.contrib,
            lambda: importlib.import_module("tensorflow.contrib.layers"),
        ):
            self.assertRegex(self.advise(action), "^TensorFlow 2 has no 'tf.contrib.*: 'tf_upgrade")
        self.assertRegex(
            self.advise(lambda: importlib.import_module("tensorflow.examples.tutorials.mnist")),
            "tf.keras.datasets.mnist",
        )

    @absltest.skipIf(keras.__version__ < "3", "has the names")
    def test_names_of_keras_2_need_keras_2(self):
        def use_of_an_object():
            return keras.Sequential().predict_classes

        for action in (
            lambda: tf.compat.v1.layers.dense,
            lambda: tf.keras.backend.get_session,
            lambda: importlib.import_module("tensorflow.keras.layers.experimental"),
            lambda: importlib.import_module("keras.utils.np_utils"),
            use_of_an_object,
        ):
            with mock.patch.dict(os.environ):
                os.environ.pop("TF_USE_LEGACY_KERAS", None)
                self.assertRegex(self.advise(action), "^Keras 3 has no .* TF_USE_LEGACY_KERAS=1")
            with mock.patch.dict(os.environ, TF_USE_LEGACY_KERAS="1"):
                self.assertIsNone(self.advise(action))

    def test_other_errors_have_no_advice(self):
        class Model(keras.Model):
            pass

        for action in (
            lambda: tf.placeholders,
            lambda: tf.no.such.name,
            lambda: Model().no_such_name,
            lambda: types.ModuleType("tensorflows").placeholder,
            lambda: None.placeholder,
            lambda: importlib.import_module("no_such_module"),
            lambda: importlib.import_module("tensorflow.no_such_module"),
            lambda: 1 / 0,
        ):
            self.assertIsNone(self.advise(action))
        self.assertIsNone(advise_on_former_tensorflow(AttributeError("placeholder"), "train.py"))


if __name__ == "__main__":
    absltest.main()
