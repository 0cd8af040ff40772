"""How a live search ended, in words: placed or unchanged, why, and what would help."""

from __future__ import annotations

import math

from tf_placer.confirmation.confirmation import Comparison, Confirmation
from tf_placer.confirmation.outcome import Outcome
from tf_placer.runs.run_result import RunResult

__all__ = ["best_comparison", "verdict"]

_REASONS = {
    Outcome.NOTHING_TO_PLACE: (
        "every operation keeps the device it came with: there is nothing to place"
    ),
    Outcome.NOTHING_RUNS: "no placement ran",
    Outcome.NO_TIME: "no placement was measured in the time and the trials that were allowed",
    Outcome.NOT_FASTER: "no placement is faster than the graph as it came, beyond the noise",
    Outcome.DIFFERENT_VALUES: "no faster placement computes the same",
    Outcome.NOT_CONFIRMED: "no placement was confirmed to be faster",
    Outcome.INTERRUPTED: "interrupted before a placement was confirmed to be faster",
}
# A speed-up that may be so large is worth another try.
_WORTH_MORE = 1.05


def verdict(result: RunResult | None, note: str | None = None) -> str:
    """Says how a search ended, and why.

    Args:
        result: what the search wrote of it; None where it wrote nothing, because there was nothing
            to place.
        note: what is known of a graph where nothing is to place.

    Returns:
        One sentence, without a full stop.
    """
    if result is None:
        return "; ".join(filter(None, [_REASONS[Outcome.NOTHING_TO_PLACE], note]))
    confirmation, note = result.confirmation, result.note
    if result.winner is not None and confirmation is not None:
        comparison = confirmation.comparisons[result.winner]
        if comparison.speedup is None:
            text = f"{result.winner} runs, and the graph as it came does not: "
        else:
            text = f"{result.winner} is faster than the graph as it came: "
        text += _describe_certainty(comparison, confirmation)
        return f"{text}; {note}" if note else text
    parts = [_REASONS[result.outcome], note, _advice(result.outcome, confirmation)]
    return ": ".join(part for part in parts if part)


def best_comparison(confirmation: Confirmation | None) -> Comparison | None:
    """Finds what is known best of a confirmation: of the candidate that its verdict is on.

    Returns:
        How it compares; None if there is none, or no candidate was compared with the graph as it
        came.
    """
    comparisons = confirmation.comparisons.values() if confirmation else ()
    return max(
        (comparison for comparison in comparisons if comparison.speedup is not None),
        key=lambda comparison: (comparison.interval is not None, comparison.speedup or -math.inf),
        default=None,
    )


def _describe_certainty(comparison: Comparison, confirmation: Confirmation) -> str:
    if comparison.speedup is None or comparison.interval is None:
        return comparison.reason
    low, high = comparison.interval
    return (
        f"{comparison.speedup:.2f} times as fast, and at least {low:.2f} times with 97.5 % "
        f"certainty (95 % interval {low:.3f} to {high:.3f}, {len(confirmation.rounds)} rounds)"
    )


def _advice(outcome: Outcome, confirmation: Confirmation | None) -> str | None:
    """Says what would help."""
    if outcome is Outcome.INTERRUPTED:
        return "the same call goes on where it was"
    best = best_comparison(confirmation)
    if outcome is not Outcome.NOT_FASTER or best is None or best.speedup is None:
        return None
    if best.interval is None:
        return f"the best was {best.reason}"
    low, high = best.interval
    if high < _WORTH_MORE:
        return f"the best is at most {high:.2f} times as fast"
    return (
        f"the best is {low:.2f} to {high:.2f} times as fast: more time, or a machine that does "
        "nothing else, would tell"
    )
