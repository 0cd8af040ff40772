"""Progress lines of a search."""

from __future__ import annotations

from collections.abc import Callable

from tf_placer.environments.environment import FailureKind, Measurement
from tf_placer.report.search_table import format_outcome
from tf_placer.search.budget import Progress, compute_gap
from tf_placer.search.callbacks import Callback
from tf_placer.search.simulated_search import SearchOutcome
from tf_placer.search.trial_log import Trial
from tf_placer.text.notes import say
from tf_placer.text.units import format_duration, format_step

__all__ = [
    "ProgressPrinter",
    "format_progress",
    "format_simulated_progress",
    "format_trial_and_best",
]


class ProgressPrinter(Callback):
    """The default callback: prints a line for each trial, and all notes, on standard error."""

    def __init__(self, say: Callable[[str], None] = say) -> None:
        """Initializes with a function that prints a line."""
        self._say = say

    def on_trial(self, trial: Trial, progress: Progress) -> None:
        """Prints the line of a trial."""
        self._say(format_progress(trial, progress))

    def on_note(self, line: str) -> None:
        """Prints a note."""
        self._say(line)


def format_progress(trial: Trial, progress: Progress) -> str:
    """Formats the result of a trial and the progress of the search on one line.

    The first numbers count trials, from 1; ± is the distance between the quartiles of the step
    times. An example, without the line break:

        [13/150] trial 12 colocrl: 98.70 ms ± 1.200 ms | best 95.10 ms (trial 7, contiguous) |
        bound 80.00 ms, gap 19% | elapsed 42 s | at most 7 min 40 s more

    The bound is simulated; it is left out while the costs of operations are unknown, and where a
    measured step is shorter, because the costs are then too high.

    Args:
        trial: the trial that has just ended.
        progress: the progress of the search after it.
    """
    return (
        f"{format_trial_and_best(trial, progress)} | "
        f"elapsed {format_duration(progress.elapsed_secs)} | "
        f"at most {format_duration(progress.eta_secs)} more"
    )


def format_trial_and_best(trial: Trial, progress: Progress) -> str:
    """Formats the result of a trial as `format_progress`, without times of the search."""
    result = _format_measurement(trial.measurement)
    if trial.repeats is not None:
        result += f" (as trial {trial.repeats})"
    best, bound_secs = progress.best, progress.bound_secs
    best_secs = None if best is None else best.measurement.median_secs
    if best is None or best_secs is None:
        best_text = "best none"
    elif best.index == trial.index:
        best_text = "best so far"
    else:
        best_text = f"best {format_step(best_secs)} (trial {best.index}, {best.placer})"
    if best_secs is not None and best_secs < (bound_secs or 0.0):
        bound_secs = None
    return (
        f"[{progress.trial_count}/{progress.budget.max_trials}] "
        f"trial {trial.index} {trial.placer}: {result} | {best_text}"
        f"{_format_gap(bound_secs, progress.gap)}"
    )


def format_simulated_progress(outcome: SearchOutcome, eta_secs: float) -> str:
    """Formats the progress of a simulated search, and the time that its budget leaves."""
    bound_secs = outcome.lower_bound_secs
    gap = compute_gap(outcome.step_secs if outcome.feasible else None, bound_secs)
    trials = "1 trial" if outcome.trials == 1 else f"{outcome.trials:,} trials"
    return (
        f"{trials} | best {format_outcome(outcome)}"
        f"{_format_gap(bound_secs, gap)} | "
        f"elapsed {format_duration(outcome.elapsed_secs)} | ETA {format_duration(eta_secs)}"
    )


def _format_gap(bound_secs: float | None, gap: float | None) -> str:
    """Formats the bound and the gap as a column; "" if they are unknown."""
    if not bound_secs:
        return ""
    text = "" if gap is None else f", gap {gap:.0%}"
    return f" | bound {format_step(bound_secs)}{text}"


def _format_measurement(measurement: Measurement) -> str:
    """Formats the median and spread of the step time, or the failure."""
    failure = measurement.failure
    if failure is not None:
        # The message of a time-out names the limit.
        is_timeout = failure.kind is FailureKind.TIMEOUT
        return f"timeout: {failure.message}" if is_timeout else failure.kind.value
    median_secs, spread_secs = measurement.median_secs, measurement.spread_secs
    assert median_secs is not None and spread_secs is not None
    return f"{format_step(median_secs)} ± {format_step(spread_secs)}"
