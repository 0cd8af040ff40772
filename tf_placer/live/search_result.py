"""What a live search writes of its end: the placements that it found, and the result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from graph_passes.placement import Placement
from tf_placer.live.confirmation import Confirmation
from tf_placer.live.run_directory import Outcome, Request, RunDirectory
from tf_placer.report.explanation import Explanation
from tf_placer.search.trial_log import ORIGINAL, Trial

__all__ = ["confirmed_measurement", "found_placement", "is_finished", "write_result"]


def found_placement(
    request: Request,
    header: Mapping[str, Any],
    assignment: Mapping[str, str],
    trial: Trial,
    measurement: Mapping[str, Any],
) -> Placement:
    """Makes a placement with what was measured of it and where it comes from.

    Args:
        request: what was asked.
        header: what the search is of, as `live_header` says it.
        assignment: full device names by operation name.
        trial: the trial that it is.
        measurement: what was measured; JSON values.
    """
    return Placement(
        header["graph_fingerprint"],
        tuple(device.name for device in request.machine.devices),
        assignment,
        measurement=dict(measurement),
        provenance={
            "placer": trial.placer,
            "trial": trial.index,
            "seed": request.seed,
            "machine": request.machine.spec,
            "versions": header["versions"],
        },
    )


def confirmed_measurement(confirmation: Confirmation, label: str) -> dict[str, Any]:
    """Extracts what a confirmation says of a placement, for its file."""
    comparison = confirmation.comparisons[label]
    return {
        "original_step_secs": confirmation.step_secs(ORIGINAL),
        "step_secs": confirmation.step_secs(label),
        "speedup": comparison.speedup,
        "interval": comparison.interval,
    }


def is_finished(result: Mapping[str, Any], request: Request, num_trials: int) -> bool:
    """Says whether a result answers a request that is that of its log, apart from the budget.

    Args:
        result: as `write_result` wrote it.
        request: what is asked.
        num_trials: how many trials the log has.
    """
    return (
        result["num_trials"] == num_trials
        and result.get("is_complete", False)
        and request.max_trials <= result["max_trials"]
        and request.max_secs <= result["max_secs"]
    )


def write_result(
    directory: RunDirectory,
    request: Request,
    outcome: Outcome,
    trials: Sequence[Trial],
    *,
    finalists: Mapping[str, Trial],
    confirmation: Confirmation | None,
    winner: str | None,
    notes: Sequence[str],
    explanation: Explanation | None,
    original_assignment: Sequence[int] | None,
    is_complete: bool,
    digest: str,
) -> None:
    """Writes how a search ended.

    Args:
        directory: of the search.
        request: what was asked.
        outcome: how it ended.
        trials: of the search.
        finalists: what was, or could have been, confirmed, by label.
        confirmation: of these, or None.
        winner: label of what was found, or None.
        notes: what else to say.
        explanation: why, or None.
        original_assignment: device index per group of the graph as it came; None if a group is on
            several devices.
        is_complete: whether it ended by itself.
        digest: of what was asked.

    Raises:
        OSError: it cannot be written.
    """
    if outcome is not Outcome.FASTER:
        directory.placement.unlink(missing_ok=True)
    directory.write_result(
        {
            "format": 1,
            "outcome": outcome.value,
            "winner": winner,
            "note": "; ".join(notes) or None,
            "num_trials": len(trials),
            "max_trials": request.max_trials,
            "max_secs": request.max_secs,
            "is_complete": is_complete,
            "request_digest": digest,
            "confirmation": None if confirmation is None else confirmation.to_json(),
            "finalists": {label: trial.index for label, trial in finalists.items()},
            "original_assignment": None if original_assignment is None else [*original_assignment],
            "explanation": None if explanation is None else explanation.to_json(),
        }
    )
