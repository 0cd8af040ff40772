"""Callbacks, through which programs follow a live search and may end it."""

from __future__ import annotations

from collections.abc import Sequence

from tf_placer.search.budget import Progress
from tf_placer.search.trial_log import Trial

__all__ = ["Callback", "Callbacks", "report_trial"]


class Callback:
    """A listener to a live search, to derive from; its own methods do nothing.

    All methods are called in the process that started the search, one after the other, while the
    search continues in its own process. An error raised in one of them ends the search without a
    result; its log keeps all trials, and the same call resumes it.

    Example:
        class Enough(tf_placer.Callback):
            def on_trial(self, trial, progress):
                best = progress.best
                return best is not None and (best.measurement.median_secs or 1.0) < 0.1

        tf_placer.optimize(graph, callbacks=[Enough()])
    """

    def on_trial(self, trial: Trial, progress: Progress) -> bool | None:
        """Receives each new trial, but not those that a resumed search finds in its log.

        Args:
            trial: the trial as logged. Trial 0 is the original graph.
            progress: the state of the search after the trial.

        Returns:
            True to end the search as Ctrl-C does: with the best placement so far, after a short
            confirmation. Later return values have no effect.
        """

    def on_best(self, trial: Trial) -> None:
        """Receives each trial that is the fastest so far, after `on_trial`."""

    def on_stage(self, name: str) -> None:
        """Receives the name of a part of the work when it begins: "measuring placements"."""

    def on_note(self, line: str) -> None:
        """Receives a message for people that is not about one trial."""


class Callbacks(Callback):
    """A callback that passes each call on to several callbacks, in order."""

    def __init__(self, callbacks: Sequence[Callback]) -> None:
        """Takes the callbacks to call."""
        self._callbacks = tuple(callbacks)

    def on_trial(self, trial: Trial, progress: Progress) -> bool:
        """Calls `on_trial` of all, and returns true if one of them does."""
        return any([bool(each.on_trial(trial, progress)) for each in self._callbacks])

    def on_best(self, trial: Trial) -> None:
        """Calls `on_best` of all."""
        for each in self._callbacks:
            each.on_best(trial)

    def on_stage(self, name: str) -> None:
        """Calls `on_stage` of all."""
        for each in self._callbacks:
            each.on_stage(name)

    def on_note(self, line: str) -> None:
        """Calls `on_note` of all."""
        for each in self._callbacks:
            each.on_note(line)


def report_trial(callback: Callback, trial: Trial, progress: Progress) -> bool:
    """Passes a trial to a callback, also to `on_best` if it is the fastest so far.

    Returns:
        Whether the callback requests the end of the search.
    """
    wants_end = bool(callback.on_trial(trial, progress))
    if progress.best is not None and progress.best.index == trial.index:
        callback.on_best(trial)
    return wants_end
