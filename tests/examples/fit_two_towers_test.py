"""Test of the Keras example with and without its added lines, on two worker processes."""

from __future__ import annotations

import contextlib
import io

import keras
import tensorflow as tf
from absl.testing import flagsaver

from examples import fit_two_towers

_SMALL = {"rows": 64, "features": 8, "units": 8, "batch": 16, "max_trials": 3, "max_secs": 9.0}


class FitTwoTowersTest(tf.test.TestCase):
    def fit(self, weights: str, *, place: bool) -> str:
        """Runs the script; returns what it prints."""
        keras.backend.clear_session()
        output = io.StringIO()
        settings = flagsaver.flagsaver(**_SMALL, weights=weights, place=place)
        with settings, contextlib.redirect_stdout(output):
            fit_two_towers.main([])
        return output.getvalue()

    def test_a_placed_model_learns_the_same_weights(self):
        directory = self.create_tempdir().full_path
        plain = self.fit(f"{directory}/plain.weights.h5", place=False)
        placed = self.fit(f"{directory}/placed.weights.h5", place=True)
        # The verdict depends on the machine.
        self.assertRegex(placed, "the original|no placement ran")
        self.assertEqual(placed.splitlines()[-1], plain.splitlines()[-1])
        self.assertStartsWith(plain.splitlines()[-1], "losses: ")
        values = []
        for name in ("plain", "placed"):
            model = fit_two_towers.two_towers(_SMALL["features"], _SMALL["units"])
            model.load_weights(f"{directory}/{name}.weights.h5")
            values.append(model.get_weights())
        for ours, theirs in zip(*values, strict=True):
            self.assertAllClose(ours, theirs)


if __name__ == "__main__":
    tf.test.main()
