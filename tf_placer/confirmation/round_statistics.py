"""When enough was measured to say that one graph is faster than another, and when to give up.

A round is one set of fresh processes, and gives one estimate of the logarithm of the speed-up.
Rounds are independent, and differ by more than what is measured within one: processes differ. So
the test is Student's t over rounds, looked at after each from the fourth on. Looking often finds
something sooner or later; the thresholds are such that all looks together find it, where there is
nothing, in at most 2.5 % of cases (Pocock's boundary for repeated t tests).

References:
    Pocock, Group sequential methods in the design and analysis of clinical trials, Biometrika 64,
    1977; Jennison and Turnbull, Group Sequential Methods, 2000, section 11.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import math
import statistics
from collections.abc import Sequence

__all__ = ["LEAST_ROUNDS", "MOST_ROUNDS", "Estimate", "Verdict", "estimate", "judge"]

LEAST_ROUNDS, MOST_ROUNDS = 4, 12
"""Rounds before the first look, and at the last."""

# The quantile of Student's t that a look demands. Nine looks, after 4, 5, ..., 12 rounds, alarm in
# 2.0 % of normally distributed samples around 0, as the test of this module simulates.
_QUANTILE = 0.995
# Given up is what would not pass the last threshold even if the truth were so many standard errors
# better than it seems.
_BENEFIT_OF_DOUBT = 2.0


class Verdict(enum.Enum):
    """What rounds say."""

    FASTER = "faster"
    NOT_FASTER = "not_faster"
    OPEN = "open"


@dataclasses.dataclass(frozen=True)
class Estimate:
    """A speed-up by several rounds.

    Attributes:
        speedup: the geometric mean.
        interval: 95 % confidence interval, valid at whatever round one stops; None before the
            first look.
    """

    speedup: float
    interval: tuple[float, float] | None


def estimate(log_speedups: Sequence[float]) -> Estimate:
    """Estimates a speed-up from its logarithm in each round.

    Raises:
        ValueError: there is none.
    """
    if not log_speedups:
        raise ValueError("there is no round to estimate a speed-up from")
    mean = statistics.fmean(log_speedups)
    if len(log_speedups) < LEAST_ROUNDS:
        return Estimate(math.exp(mean), None)
    half_width = _threshold(len(log_speedups)) * _standard_error(log_speedups)
    return Estimate(math.exp(mean), (math.exp(mean - half_width), math.exp(mean + half_width)))


def judge(log_speedups: Sequence[float], most_rounds: int = MOST_ROUNDS) -> Verdict:
    """Says whether a speed-up is certain, hopeless, or needs more rounds.

    Args:
        log_speedups: the logarithm of the speed-up in each round so far.
        most_rounds: how many rounds there can be.

    Returns:
        FASTER where the interval lies above 1; NOT_FASTER where there can be no further round, or
        none would help; else OPEN.
    """
    count = len(log_speedups)
    most_rounds = min(most_rounds, MOST_ROUNDS)
    if count < LEAST_ROUNDS:
        return Verdict.OPEN if count < most_rounds else Verdict.NOT_FASTER
    mean, error = statistics.fmean(log_speedups), _standard_error(log_speedups)
    if mean > _threshold(count) * error:
        return Verdict.FASTER
    error_at_end = error * math.sqrt(count / max(count, most_rounds))
    hoped = mean + _BENEFIT_OF_DOUBT * error
    if count >= most_rounds or hoped <= _threshold(most_rounds) * error_at_end:
        return Verdict.NOT_FASTER
    return Verdict.OPEN


def _standard_error(values: Sequence[float]) -> float:
    return statistics.stdev(values) / math.sqrt(len(values))


@functools.cache
def _threshold(rounds: int) -> float:
    # Who only shows a log needs no quantiles, and importing them takes a quarter of a second.
    from scipy import special

    return float(special.stdtrit(min(rounds, MOST_ROUNDS) - 1, _QUANTILE))
