"""Messages about a search, from its process to the calling process."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from tf_placer.search.budget import Budget, Progress
from tf_placer.search.callbacks import Callback, report_trial
from tf_placer.search.trial_log import Trial

__all__ = ["MessageSender", "pass_on"]


class MessageSender(Callback):
    """A callback in the search process that sends everything to the calling process."""

    def __init__(self, send: Callable[[Mapping[str, Any]], None]) -> None:
        """Uses a connection.

        Args:
            send: sends a JSON object.
        """
        self._send = send

    def on_trial(self, trial: Trial, progress: Progress) -> None:
        """Sends a trial and the progress; the receiver may answer with a command to end."""
        best = progress.best
        self._send(
            {
                "trial": trial.to_json(),
                "trial_count": progress.trial_count,
                "budget": dataclasses.asdict(progress.budget),
                "best": None if best is None else best.to_json(),
                "elapsed_secs": progress.elapsed_secs,
                "eta_secs": progress.eta_secs,
                "bound_secs": progress.bound_secs,
            }
        )

    def on_stage(self, name: str) -> None:
        """Sends the name of a stage."""
        self._send({"stage": name})

    def on_note(self, line: str) -> None:
        """Sends a line."""
        self._send({"line": line})


def pass_on(message: Mapping[str, Any], callback: Callback) -> bool:
    """Passes a message of a `MessageSender` on to a callback.

    Returns:
        Whether the callback wants the search to end.
    """
    if "line" in message:
        callback.on_note(message["line"])
    elif "stage" in message:
        callback.on_stage(message["stage"])
    else:
        best = message["best"]
        progress = Progress(
            trial_count=message["trial_count"],
            budget=Budget(**message["budget"]),
            best=None if best is None else Trial.from_json(best),
            elapsed_secs=message["elapsed_secs"],
            eta_secs=message["eta_secs"],
            bound_secs=message["bound_secs"],
        )
        return report_trial(callback, Trial.from_json(message["trial"]), progress)
    return False
