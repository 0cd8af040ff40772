"""Estimates of the speed-up between two graphs whose steps took turns."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import numpy as np

__all__ = ["burst_steps", "log_speedup"]


@dataclasses.dataclass(frozen=True)
class _PairedSteps:
    """Constants of paired steps.

    The estimate uses the quietest share of the pairs, but at least `min_pairs`. The time of the
    fastest steps is a quantile, because a single step may be a fluke.
    """

    max_burst_steps: int = 25
    quiet_share: float = 0.5
    min_pairs: int = 3
    fast_quantile: float = 0.1


_PAIRED_STEPS = _PairedSteps()
# Ratios for normal distributions: the standard deviation to the median absolute deviation, and the
# standard error of a median to that of a mean.
_DEVIATION_TO_MAD, _MEDIAN_ERROR_TO_MEAN_ERROR = 1.4826, 1.2533


def log_speedup(reference_secs: Sequence[float], secs: Sequence[float]) -> tuple[float, float]:
    """Estimates the logarithm of the speed-up of a graph over the reference.

    Disturbances of a machine only make steps longer. So only the quieter half of the pairs counts:
    each step is compared with the fastest steps of its graph, and a pair is as disturbed as the
    more slowed of its two steps. The estimate is the median of the log ratios of these pairs.
    Neither slow phases of many steps nor single slow steps move it, and a drift of the machine
    affects both steps of a pair. If the two run equally fast, the estimate is as likely too high as
    too low.

    Args:
        reference_secs: step times of the reference, in seconds.
        secs: as many step times of the graph; steps at the same position ran shortly after each
            other.

    Returns:
        The estimate and its standard error, computed from the spread of the counted pairs. It does
        not include the differences between processes, which are larger.

    Raises:
        ValueError: there are no steps, or the numbers of steps differ.
    """
    if len(reference_secs) != len(secs) or not len(secs):
        raise ValueError(f"steps come in pairs, not {len(reference_secs)} and {len(secs)}")
    reference, own = np.log(reference_secs), np.log(secs)
    fastest = int(_PAIRED_STEPS.fast_quantile * len(own))
    slowed = np.maximum(reference - np.sort(reference)[fastest], own - np.sort(own)[fastest])
    count = max(_PAIRED_STEPS.min_pairs, math.ceil(_PAIRED_STEPS.quiet_share * len(slowed)))
    ratios = np.sort((reference - own)[np.argsort(slowed, kind="stable")[:count]])
    middle = _compute_median(ratios)
    deviation = _DEVIATION_TO_MAD * _compute_median(np.sort(np.abs(ratios - middle)))
    return middle, _MEDIAN_ERROR_TO_MEAN_ERROR * deviation / math.sqrt(len(ratios))


def _compute_median(values: np.ndarray) -> float:
    """Computes the median of sorted values."""
    half = len(values) // 2
    return float(values[half] if len(values) % 2 else (values[half - 1] + values[half]) / 2.0)


def burst_steps(step_secs: float, burst_secs: float) -> int:
    """Chooses the number of steps in a turn of a graph.

    Short turns are better, because a machine changes less between them.

    Args:
        step_secs: seconds of a step.
        burst_secs: minimum seconds of a turn.

    Returns:
        The least number of steps that take `burst_secs`, up to 25.
    """
    steps = math.ceil(burst_secs / max(step_secs, 1e-6))
    return min(max(steps, 1), _PAIRED_STEPS.max_burst_steps)
