"""Statistics that the benchmarks share."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import numpy as np
import scipy.stats

__all__ = ["ratio_and_interval", "spearman"]


def spearman(first: Sequence[float] | np.ndarray, second: Sequence[float] | np.ndarray) -> float:
    """Computes Spearman's rank correlation.

    Args:
        first: float [n].
        second: float [n], paired with `first`.

    Returns:
        In [-1, 1]; NaN where it is not defined: fewer than two pairs, or all values of one side
        are equal.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", scipy.stats.ConstantInputWarning)
        return float(scipy.stats.spearmanr(first, second).statistic)


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
