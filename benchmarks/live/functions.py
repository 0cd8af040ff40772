"""The speed-up of user code by placing: `fit` of Keras models, and a loop of a tf.function.

Each workload is made twice in one process that is connected to two worker processes. One is placed
by `tf_placer.optimize`; of the other everything is on the first worker. Both do the same calls in
turns, in random order. The table shows the ratio of their times, with its 95 % interval, and the
largest difference between the losses of their steps.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np
import tensorflow as tf

import tf_placer
from benchmarks.harness.statistics import ratio_and_interval
from benchmarks.harness.table_file import write_table
from graph_passes.placement import Placement
from tf_placer.functions.placed_step import PlacedStep
from tf_placer.functions.traced_call import trace_call
from tf_placer.text.table import table

__all__ = ["WORKLOADS", "main"]

# Enough that the start of an epoch does not count.
_STEPS = 16


class _Fit:
    """`fit` of a Keras model that classifies random rows."""

    def __init__(
        self, layers: Callable[[Any, Any], Any], *shapes: tuple[int, ...], batch: int
    ) -> None:
        """Makes the model, and as many rows as some steps read.

        Args:
            layers: makes features, from Keras and the inputs.
            shapes: of a row of each input.
            batch: rows per step.
        """
        import keras

        self._keras, self._batch = keras, batch
        # Names are counted from here on, and weights drawn.
        keras.backend.clear_session()
        keras.utils.set_random_seed(1)
        inputs = [keras.Input(shape) for shape in shapes]
        features = layers(keras, inputs)
        self.target: Any = keras.Model(_one_or_all(inputs), keras.layers.Dense(4)(features))
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        self.target.compile(keras.optimizers.SGD(0.01), loss, jit_compile=False)
        random, rows = np.random.default_rng(0), _STEPS * batch
        arrays = tuple(random.random((rows, *shape), np.float32) for shape in shapes)
        self._x, self._y = _one_or_all(arrays), random.integers(0, 4, rows)
        self.example_inputs = (tf.nest.map_structure(lambda a: a[:batch], self._x), self._y[:batch])

    def place(self, step: Any) -> None:
        """Puts a placement into the model."""
        step.apply(self.target)

    def run(self) -> list[float]:
        """Trains some steps; returns their losses."""
        losses: list[float] = []
        keep = self._keras.callbacks.LambdaCallback(
            on_train_batch_end=lambda batch, logs: losses.append(float(logs["loss"]))
        )
        settings = {"batch_size": self._batch, "shuffle": False, "verbose": 0}
        self.target.fit(self._x, self._y, callbacks=[keep], **settings)
        return losses


def _one_or_all(values: Sequence[Any]) -> Any:
    return values[0] if len(values) == 1 else values


def _two_towers(keras: Any, inputs: Any) -> Any:
    towers = []
    for side, x in zip(("left", "right"), inputs, strict=True):
        for number in range(4):
            x = keras.layers.Dense(1024, activation="relu", name=f"{side}_{number}")(x)
        towers.append(x)
    return keras.layers.concatenate(towers)


def _bidirectional(keras: Any, inputs: Any) -> Any:
    x = keras.layers.Bidirectional(keras.layers.LSTM(256, return_sequences=True))(inputs[0])
    return keras.layers.Bidirectional(keras.layers.LSTM(256))(x)


class _Loop:
    """A training loop around a tf.function with two branches."""

    def __init__(self) -> None:
        random = np.random.default_rng(0)
        weights = [
            tf.Variable(random.normal(size=(700, 700)).astype(np.float32) * 0.03) for _ in range(2)
        ]
        self.example_inputs = random.normal(size=(700, 700)).astype(np.float32)

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
        x = tf.constant(self.example_inputs)
        return [float(self._function(x)) for _ in range(_STEPS)]


#: The workloads by name.
WORKLOADS: Mapping[str, Callable[[], Any]] = {
    "fit of two towers": lambda: _Fit(_two_towers, (512,), (512,), batch=512),
    "fit of a bidirectional LSTM": lambda: _Fit(_bidirectional, (20, 256), batch=32),
    "tf.function with two branches": _Loop,
}


def _compare(name: str, max_secs: float, pairs: int) -> list[str]:
    """Places a workload; returns the line of the table."""
    machine = tf_placer.find_machine("local:2")
    ours, theirs = WORKLOADS[name](), WORKLOADS[name]()
    place = tf_placer.optimize_model if name.startswith("fit") else tf_placer.optimize_function
    result = place(ours.target, ours.example_inputs, machine=machine, max_secs=max_secs, seed=0)
    if not result.changed:
        return [name, "unchanged", "", "", ""]
    ours.place(result.step)
    # Without any device of its own, all is on the first worker.
    nothing = Placement("", tuple(device.name for device in machine.devices), {})
    theirs.place(PlacedStep(trace_call(theirs.target, theirs.example_inputs), machine, nothing))
    secs, difference = _call_in_turns(ours, theirs, pairs)
    ratio, (low, high) = ratio_and_interval(secs[False], secs[True])
    return [
        name,
        f"{result.speedup:.3f}x",
        f"{ratio:.3f}x",
        f"{low:.3f} to {high:.3f}",
        f"{difference:.1e}",
    ]


def _call_in_turns(ours: Any, theirs: Any, pairs: int) -> tuple[dict[bool, list[float]], float]:
    """Does the calls.

    Returns:
        Seconds of each call of what was placed (True) and of the other (False), and the largest
        difference between the losses of a step.
    """
    difference = 0.0
    secs: dict[bool, list[float]] = {True: [], False: []}
    random = np.random.default_rng(0)
    for number in range(pairs + 1):
        losses = {}
        for is_placed in random.permutation([True, False]).tolist():
            start = time.perf_counter()
            losses[is_placed] = (ours if is_placed else theirs).run()
            if number:  # The first call traces.
                secs[is_placed].append(time.perf_counter() - start)
        difference = max(difference, float(np.abs(np.subtract(losses[True], losses[False])).max()))
    return secs, difference


def main() -> None:
    """Places and compares the workloads, and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("--workloads", nargs="+", choices=list(WORKLOADS), default=list(WORKLOADS))
    parser.add_argument("--max_secs", type=float, default=180.0, help="of each search")
    parser.add_argument("--pairs", type=int, default=20, help="calls of each, in turns")
    args = parser.parse_args()
    rows = [_compare(name, args.max_secs, args.pairs) for name in args.workloads]
    headers = ["call", "as confirmed", "speed-up of the call", "95 % interval", "losses differ by"]
    write_table(table(headers, rows, "lrrrr"))


if __name__ == "__main__":
    main()
