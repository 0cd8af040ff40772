"""Statistics that the benchmarks share."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import scipy.stats

__all__ = ["ranks", "ratio_and_interval", "spearman"]


def ranks(values: Sequence[float] | np.ndarray) -> np.ndarray:
    """Ranks from 1 on, in increasing order; equal values share the mean of their ranks.

    Args:
        values: float [n]; infinities are ranked like other numbers.

    Returns:
        float64 [n].

    Raises:
        ValueError: If a value is NaN or `values` is not one-dimensional.

    Example:
        >>> ranks([10.0, 30.0, 20.0, 30.0]).tolist()
        [1.0, 3.5, 2.0, 3.5]
    """
    numbers = np.asarray(values, np.float64)
    if numbers.ndim != 1:
        raise ValueError(f"ranks need a list of numbers, not an array of shape {numbers.shape}")
    if np.isnan(numbers).any():
        raise ValueError(f"value {int(np.isnan(numbers).argmax())} is NaN and has no rank")
    _, index, counts = np.unique(numbers, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return (last - (counts - 1) / 2)[index]


def spearman(first: Sequence[float] | np.ndarray, second: Sequence[float] | np.ndarray) -> float:
    """Spearman's rank correlation: Pearson's correlation of the `ranks`, ties averaged.

    Args:
        first: float [n].
        second: float [n], paired with `first`.

    Returns:
        In [-1, 1]; NaN where it is not defined: fewer than two pairs, or all values of one side
        are equal.

    Raises:
        ValueError: If a value is NaN or the lengths differ.

    Example:
        >>> spearman([1.0, 2.0, 3.0, 4.0], [1.0, 2.0, 4.0, 3.0])
        0.8

    References:
        C. Spearman, The proof and measurement of association between two things, 1904.
    """
    a, b = ranks(first), ranks(second)
    if len(a) != len(b):
        raise ValueError(f"rank correlation needs pairs, not {len(a)} and {len(b)} values")
    if len(a) < 2:
        return float("nan")
    a, b = a - a.mean(), b - b.mean()
    scale = float(np.sqrt((a @ a) * (b @ b)))
    return float(a @ b) / scale if scale else float("nan")


def ratio_and_interval(
    first: Sequence[float], second: Sequence[float]
) -> tuple[float, tuple[float, float]]:
    """Compares paired times by the mean of the logarithms of their ratios.

    Args:
        first: seconds, one number per pair.
        second: seconds, likewise.

    Returns:
        The ratio first / second, and its 95 % interval by Student's t.
    """
    logs = np.log(np.asarray(first) / np.asarray(second))
    error = scipy.stats.sem(logs) * scipy.stats.t.ppf(0.975, len(logs) - 1)
    mean = logs.mean()
    return float(np.exp(mean)), (float(np.exp(mean - error)), float(np.exp(mean + error)))
