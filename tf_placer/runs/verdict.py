"""The verdict of a live search in words: the outcome, its reason, and advice."""

from __future__ import annotations

import math

from tf_placer.confirmation.confirmation import Comparison, Confirmation
from tf_placer.confirmation.outcome import Outcome
from tf_placer.runs.run_result import RunResult
from tf_placer.text.sentences import join_sentences
from tf_placer.text.units import format_step

__all__ = [
    "SLOWER_THAN_ONE_PROCESS",
    "best_comparison",
    "describe_winner",
    "explain_unkept",
    "is_open",
    "lacks_rounds",
    "verdict",
]

_ONE_PROCESS = "one process on all cores takes about"
SLOWER_THAN_ONE_PROCESS = f"But {_ONE_PROCESS}"
"""The beginning of the sentence that warns of a placement slower than one process."""
# A comparison of two times that were not measured side by side shows no less.
_MIN_RATIO_TO_CLAIM = 1.1

_REASONS = {
    Outcome.NOTHING_TO_PLACE: (
        "every operation keeps its original device: there is nothing to place"
    ),
    Outcome.NOTHING_RUNS: "no placement ran",
    Outcome.NO_TIME: "no placement was measured in the time and the trials that were allowed",
    Outcome.NOT_FASTER: "no placement is faster than the original, beyond the noise",
    Outcome.DIFFERENT_VALUES: "no faster placement computes the same",
    Outcome.NOT_CONFIRMED: "no placement was confirmed",
    Outcome.FITS: "the original runs, and objective 'fit' asks for no more",
}
_NO_TIME_FOR_PLACER = (
    "no baseline is faster than the original, beyond the noise, and there was no time for the "
    "placer"
)
_MIN_SPEEDUP_WORTH_MORE_TIME = 1.05
# By whether more rounds might show a speed-up, how to learn whether there is one.
_WOULD_TELL = {
    True: "a longer search, or a machine that does nothing else, would tell",
    False: "its steps vary so much that more rounds would hardly show a speed-up; a machine that "
    "does nothing else would tell",
}
# All other outcomes depend on the time that there was.
_FINAL_OUTCOMES = (Outcome.FASTER, Outcome.NOT_FASTER, Outcome.DIFFERENT_VALUES)


def verdict(
    result: RunResult | None, note: str | None = None, *, resumed_by: str = "the same call"
) -> str:
    """Describes the verdict of a search and its reason.

    Args:
        result: the result of the search; None if there was nothing to place.
        note: a note on a graph with nothing to place.
        resumed_by: the call that resumes an interrupted search.

    Returns:
        Sentences, the last without a full stop.
    """
    if result is None:
        return join_sentences(_REASONS[Outcome.NOTHING_TO_PLACE], note)
    confirmation, note = result.confirmation, result.note
    if result.winner is not None and confirmation is not None:
        # The comparison precedes details: it may be a reason not to use the placement.
        return join_sentences(
            describe_winner(result.winner, confirmation),
            _compare_with_one_process(result),
            _explain_choice(result.winner, confirmation),
            note,
        )
    if result.outcome is Outcome.INTERRUPTED:
        trials = f"{result.num_trials} of {result.max_trials} trials"
        text = f"interrupted after {trials}, before a placement was confirmed"
        return join_sentences(text, note, _advice(result), f"{resumed_by} resumes it")
    reason = _REASONS[result.outcome]
    if result.outcome is Outcome.NO_TIME and result.finalists:
        reason = _NO_TIME_FOR_PLACER
    chosen = None if confirmation is None else confirmation.best
    return join_sentences(reason, note, _advice(result), _explain_choice(chosen, confirmation))


def describe_winner(winner: str, confirmation: Confirmation) -> str:
    """Describes what a confirmation has shown of its winner, as a clause.

    Args:
        winner: the label of the winner.
        confirmation: the measurements; they compare the winner with the original.
    """
    comparison = confirmation.comparisons[winner]
    if comparison.speedup is None:
        return f"{winner} runs, and the original does not: {comparison.reason}"
    text = f"{winner} is {comparison.speedup:.2f} times as fast as the original"
    if comparison.interval is None:
        return f"{text}: {comparison.reason}"
    low, high = comparison.interval
    return f"{text} (95 % interval {low:.3f} to {high:.3f}, {len(confirmation.rounds)} rounds)"


def is_open(result: RunResult) -> bool:
    """Returns whether nothing was faster beyond the noise, but more time might show a speed-up."""
    best = best_comparison(result.confirmation)
    if result.outcome is not Outcome.NOT_FASTER or best is None or best.interval is None:
        return False
    return best.interval[1] >= _MIN_SPEEDUP_WORTH_MORE_TIME


def lacks_rounds(result: RunResult) -> bool:
    """Returns whether more time might show a speed-up, and would be used for more rounds."""
    return is_open(result) and _would_gain_by_rounds(result) and result.max_secs is not None


def explain_unkept(result: RunResult) -> str | None:
    """Explains why a store keeps no answer of a search, as a clause; None if it does."""
    if is_open(result):
        return f"the best placement may be faster: {_WOULD_TELL[_would_gain_by_rounds(result)]}"
    if not (result.is_complete and result.outcome.is_verdict):
        return "the search came to no verdict, for which more time is needed"
    if result.outcome not in _FINAL_OUTCOMES:
        return f"the search ended with {result.outcome.value!r}, which another search may change"
    return None


def best_comparison(confirmation: Confirmation | None) -> Comparison | None:
    """Finds the comparison of the candidate that the verdict of a confirmation is on.

    Returns:
        The comparison; None if no candidate was compared with the original.
    """
    comparisons = confirmation.comparisons.values() if confirmation else ()
    return max(
        (comparison for comparison in comparisons if comparison.speedup is not None),
        key=lambda comparison: (comparison.interval is not None, comparison.speedup or -math.inf),
        default=None,
    )


def _compare_with_one_process(result: RunResult) -> str | None:
    """Compares a placement on workers with the original in one process, in a sentence.

    Returns:
        The sentence; None if that was not measured, or the note of an earlier version has it.
    """
    secs, placed_secs = result.one_process_secs, result.placed_secs
    if secs is None or placed_secs is None or _ONE_PROCESS in (result.note or "").lower():
        return None
    text = f"{_ONE_PROCESS} {format_step(secs)} for the original"
    if result.is_slower_than_one_process:
        return f"but {text}, {placed_secs / secs:.2f} times as fast as placed on workers"
    if secs < _MIN_RATIO_TO_CLAIM * placed_secs:
        return f"{text}: the placement is about as fast as that"
    return f"{text}: the placement is about {secs / placed_secs:.2f} times as fast as that"


def _explain_choice(chosen: str | None, confirmation: Confirmation | None) -> str | None:
    """Explains the choice of a candidate beside one that a single round shows as faster."""
    if confirmation is None or chosen is None or chosen not in confirmation.comparisons:
        return None
    speedup = confirmation.comparisons[chosen].speedup
    if speedup is None:
        return None
    in_selection = confirmation.compute_selection_speedup(chosen)
    for label, other in confirmation.comparisons.items():
        if other.speedup is not None and other.interval is None and other.speedup > speedup:
            text = f"one round measured {label} at {other.speedup:.2f} times"
            if in_selection is not None and in_selection >= other.speedup:
                return f"{text}, and {chosen} at {in_selection:.2f}"
            return (
                f"{text}, which alone proves nothing: with the times of the search it ranked "
                f"behind {chosen}"
            )
    return None


def _advice(result: RunResult) -> str | None:
    """Returns advice that fits the outcome, if there is some."""
    best = best_comparison(result.confirmation)
    is_about_speed = result.outcome in (Outcome.NOT_FASTER, Outcome.INTERRUPTED, Outcome.NO_TIME)
    if not is_about_speed or best is None or best.speedup is None:
        return None
    if best.interval is None:
        return f"the best was {best.reason}"
    low, high = best.interval
    if not is_open(result):
        return f"the best is at most {high:.2f} times as fast"
    text = f"the best is {low:.2f} to {high:.2f} times as fast"
    return f"{text}: {_WOULD_TELL[_would_gain_by_rounds(result)]}"


def _would_gain_by_rounds(result: RunResult) -> bool:
    return result.confirmation is not None and result.confirmation.would_gain_by_rounds
