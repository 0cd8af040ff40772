"""Test of the example that serves a placed SavedModel, on two worker processes."""

from __future__ import annotations

import contextlib
import io
import os

import numpy as np
import tensorflow as tf
from absl.testing import flagsaver

from examples import serve_saved_model


class ServeSavedModelTest(tf.test.TestCase):
    def test_the_placed_model_serves_the_same_values(self):
        directory = self.create_tempdir().full_path
        output = io.StringIO()
        settings = {"directory": directory, "size": 32, "max_trials": 3, "max_secs": 9.0}
        with flagsaver.flagsaver(**settings), contextlib.redirect_stdout(output):
            serve_saved_model.main([])
        # The verdict depends on the machine.
        self.assertRegex(output.getvalue(), "the original|no placement ran")
        self.assertIn("served 32 scores", output.getvalue())
        request = np.ones([2, 32], np.float32)
        answers = [
            tf.saved_model.load(os.path.join(directory, name)).signatures["serving_default"]
            for name in ("saved", "placed")
        ]
        first, second = (answer(x=tf.constant(request))["score"] for answer in answers)
        self.assertAllClose(first, second)


if __name__ == "__main__":
    tf.test.main()
