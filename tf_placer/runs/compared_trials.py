"""Trials of a search beside the original: one step time and one speed-up for each."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

from tf_placer.confirmation.confirmation import Comparison, Confirmation
from tf_placer.confirmation.outcome import Outcome
from tf_placer.search.trial_log import ORIGINAL, Trial

__all__ = ["IN_ONE_PROCESS", "IN_ONE_PROCESS_BASIS", "ComparedTrial", "compare_trials"]

IN_ONE_PROCESS = "original, one process on all cores"
"""The label of the original without the worker processes of the machine, in tables."""
IN_ONE_PROCESS_BASIS = "measured at the end, not side by side"

_FAILED = "failed in the confirmation"


@dataclasses.dataclass(frozen=True)
class ComparedTrial:
    """A trial beside the original.

    Attributes:
        label: the name of the trial's placement.
        trial: the trial.
        step_secs: the step time of the original divided by the speed-up, because only ratios can
            be compared on a machine whose speed drifts; None if it did not run.
        speedup: step time of the original / of the placement; None if either did not run.
        interval: 95 % confidence interval of the speed-up; None if it was not confirmed.
        basis: the source of the numbers, or the reason for their absence; "" for an original
            that ran.
    """

    label: str
    trial: Trial
    step_secs: float | None
    speedup: float | None
    interval: tuple[float, float] | None
    basis: str

    def to_json(self) -> dict[str, Any]:
        """Makes the JSON form, with the number of the trial."""
        return {
            "label": self.label,
            "trial": self.trial.index,
            "step_secs": self.step_secs,
            "speedup": self.speedup,
            "speedup_interval": self.interval and list(self.interval),
            "basis": self.basis,
        }


def compare_trials(
    trials: Mapping[str, Trial],
    confirmation: Confirmation | None,
    winner: str | None,
    outcome: Outcome | None = None,
) -> tuple[ComparedTrial, ...]:
    """Compares trials with the original, by the confirmation where it has them.

    Args:
        trials: by label, with the original.
        confirmation: the measurements side by side, or None.
        winner: the label of the winner, or None.
        outcome: the outcome of the search; None if it is not known.

    Returns:
        The original, then the others, the fastest first.
    """
    searched_secs = trials[ORIGINAL].measurement.median_secs
    original_secs = (confirmation.step_secs(ORIGINAL) if confirmation else None) or searched_secs
    compared = []
    for label, trial in trials.items():
        if label == ORIGINAL:
            continue
        secs = trial.measurement.median_secs
        speedup = searched_secs / secs if secs and searched_secs else None
        interval, basis = None, _describe_failure(trial) or "in the search"
        if confirmation is not None and label in confirmation.comparisons:
            comparison = confirmation.comparisons[label]
            speedup, interval = comparison.speedup, comparison.interval
            basis = _describe(comparison, outcome, is_winner=label == winner)
            secs = None if basis == _FAILED else confirmation.step_secs(label)
        if speedup and original_secs:
            secs = original_secs / speedup
        compared.append(ComparedTrial(label, trial, secs, speedup, interval, basis))
    compared.sort(key=lambda each: each.step_secs or math.inf)
    original = ComparedTrial(
        ORIGINAL,
        trials[ORIGINAL],
        original_secs,
        None if original_secs is None else 1.0,
        None,
        _describe_failure(trials[ORIGINAL]),
    )
    return (original, *compared)


def _describe_failure(trial: Trial) -> str:
    failure = trial.measurement.failure
    return "" if failure is None else f"failed: {failure.kind.value}"


def _describe(comparison: Comparison, outcome: Outcome | None, *, is_winner: bool) -> str:
    if is_winner and comparison.speedup is None:
        return "found: runs, as the original does not"
    if is_winner:
        return "found: faster beyond the noise"
    if comparison.interval is not None and outcome is Outcome.INTERRUPTED:
        return "interrupted, not confirmed"
    if comparison.interval is not None:
        return "not faster beyond the noise"
    if comparison.speedup is not None:
        return "one round"
    return _FAILED if comparison.reason.startswith("failed") else "runs"
