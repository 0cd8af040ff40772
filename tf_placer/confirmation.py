"""Whether a placement is faster than the graph as it came, beyond the noise of the machine."""

from __future__ import annotations

import bisect
import dataclasses
import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from tf_placer.environments.environment import Measurement

__all__ = ["Comparison", "Confirmation", "ConfirmationEnvironment", "compare", "confirm"]

# An interval needs a spread, and a spread two values.
_MIN_ROUNDS = 2
# Two rounds give a very wide one.
_SOON_ENOUGH = 3

# 97.5 % quantiles of Student's t by degrees of freedom: two-sided 95 % intervals. From
# NIST/SEMATECH e-Handbook of Statistical Methods, section 1.3.6.7.2.
_T_QUANTILES = {
    **dict(enumerate((12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228), 1)),
    **dict(enumerate((2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086), 11)),
    **dict(enumerate((2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042), 21)),
    **{40: 2.021, 60: 2.000, 100: 1.984},
}


class ConfirmationEnvironment(Protocol):
    """A live environment as far as a confirmation needs it."""

    def restart(self) -> None:
        """Replaces the processes that run the graph by fresh ones."""
        ...

    def measure_assignment(self, assignment: Mapping[str, str]) -> Measurement:
        """Measures the graph with devices given by operation name; {} is the graph as it came."""
        ...


@dataclasses.dataclass(frozen=True)
class Comparison:
    """One candidate against the reference.

    Attributes:
        speedup: geometric mean over the rounds of reference time / candidate time; None where one
            of the two has not run, or the candidate failed in some round.
        interval: 95 % confidence interval of the speed-up; None where fewer than two rounds have
            both times.
        faster: whether the candidate is confirmed: the interval lies above 1, or the reference
            runs in no round and the candidate in all.
        reason: why, in a few words for people.
    """

    speedup: float | None
    interval: tuple[float, float] | None
    faster: bool
    reason: str


@dataclasses.dataclass(frozen=True)
class Confirmation:
    """What a confirmation measured and found.

    Attributes:
        reference: label of what the candidates are compared with.
        rounds: for each round the measurement of each label, in the order they were measured. A
            candidate that has failed is left out of later rounds.
        comparisons: for each label but the reference, how it compares.
        best: the fastest label that never failed, the reference included, by geometric mean over
            the rounds; None if every label has failed. Whether it is faster beyond the noise says
            its comparison.
    """

    reference: str
    rounds: tuple[Mapping[str, Measurement], ...]
    comparisons: Mapping[str, Comparison]
    best: str | None

    def step_secs(self, label: str) -> float | None:
        """Median over the rounds of a label's median step time; None if it never ran.

        For tables: on a machine whose speed drifts, only `comparisons` tells labels apart.
        """
        secs = _medians(self.rounds, label).values()
        return statistics.median(secs) if secs else None

    def to_json(self) -> dict[str, Any]:
        """The JSON form: all fields, measurements included."""
        return {
            "reference": self.reference,
            "best": self.best,
            "confidence": 0.95,
            "comparisons": {
                label: dataclasses.asdict(comparison)
                for label, comparison in self.comparisons.items()
            },
            "rounds": [
                {label: measurement.to_json() for label, measurement in measurements.items()}
                for measurements in self.rounds
            ],
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Confirmation:
        """Reads what `to_json` wrote.

        Raises:
            KeyError, TypeError, ValueError: the value is not a confirmation.
        """
        comparisons = {}
        for label, fields in value["comparisons"].items():
            interval = fields["interval"]
            comparisons[label] = Comparison(
                **{**fields, "interval": interval and (interval[0], interval[1])}
            )
        rounds = tuple(
            {label: Measurement.from_json(m) for label, m in measurements.items()}
            for measurements in value["rounds"]
        )
        return cls(value["reference"], rounds, comparisons, value["best"])


def confirm(
    environment: ConfirmationEnvironment,
    candidates: Mapping[str, Mapping[str, str]],
    reference: str,
    *,
    rounds: int = 5,
    deadline_secs: float = math.inf,
    progress: Callable[[int, int, str, Measurement], None] | None = None,
    should_stop: Callable[[], bool] | None = None,
) -> Confirmation:
    """Measures placements side by side, in fresh processes, and compares them round by round.

    The speed of a shared machine drifts by up to 2x within minutes, so times are only compared
    within a round, as ratios. In each round the processes are restarted and every label is
    measured once. The order rotates and alternates between rounds (two labels: AB BA BA AB AB), so
    that a drift within rounds, or a penalty for being first, cancels.

    A candidate that fails in any round loses and is not measured again. A reference that fails
    stays in: it is said not to run only if it fails in every round.

    The false-alarm rate of `faster` is 2.5 % for each candidate. With many equally fast candidates
    the chance that one of them is called faster grows with their number.

    Args:
        environment: where to measure.
        candidates: for each label the full device name by operation name, the reference included.
        reference: label of what to compare with, usually the graph as it came: {}.
        rounds: how many rounds, at least 2.
        deadline_secs: seconds from the call after which no further round starts; the first two
            always run, because an interval needs them.
        progress: called after each measurement with the round (from 1), `rounds`, the label and
            the measurement.
        should_stop: asked before each round but the first three; true ends the confirmation.

    Returns:
        All measurements, and how every other candidate compares with the reference.

    Raises:
        KeyboardInterrupt: a measurement was broken off, and fewer than two rounds were complete;
            with more, these are what counts.
        ValueError: the reference is not among the candidates, it is the only one, or there are
            fewer than 2 rounds.
    """
    if reference not in candidates:
        raise ValueError(f"the reference {reference!r} is not among {sorted(candidates)}")
    if len(candidates) < 2:
        raise ValueError(f"there is nothing to compare with {reference!r}")
    if rounds < _MIN_ROUNDS:
        raise ValueError(f"rounds must be at least {_MIN_ROUNDS}, not {rounds}")
    start_secs = time.monotonic()
    done: list[Mapping[str, Measurement]] = []
    failed: set[str] = set()
    for number in range(rounds):
        out_of_time = time.monotonic() - start_secs >= deadline_secs
        if (number >= _MIN_ROUNDS and out_of_time) or len(failed) == len(candidates) - 1:
            break
        if number >= _SOON_ENOUGH and should_stop is not None and should_stop():
            break
        measurements: dict[str, Measurement] = {}
        try:
            environment.restart()
            for label in _order(list(candidates), number):
                if label in failed:
                    continue
                measurements[label] = environment.measure_assignment(candidates[label])
                if progress is not None:
                    progress(number + 1, rounds, label, measurements[label])
        except KeyboardInterrupt:
            if number < _MIN_ROUNDS:
                raise
            environment.restart()
            break
        failed |= {
            label
            for label, measurement in measurements.items()
            if measurement.failure is not None and label != reference
        }
        done.append(measurements)
    labels = [label for label in candidates if label != reference]
    return Confirmation(
        reference=reference,
        rounds=tuple(done),
        comparisons={label: compare(done, label, reference) for label in labels},
        best=_best(done, [reference, *labels]),
    )


def _order(labels: list[str], number: int) -> list[str]:
    """The order of a round: every second one reverses the one before, which then rotates."""
    shift = number // 2 % len(labels)
    order = labels[shift:] + labels[:shift]
    return order[::-1] if number % 2 else order


def _medians(rounds: Sequence[Mapping[str, Measurement]], label: str) -> dict[int, float]:
    """The median step time of a label by round, where it ran."""
    medians = {}
    for number, measurements in enumerate(rounds):
        measurement = measurements.get(label)
        if measurement is not None and measurement.median_secs is not None:
            medians[number] = measurement.median_secs
    return medians


def compare(rounds: Sequence[Mapping[str, Measurement]], label: str, reference: str) -> Comparison:
    """Compares two labels of a confirmation round by round.

    Args:
        rounds: for each round the measurement of each label; the two are in all of them, until one
            has failed.
        label: what is compared.
        reference: with what.

    Returns:
        How `label` compares with `reference`.
    """
    for number, measurements in enumerate(rounds, start=1):
        failure = measurements[label].failure
        if failure is not None:
            reason = f"failed in round {number} ({failure.kind.value}): {failure.message}"
            return Comparison(None, None, False, reason)
    of_reference, of_candidate = _medians(rounds, reference), _medians(rounds, label)
    log_ratios = [math.log(of_reference[i]) - math.log(of_candidate[i]) for i in of_reference]
    if not log_ratios:
        failure = rounds[0][reference].failure
        assert failure is not None
        reason = f"{reference} does not run ({failure.kind.value}): {failure.message}"
        return Comparison(None, None, True, reason)
    mean = statistics.fmean(log_ratios)
    speedup = math.exp(mean)
    if len(log_ratios) < _MIN_ROUNDS:
        reason = f"{reference} ran in one round of {len(rounds)} only"
        return Comparison(speedup, None, False, reason)
    half_width = (
        _t_quantile(len(log_ratios) - 1) * statistics.stdev(log_ratios) / math.sqrt(len(log_ratios))
    )
    low, high = math.exp(mean - half_width), math.exp(mean + half_width)
    faster = low > 1
    verdict = "faster" if faster else "slower" if high < 1 else "no faster beyond the noise"
    reason = (
        f"{verdict}: {speedup:.3f}x {reference} "
        f"(95 % interval {low:.3f} to {high:.3f}, {len(log_ratios)} rounds)"
    )
    return Comparison(speedup, (low, high), faster, reason)


def _best(rounds: Sequence[Mapping[str, Measurement]], labels: Sequence[str]) -> str | None:
    # Labels that never failed ran in the same rounds, so that the drift is the same for all.
    medians = {label: _medians(rounds, label).values() for label in labels}
    never_failed = [label for label in labels if len(medians[label]) == len(rounds)]
    return min(
        never_failed,
        key=lambda label: statistics.fmean(math.log(secs) for secs in medians[label]),
        default=None,
    )


def _t_quantile(degrees: int) -> float:
    """The 97.5 % quantile of Student's t; between entries of the table, the larger (safer) one."""
    entries = list(_T_QUANTILES)
    return _T_QUANTILES[entries[bisect.bisect_right(entries, degrees) - 1]]
