"""Estimates the speed-up between two graphs whose steps took turns."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

__all__ = ["burst_steps", "log_speedup"]

_MOST_BURST_STEPS = 25

_QUIET_SHARE, _LEAST_PAIRS = 0.5, 3
# The deviation of a normal distribution by the median of absolute differences from the median, and
# the standard error of a median by that of a mean.
_TO_DEVIATION, _OF_MEDIAN = 1.4826, 1.2533
# Use a quantile as the time of the fastest steps, because a single step may be a fluke.
_FAST_QUANTILE = 0.1


def log_speedup(reference_secs: Sequence[float], secs: Sequence[float]) -> tuple[float, float]:
    """Estimates the logarithm of how many times as fast a graph runs as the reference.

    What disturbs a machine only makes steps longer. So the half of the pairs counts in which the
    slower of the two, each compared with its own fastest steps, was slowed down least; of their
    log ratios the median is taken. Neither slow phases, which last for many steps, nor single slow
    steps move it, and a drift of the machine hits both of a pair. Where the two run equally fast,
    the estimate is as likely too high as too low.

    Args:
        reference_secs: step times of the reference, in seconds.
        secs: as many step times of the graph; those at one position ran shortly after each other.

    Returns:
        The estimate and its standard error, by the spread of the pairs that count. Processes
        differ by more than this error tells.

    Raises:
        ValueError: there are no steps, or not as many of both.
    """
    if len(reference_secs) != len(secs) or not len(secs):
        raise ValueError(f"steps come in pairs, not {len(reference_secs)} and {len(secs)}")
    reference, own = np.log(reference_secs), np.log(secs)
    fastest = int(_FAST_QUANTILE * len(own))
    slowed = np.maximum(reference - np.sort(reference)[fastest], own - np.sort(own)[fastest])
    count = max(_LEAST_PAIRS, math.ceil(_QUIET_SHARE * len(slowed)))
    ratios = np.sort((reference - own)[np.argsort(slowed, kind="stable")[:count]])
    middle = _median(ratios)
    deviation = _TO_DEVIATION * _median(np.sort(np.abs(ratios - middle)))
    return middle, _OF_MEDIAN * deviation / math.sqrt(len(ratios))


def _median(values: np.ndarray) -> float:
    """Computes the median of sorted values."""
    half = len(values) // 2
    return float(values[half] if len(values) % 2 else (values[half - 1] + values[half]) / 2.0)


def burst_steps(step_secs: float, burst_secs: float) -> int:
    """Chooses how many steps a graph runs before it is another one's turn.

    The shorter the turns, the less a machine changes between them.

    Args:
        step_secs: what a step takes.
        burst_secs: what a turn should take at least.

    Returns:
        One step, or as many short ones as take so long, up to 25.
    """
    steps = math.ceil(burst_secs / max(step_secs, 1e-6))
    return min(max(steps, 1), _MOST_BURST_STEPS)
