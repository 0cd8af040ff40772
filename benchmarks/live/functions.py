"""What placing brings to calls of users: `fit` of Keras models and a loop around a tf.function.

Each workload is made twice in one process that is connected to two worker processes. One is placed
by `tf_placer.optimize`; of the other everything is on the first worker. Both do the same calls in
turns, in random order. The table shows the ratio of their times, with its 95 % interval, and the
largest difference between the losses of their steps.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable, Mapping
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np
import tensorflow as tf

import tf_placer
from benchmarks.harness.provenance import provenance
from benchmarks.harness.statistics import ratio_and_interval
from graph_passes.placement import Placement
from tf_placer.functions.placed_step import PlacedStep
from tf_placer.functions.traced_step import trace_step
from tf_placer.text.table import table

__all__ = ["WORKLOADS", "main"]

# Enough that the start of an epoch does not count.
_STEPS = 16
_BATCH = 512
_SIZE = 512


class _Fit:
    """`fit` of a Keras model."""

    def __init__(self, make: Callable[[Any], Any], x: Any, y: np.ndarray, batch: int) -> None:
        import keras

        self._keras = keras
        # Names are counted from here on, and weights drawn.
        keras.backend.clear_session()
        keras.utils.set_random_seed(1)
        self.target = make(keras)
        self._x, self._y, self._batch = x, y, batch
        self.example = (tf.nest.map_structure(lambda a: a[:batch], x), y[:batch])

    def place(self, step: Any) -> None:
        """Puts a placement into the model."""
        step.apply(self.target)

    def run(self) -> list[float]:
        """Trains some steps; returns their losses."""
        losses: list[float] = []
        keep = self._keras.callbacks.LambdaCallback(
            on_train_batch_end=lambda batch, logs: losses.append(float(logs["loss"]))
        )
        self.target.fit(
            self._x,
            self._y,
            batch_size=self._batch,
            shuffle=False,
            verbose=0,
            callbacks=[keep],
        )
        return losses


def _towers(keras: Any) -> Any:
    def tower(x: Any, name: str) -> Any:
        for number in range(4):
            x = keras.layers.Dense(2 * _SIZE, activation="relu", name=f"{name}_{number}")(x)
        return x

    inputs = [keras.Input((_SIZE,)) for _ in range(2)]
    both = keras.layers.concatenate([tower(inputs[0], "left"), tower(inputs[1], "right")])
    model = keras.Model(inputs, keras.layers.Dense(4)(both))
    return _compiled(keras, model, keras.optimizers.SGD(0.01))


def _bidirectional(keras: Any) -> Any:
    x = keras.Input((20, 256))
    y = keras.layers.Bidirectional(keras.layers.LSTM(256, return_sequences=True))(x)
    y = keras.layers.Bidirectional(keras.layers.LSTM(256))(y)
    return _compiled(keras, keras.Model(x, keras.layers.Dense(4)(y)), keras.optimizers.SGD(0.01))


def _compiled(keras: Any, model: Any, optimizer: Any) -> Any:
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer, loss, jit_compile=False)
    return model


def _fit_towers() -> _Fit:
    random = np.random.default_rng(0)
    x = tuple(random.random((_STEPS * _BATCH, _SIZE), np.float32) for _ in range(2))
    return _Fit(_towers, x, random.integers(0, 4, _STEPS * _BATCH), _BATCH)


def _fit_bidirectional() -> _Fit:
    random = np.random.default_rng(0)
    x = random.random((_STEPS * 32, 20, 256), np.float32)
    return _Fit(_bidirectional, x, random.integers(0, 4, _STEPS * 32), 32)


class _Loop:
    """A training loop around a tf.function with two branches."""

    def __init__(self) -> None:
        random = np.random.default_rng(0)
        weights = [
            tf.Variable(random.normal(size=(700, 700)).astype(np.float32) * 0.03) for _ in range(2)
        ]
        self.example = random.normal(size=(700, 700)).astype(np.float32)

        @tf.function
        def train(x: tf.Tensor) -> tf.Tensor:
            with tf.GradientTape() as tape:
                left = right = x
                for _ in range(6):
                    left, right = tf.tanh(left @ weights[0]), tf.tanh(right @ weights[1])
                loss = tf.reduce_mean(left**2) + tf.reduce_mean(right**2)
            for variable, gradient in zip(weights, tape.gradient(loss, weights), strict=True):
                variable.assign_sub(0.1 * gradient)
            return loss

        self.target: Any = train
        self._function = train

    def place(self, step: Any) -> None:
        """Takes the placed function."""
        self._function = step.function

    def run(self) -> list[float]:
        """Trains some steps; returns their losses."""
        x = tf.constant(self.example)
        return [float(self._function(x)) for _ in range(_STEPS)]


#: What is placed and called, by name.
WORKLOADS: Mapping[str, Callable[[], Any]] = {
    "fit of two towers": _fit_towers,
    "fit of a bidirectional LSTM": _fit_bidirectional,
    "tf.function with two branches": _Loop,
}


def _compare(name: str, args: argparse.Namespace) -> list[str]:
    machine = tf_placer.find_machine("local:2")
    ours, theirs = WORKLOADS[name](), WORKLOADS[name]()
    result = tf_placer.optimize(
        ours.target, example=ours.example, machine=machine, max_secs=args.max_secs, seed=args.seed
    )
    if not result.changed:
        return [name, "unchanged", "", "", ""]
    ours.place(result.step)
    # Without any device of its own, all is on the first worker.
    nothing = Placement("", tuple(device.name for device in machine.devices), {})
    theirs.place(PlacedStep(trace_step(theirs.target, theirs.example), machine, nothing))
    difference = 0.0
    secs: dict[bool, list[float]] = {True: [], False: []}
    random = np.random.default_rng(args.seed)
    for number in range(args.pairs + 1):
        losses = {}
        for is_placed in random.permutation([True, False]).tolist():
            start = time.perf_counter()
            losses[is_placed] = (ours if is_placed else theirs).run()
            if number:  # The first call traces.
                secs[is_placed].append((time.perf_counter() - start) / _STEPS)
        difference = max(difference, float(np.abs(np.subtract(losses[True], losses[False])).max()))
    ratio, (low, high) = ratio_and_interval(secs[False], secs[True])
    return [
        name,
        f"{result.speedup:.3f}x",
        f"{ratio:.3f}x",
        f"{low:.3f} to {high:.3f}",
        f"{difference:.1e}",
    ]


def main() -> None:
    """Places and compares the workloads, and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("--workloads", nargs="+", choices=list(WORKLOADS), default=list(WORKLOADS))
    parser.add_argument("--max_secs", type=float, default=180.0, help="of each search")
    parser.add_argument("--pairs", type=int, default=20, help="calls of each, in turns")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    rows = [_compare(name, args) for name in args.workloads]
    headers = ["call", "as confirmed", "speed-up of the call", "95 % interval", "losses differ by"]
    print(table(headers, rows, "lrrrr"))
    made_by = provenance()
    versions = ", ".join(f"{name} {version}" for name, version in made_by["versions"].items())
    print(f"{made_by['command']}: commit {made_by['commit']}, {versions}, {made_by['processor']}")


if __name__ == "__main__":
    main()
