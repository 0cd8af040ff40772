"""The result of a search as JSON values for programs."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from tf_placer.confirmation.confirmation import Confirmation
from tf_placer.confirmation.outcome import Outcome
from tf_placer.report.explanation import Explanation
from tf_placer.runs.compared_trials import compare_trials
from tf_placer.runs.explanation import read_explanation
from tf_placer.runs.run_directory import RunDirectory
from tf_placer.runs.verdict import verdict
from tf_placer.search.trial_log import ORIGINAL, Trial, read_log

__all__ = ["make_result_values", "read_result_values"]


def make_result_values(
    *,
    outcome: Outcome | None = None,
    reason: str | None = None,
    kept: str | None = None,
    answer_kept: bool | None = None,
    one_process_secs: float | None = None,
    winner: str | None = None,
    confirmation: Confirmation | None = None,
    finalists: Mapping[str, Trial] | None = None,
    num_trials: int = 0,
    explanation: Explanation | None = None,
    log_dir: str | os.PathLike[str] | None = None,
) -> dict[str, Any]:
    """Makes the JSON values of a result: the verdict, the finalists and the explanation.

    Args:
        outcome: the outcome of the search; None if there was no search.
        reason: the reason for it in one sentence.
        kept: the day of the search whose kept answer this is, or None.
        answer_kept: whether the store of answers has this result; None without a store.
        one_process_secs: see `RunResult`.
        winner: the label of the placement that was found, or None.
        confirmation: original and finalists measured side by side, or None.
        finalists: the finalists by label, the original first; none if nothing ran.
        num_trials: number of trials.
        explanation: the explanation, or None.
        log_dir: the directory of the search, or None.
    """
    compared = compare_trials(finalists, confirmation, winner, outcome) if finalists else ()
    comparison = original_secs = placed_secs = None
    if confirmation is not None:
        original_secs = confirmation.step_secs(ORIGINAL)
    if confirmation is not None and winner is not None:
        comparison = confirmation.comparisons[winner]
        placed_secs = confirmation.step_secs(winner)
    return {
        "placed": winner is not None,
        "outcome": None if outcome is None else outcome.value,
        "has_verdict": outcome is not None and outcome.is_verdict,
        "reason": reason,
        "kept": kept,
        "answer_kept": answer_kept,
        "winner": winner,
        "speedup": None if comparison is None else comparison.speedup,
        "speedup_interval": comparison and comparison.interval and list(comparison.interval),
        "original_secs": original_secs,
        "placed_secs": placed_secs,
        "one_process_secs": one_process_secs,
        "placements": [each.to_json() for each in compared],
        "trials": num_trials,
        "explanation": None if explanation is None else explanation.to_json(),
        "log_dir": None if log_dir is None else os.fspath(log_dir),
    }


def read_result_values(directory: RunDirectory) -> dict[str, Any]:
    """Reads the JSON values of the result in a directory, with the file of its placement.

    Raises:
        OSError: a file cannot be read.
        ValueError: a file is damaged; the message names it.
    """
    result = directory.read_result()
    if result is None:
        log_dir = directory.path if directory.path.exists() else None
        return {**make_result_values(log_dir=log_dir), "placement": None}
    trials: tuple[Trial, ...] = ()
    # A kept answer has no trials.
    if directory.trials.exists():
        _, trials = read_log(directory.trials)
    values = make_result_values(
        outcome=result.outcome,
        reason=verdict(result),
        kept=result.kept,
        answer_kept=result.answer_kept,
        one_process_secs=result.one_process_secs,
        winner=result.winner,
        confirmation=result.confirmation,
        finalists={label: trials[index] for label, index in result.finalists.items()}
        if len(trials) == result.num_trials
        else {},
        num_trials=len(trials),
        explanation=read_explanation(directory, result),
        log_dir=directory.path,
    )
    has_placement = directory.placement.exists()
    return {**values, "placement": os.fspath(directory.placement) if has_placement else None}
