"""Tests of the bad input of `offload`; `emulated_gpu_test` trains a model."""

from __future__ import annotations

import dataclasses

import keras
import numpy as np
import tensorflow as tf
from absl.testing import absltest

import tf_placer
from graph_passes.errors import GraphError
from graph_passes.placement import Placement


class OffloadTest(absltest.TestCase):
    def test_bad_input_is_named(self):
        model = keras.Sequential([keras.Input([4]), keras.layers.Dense(1)])
        model.compile("sgd", "mse", jit_compile=False)
        batch = np.ones([8, 4], np.float32), np.ones([8, 1], np.float32)
        problem = tf_placer.profile(model, example_inputs=batch, machine="1xK80", verbose=False)
        first, *names = problem.operation_names
        renamed = dataclasses.replace(problem, operation_names=(f"other_{first}", *names))
        # Only the device of the placement is on this machine.
        on_cpu = tf_placer.find_machine("attached").devices[0].name
        placed = [
            Placement("", (on_cpu,), dict.fromkeys(each.operation_names, on_cpu))
            for each in (problem, renamed)
        ]
        for error, message, arguments, keywords in (
            (GraphError, "not Graph: the command `offload`", (tf.Graph(), problem), {}),
            (ValueError, "needs example_inputs", (model, problem), {}),
            (ValueError, "GPU:7", (model, problem), {"max_memory": {"GPU:7": "1GB"}}),
            (ValueError, "headroom", (model, problem), {"headroom": 2}),
            (ValueError, "has no device for", (model, problem, placed[1]), {}),
            (GraphError, "another step, with .*'other_", (model, renamed, placed[1]), {}),
            (GraphError, "GPU:0, which 'attached' does not have", (model, problem), {}),
        ):
            if "needs" not in message:
                keywords = {**keywords, "example_inputs": batch}
            with self.subTest(message), self.assertRaisesRegex(error, message):
                tf_placer.offload(*arguments, **keywords)

    def test_a_placement_that_fits_is_applied_as_it_is(self):
        model = keras.Sequential([keras.Input([4]), keras.layers.Dense(1)])
        model.compile("sgd", "mse", jit_compile=False)
        x, y = np.ones([8, 4], np.float32), np.ones([8, 1], np.float32)
        problem = tf_placer.profile(model, example_inputs=(x, y), machine="1xK80", verbose=False)
        on_cpu = tf_placer.find_machine("attached").devices[0].name
        placement = Placement("", (on_cpu,), dict.fromkeys(problem.operation_names, on_cpu))
        placed = tf_placer.offload(model, problem, placement, example_inputs=(x, y))
        self.assertIs(placed, model)
        losses = model.fit(x, y, batch_size=8, epochs=3, verbose=0).history["loss"]
        self.assertLess(losses[-1], losses[0])


if __name__ == "__main__":
    absltest.main()
