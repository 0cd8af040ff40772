"""Random numbers for placements, each seeded separately."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf

__all__ = ["gumbel_noise", "uniform_noise"]


def uniform_noise(count: int, seed: tf.Tensor, shape: Sequence[int]) -> tf.Tensor:
    """Draws uniform random numbers for a batch of placements; traceable, without state.

    Args:
        count: number of placements.
        seed: int64 [2]; the numbers of placement i depend on (seed[0], seed[1] + i) alone.
        shape: the shape of one placement's numbers.

    Returns:
        float32 [count, *shape], above 0 and below 1.
    """
    return _draw_by_placement(count, seed, shape, lambda uniform: uniform)


def gumbel_noise(count: int, seed: tf.Tensor, shape: Sequence[int]) -> tf.Tensor:
    """Draws standard Gumbel noise for a batch of placements; traceable, without state.

    The largest sum of log-probability and such noise is a sample of the distribution.

    Args:
        count: number of placements.
        seed: int64 [2]; the noise of placement i depends on (seed[0], seed[1] + i) alone.
        shape: the shape of one placement's noise.

    Returns:
        float32 [count, *shape].
    """
    return _draw_by_placement(
        count, seed, shape, lambda uniform: -tf.math.log(-tf.math.log(uniform))
    )


def _draw_by_placement(
    count: int,
    seed: tf.Tensor,
    shape: Sequence[int],
    transform: Callable[[tf.Tensor], tf.Tensor],
) -> tf.Tensor:
    """Draws uniform numbers above 0 and below 1, and transforms them.

    Draws placement by placement, because the last bit of a logarithm depends on the position of the
    number in its array.
    """

    def numbers(row: tf.Tensor) -> tf.Tensor:
        uniform = tf.random.stateless_uniform(
            shape, tf.stack([seed[0], row]), minval=np.finfo(np.float32).tiny
        )
        return transform(uniform)

    rows = seed[1] + tf.range(count, dtype=tf.int64)
    return tf.map_fn(numbers, rows, fn_output_signature=tf.TensorSpec(shape, tf.float32))
