"""A custom training loop around a `tf.function` with a `GradientTape`.

The model reads two views of the same data, and its two halves learn side by side. The added line is
marked. On a computer with GPUs run it with `--trained_on attached`; otherwise two
worker processes are the devices:

    python -m examples.custom_training_loop

Checkpoints of runs with and without the line are interchangeable.
"""

from __future__ import annotations

import numpy as np
import tensorflow as tf
from absl import app, flags

import tf_placer

_TRAINED_ON = flags.DEFINE_string("trained_on", "local:2", "Machine to place the step on.")
_PLACE = flags.DEFINE_boolean("place", True, "Whether to look for a faster placement first.")
_DIRECTORY = flags.DEFINE_string("directory", None, "Directory of checkpoints.")
_STEPS = flags.DEFINE_integer("steps", 50, "Step to stop at.")
_SIZE = flags.DEFINE_integer("size", 512, "Rows and columns of the weights.")
_DEPTH = flags.DEFINE_integer("depth", 6, "Layers of a half.")
_BATCH = flags.DEFINE_integer("batch", 512, "Rows per step.")
_MAX_SECS = flags.DEFINE_float("max_secs", 180.0, "Time limit of the search in seconds.")
_MAX_TRIALS = flags.DEFINE_integer("max_trials", 60, "Maximum number of placements to try.")

_RATE, _MOMENTUM = 0.05, 0.9


class TwoHalves(tf.Module):
    """Two chains of layers, each with the momentum of its weights."""

    def __init__(self, size: int, depth: int) -> None:
        super().__init__()
        random = np.random.default_rng(1)
        shape = [2, depth, size, size]
        values = random.normal(0, size**-0.5, shape).astype(np.float32)
        self.layers = [[tf.Variable(value) for value in half] for half in values]
        self.speeds = [
            [tf.Variable(tf.zeros_like(weights), trainable=False) for weights in half]
            for half in self.layers
        ]

    @tf.function
    def train(self, views: tuple[tf.Tensor, tf.Tensor], wanted: tf.Tensor) -> tf.Tensor:
        """Trains one step; returns the loss.

        Args:
            views: float32 [rows, size] each.
            wanted: float32 [rows], the target of the difference of the halves.
        """
        weights = tf.nest.flatten(self.layers)
        with tf.GradientTape() as tape:
            means = []
            for x, half in zip(views, self.layers, strict=True):
                for each in half:
                    x = tf.nn.relu(x @ each)
                means.append(tf.reduce_mean(x, axis=1))
            loss = tf.reduce_mean((means[0] - means[1] - wanted) ** 2)
        gradients = tape.gradient(loss, weights)
        speeds = tf.nest.flatten(self.speeds)
        for each, speed, gradient in zip(weights, speeds, gradients, strict=True):
            speed.assign(_MOMENTUM * speed + gradient)
            each.assign_sub(_RATE * speed)
        return loss


def _batches(size: int, first: int) -> tf.data.Dataset:
    """Makes the batches from a step on."""

    def batch(number: tf.Tensor) -> tuple[tuple[tf.Tensor, tf.Tensor], tf.Tensor]:
        shape = [2, _BATCH.value, size]
        views = tf.random.stateless_normal(shape, tf.stack([number, 1]))
        return (views[0], views[1]), tf.reduce_mean(views[0], axis=1)

    return tf.data.Dataset.range(first, _STEPS.value).map(batch).prefetch(1)


def main(_: list[str]) -> None:
    """Places and trains."""
    model = TwoHalves(_SIZE.value, _DEPTH.value)
    step = tf.Variable(0, dtype=tf.int64)
    checkpoint = tf.train.Checkpoint(model=model, step=step)
    manager = None
    if _DIRECTORY.value:
        manager = tf.train.CheckpointManager(checkpoint, _DIRECTORY.value, max_to_keep=1)
        manager.restore_or_initialize()

    train = model.train
    if _PLACE.value:
        # The added line:
        result = tf_placer.optimize_function(
            train,
            next(iter(_batches(_SIZE.value, 0))),
            machine=_TRAINED_ON.value,
            max_secs=_MAX_SECS.value,
            max_trials=_MAX_TRIALS.value,
        )
        train = result.function
        print(result.table(), result.reason, sep="\n")
    for views, wanted in _batches(_SIZE.value, int(step)):
        loss = train(views, wanted)
        step.assign_add(1)
        if int(step) % 10 == 0:
            print(f"step {int(step)}: loss {float(loss):.6f}")
    if manager is not None:
        manager.save()


if __name__ == "__main__":
    app.run(main)
