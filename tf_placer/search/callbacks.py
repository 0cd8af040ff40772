"""Callbacks of a live search: programs follow it by them, and may end it."""

from __future__ import annotations

from collections.abc import Sequence

from tf_placer.search.budget import Progress
from tf_placer.search.trial_log import Trial

__all__ = ["Callback", "Callbacks", "report_trial"]


class Callback:
    """A listener to a live search; derive from it what listens. By itself it does nothing.

    All methods are called in the process that asked for the search, one after the other, while the
    search goes on in its own process. An error that one of them raises ends the search without a
    result; its log keeps all trials, and the same call resumes there.

    Example:
        class Enough(tf_placer.Callback):
            def on_trial(self, trial, progress):
                best = progress.best
                return best is not None and (best.measurement.median_secs or 1.0) < 0.1

        tf_placer.optimize(graph, callbacks=[Enough()])
    """

    def on_trial(self, trial: Trial, progress: Progress) -> bool | None:
        """Hears of a new trial; not of those that a resumed search finds in its log.

        Args:
            trial: as the log has it. Trial 0 is the graph as it came.
            progress: where the search stands after it.

        Returns:
            True to end the search as an interrupt from the keyboard does: with the best so far,
            after a short confirmation. What is returned afterwards changes nothing.
        """

    def on_best(self, trial: Trial) -> None:
        """Hears of a trial that is the fastest so far, after `on_trial`."""

    def on_stage(self, name: str) -> None:
        """Hears that another part of the work begins, such as "measuring placements"."""

    def on_note(self, line: str) -> None:
        """Hears a line for people that is not about one trial."""


class Callbacks(Callback):
    """Several callbacks as one; each method calls that of all, in their order."""

    def __init__(self, callbacks: Sequence[Callback]) -> None:
        """Takes over the callbacks."""
        self._callbacks = tuple(callbacks)

    def on_trial(self, trial: Trial, progress: Progress) -> bool:
        """Returns true if one of them does."""
        return any([bool(each.on_trial(trial, progress)) for each in self._callbacks])

    def on_best(self, trial: Trial) -> None:
        """Calls all."""
        for each in self._callbacks:
            each.on_best(trial)

    def on_stage(self, name: str) -> None:
        """Calls all."""
        for each in self._callbacks:
            each.on_stage(name)

    def on_note(self, line: str) -> None:
        """Calls all."""
        for each in self._callbacks:
            each.on_note(line)


def report_trial(callback: Callback, trial: Trial, progress: Progress) -> bool:
    """Tells a callback of a trial, also that it is the fastest so far.

    Returns:
        Whether the callback wants the search to end.
    """
    wants_end = bool(callback.on_trial(trial, progress))
    if progress.best is not None and progress.best.index == trial.index:
        callback.on_best(trial)
    return wants_end
