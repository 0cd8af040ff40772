"""A Keras model of two towers, placed before `fit`.

It recommends items to users: one tower reads users, the other one items, and neither needs the
other before both end. So two devices train it faster than one. The two added lines are marked. On a
computer with GPUs run it with `--trained_on attached`; otherwise two worker processes are the
devices:

    python -m examples.fit_two_towers

Weights and checkpoints are compatible with those of the model without the lines.
"""

from __future__ import annotations

import keras
import numpy as np
from absl import app, flags

import tf_placer

_TRAINED_ON = flags.DEFINE_string("trained_on", "local:2", "Machine to place the model on.")
_PLACE = flags.DEFINE_boolean("place", True, "Whether to look for a faster placement first.")
_WEIGHTS = flags.DEFINE_string("weights", None, "File for the weights (*.weights.h5).")
_ROWS = flags.DEFINE_integer("rows", 8192, "Pairs of a user and an item to learn from.")
_FEATURES = flags.DEFINE_integer("features", 256, "Features of a user, and of an item.")
_UNITS = flags.DEFINE_integer("units", 768, "Units of a layer.")
_BATCH = flags.DEFINE_integer("batch", 512, "Pairs per step.")
_EPOCHS = flags.DEFINE_integer("epochs", 2, "Passes over all pairs.")
_MAX_SECS = flags.DEFINE_float("max_secs", 180.0, "Time limit of the search in seconds.")
_MAX_TRIALS = flags.DEFINE_integer("max_trials", 60, "Maximum number of placements to try.")

_LAYERS = 4


def two_towers(features: int, units: int) -> keras.Model:
    """Makes the model, which predicts how much a user likes an item."""
    inputs, codes = [], []
    for name in ("user", "item"):
        code = given = keras.Input([features], name=name)
        for layer in range(_LAYERS):
            code = keras.layers.Dense(units, activation="relu", name=f"{name}_{layer}")(code)
        inputs.append(given)
        codes.append(keras.layers.Dense(64, name=f"{name}_code")(code))
    likes = keras.layers.Dot(axes=1, normalize=True, name="likes")(codes)
    return keras.Model(inputs, likes)


def main(_: list[str]) -> None:
    """Places and trains."""
    keras.utils.set_random_seed(1)
    random = np.random.default_rng(0)
    shape = [_ROWS.value, _FEATURES.value]
    users, items = (random.normal(size=shape).astype(np.float32) for _ in range(2))
    likes = np.sign((users * items).sum(axis=1, keepdims=True)).astype(np.float32)

    model = two_towers(_FEATURES.value, _UNITS.value)
    model.compile(keras.optimizers.Adam(1e-3), "mse", jit_compile=False)
    if _PLACE.value:
        size = _BATCH.value
        # The added lines:
        result = tf_placer.optimize_model(
            model,
            ((users[:size], items[:size]), likes[:size]),
            machine=_TRAINED_ON.value,
            max_secs=_MAX_SECS.value,
            max_trials=_MAX_TRIALS.value,
        )
        result.apply(model)
        print(result.table(), result.reason, sep="\n")
    history = model.fit(
        (users, items), likes, batch_size=_BATCH.value, epochs=_EPOCHS.value, verbose=2
    )
    if _WEIGHTS.value:
        model.save_weights(_WEIGHTS.value)
    print(f"losses: {', '.join(f'{loss:.4f}' for loss in history.history['loss'])}")


if __name__ == "__main__":
    app.run(main)
