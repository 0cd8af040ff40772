"""A sequential test of whether one graph is faster than another.

A round is one set of fresh processes, and gives one estimate of the logarithm of the speed-up.
Rounds are independent, and vary more than the steps within a round, because processes differ. So
the test is Student's t over rounds, repeated after each round from the fourth on. Repetition
increases the chance of a false positive; the thresholds limit it to 2.5 % for all repetitions
together (Pocock's boundary for repeated t tests).

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
"""Numbers of rounds before the first test and at the last."""

# With this quantile of Student's t, nine tests after 4, 5, ..., 12 rounds reject 2.0 % of normally
# distributed samples around 0, as the unit test of this module simulates.
_QUANTILE = 0.995
# The test gives up if a mean larger by this many standard errors would still fail at the end.
_OPTIMISM_IN_STANDARD_ERRORS = 2.0


class Verdict(enum.Enum):
    """The result of the test after some rounds."""

    FASTER = "faster"
    NOT_FASTER = "not_faster"
    OPEN = "open"


@dataclasses.dataclass(frozen=True)
class Estimate:
    """A speed-up by several rounds.

    Attributes:
        speedup: the geometric mean.
        interval: 95 % confidence interval, valid at whichever round the test stops; None before
            the first test.
    """

    speedup: float
    interval: tuple[float, float] | None


def estimate(log_speedups: Sequence[float]) -> Estimate:
    """Estimates a speed-up from its logarithm in each round.

    Raises:
        ValueError: there is no round.
    """
    if not log_speedups:
        raise ValueError("there is no round to estimate a speed-up from")
    mean = statistics.fmean(log_speedups)
    if len(log_speedups) < LEAST_ROUNDS:
        return Estimate(math.exp(mean), None)
    half_width = _threshold(len(log_speedups)) * _standard_error(log_speedups)
    return Estimate(math.exp(mean), (math.exp(mean - half_width), math.exp(mean + half_width)))


def judge(log_speedups: Sequence[float], most_rounds: int = MOST_ROUNDS) -> Verdict:
    """Tests whether a speed-up is certain, hopeless, or needs more rounds.

    Args:
        log_speedups: the logarithm of the speed-up in each round so far.
        most_rounds: the maximum number of rounds.

    Returns:
        FASTER if the interval lies above 1; NOT_FASTER if there can be no further round, or none
        would help; else OPEN.
    """
    count = len(log_speedups)
    most_rounds = min(most_rounds, MOST_ROUNDS)
    if count < LEAST_ROUNDS:
        return Verdict.OPEN if count < most_rounds else Verdict.NOT_FASTER
    mean, error = statistics.fmean(log_speedups), _standard_error(log_speedups)
    if mean > _threshold(count) * error:
        return Verdict.FASTER
    error_at_end = error * math.sqrt(count / max(count, most_rounds))
    hoped = mean + _OPTIMISM_IN_STANDARD_ERRORS * error
    if count >= most_rounds or hoped <= _threshold(most_rounds) * error_at_end:
        return Verdict.NOT_FASTER
    return Verdict.OPEN


def _standard_error(values: Sequence[float]) -> float:
    return statistics.stdev(values) / math.sqrt(len(values))


@functools.cache
def _threshold(rounds: int) -> float:
    # Import SciPy here, because it takes a quarter of a second and showing a log does not need it.
    from scipy import special

    return float(special.stdtrit(min(rounds, MOST_ROUNDS) - 1, _QUANTILE))
