"""A SavedModel that is placed and then serves a request.

The model has two independent branches, so that two devices serve it faster than one. It is saved as
usual, placed without its code, and loaded where it serves. On a computer with GPUs run it with
`--served_on attached`; otherwise two worker processes are the devices:

    python -m examples.serve_saved_model

The same from the shell, for an existing SavedModel:

    python -m tf_placer optimize --input_graph saved --output_graph placed --machine local:2
"""

from __future__ import annotations

import os
import tempfile

import numpy as np
import tensorflow as tf
from absl import app, flags

import tf_placer

_DIRECTORY = flags.DEFINE_string("directory", None, "Directory for the SavedModels.")
_SERVED_ON = flags.DEFINE_string("served_on", "local:2", "Machine to place the model on.")
_SIZE = flags.DEFINE_integer("size", 1024, "Rows and columns of the weights.")
_DEPTH = flags.DEFINE_integer("depth", 6, "Layers of a branch.")
_MAX_SECS = flags.DEFINE_float("max_secs", 180.0, "Time limit of the search in seconds.")
_MAX_TRIALS = flags.DEFINE_integer("max_trials", 60, "Maximum number of placements to try.")


class TwoBranches(tf.Module):
    """Two chains of layers over the same request, and their sum."""

    def __init__(self, size: int, depth: int) -> None:
        super().__init__()
        random = np.random.default_rng(0)
        self.branches = [
            [
                tf.Variable(random.normal(0, size**-0.5, [size, size]).astype(np.float32))
                for _ in range(depth)
            ]
            for _ in range(2)
        ]

    @tf.function
    def branch(self, x: tf.Tensor, layers: list[tf.Variable]) -> tf.Tensor:
        """Runs a chain of layers."""
        for weights in layers:
            x = tf.tanh(x @ weights)
        return x

    @tf.function
    def score(self, x: tf.Tensor) -> dict[str, tf.Tensor]:
        """Serves a request: float32 [rows, size]."""
        left, right = (self.branch(x, layers) for layers in self.branches)
        return {"score": tf.reduce_mean(left + right, axis=1)}


def main(_: list[str]) -> None:
    """Saves, places, loads and serves."""
    directory = _DIRECTORY.value or tempfile.mkdtemp()
    saved, placed = os.path.join(directory, "saved"), os.path.join(directory, "placed")
    size = _SIZE.value
    model = TwoBranches(size, _DEPTH.value)
    signature = model.score.get_concrete_function(tf.TensorSpec([None, size], name="x"))
    tf.saved_model.save(model, saved, signatures=signature)

    request = np.random.default_rng(1).normal(size=[size, size]).astype(np.float32)
    result = tf_placer.optimize_saved_model(
        saved,
        example_inputs={"x": request},
        machine=_SERVED_ON.value,
        max_secs=_MAX_SECS.value,
        max_trials=_MAX_TRIALS.value,
    )
    print(result.table(), result.reason, sep="\n")
    result.save(placed)

    # This process serves with `result.function`; a server would load the directory.
    answer = result.function(x=tf.constant(request))["score"]
    expected = model.score(tf.constant(request))["score"]
    difference = float(tf.reduce_max(tf.abs(answer - expected)))
    print(f"served {len(answer)} scores from {placed}; at most {difference:.1g} from the original")


if __name__ == "__main__":
    app.run(main)
