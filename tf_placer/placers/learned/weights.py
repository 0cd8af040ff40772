"""Initializers of weights that depend on one seed only."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import tensorflow as tf

__all__ = ["glorot", "orthogonal", "seeds"]


def seeds(seed: int) -> Iterator[int]:
    """Derives independent seeds, one per weight, from one seed."""
    for child in np.random.SeedSequence(seed).generate_state(64):
        yield int(child) % 2**31


def glorot(seeds: Iterator[int]) -> tf.keras.initializers.Initializer:
    """Makes an initializer: uniform weights of Glorot's scale, from the next of `seeds`."""
    return tf.keras.initializers.GlorotUniform(seed=next(seeds))


def orthogonal(seeds: Iterator[int]) -> tf.keras.initializers.Initializer:
    """Makes an initializer: orthogonal weights, from the next of `seeds`."""
    return tf.keras.initializers.Orthogonal(seed=next(seeds))
