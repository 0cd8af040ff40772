"""What a search keeps of a placer that learns: its training log and its policy."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

from tf_placer.errors import error_text
from tf_placer.placers.placer import Placer
from tf_placer.search.concurrent import ConcurrentPlacer
from tf_placer.search.training_log import TrainingLog

__all__ = ["TrainingRecorder"]

_SAVE_SECS = 5.0


class TrainingRecorder:
    """Writes the updates of a placer as they come, and its policy when it has found something.

    The policy is saved when the best placement has improved, at most every few seconds, and at the
    end. Nothing is saved of a placer that has learned less than the log says: a search that goes on
    where it was begins with that.
    """

    def __init__(
        self,
        log: TrainingLog,
        directory: str | os.PathLike[str],
        say: Callable[[str], None],
    ) -> None:
        """Begins with what there is in a log.

        Args:
            log: of the placer that learns.
            directory: where the policy goes; it exists.
            say: called with a line for people when something cannot be written; no more is written
                then, and the search goes on.
        """
        self._log = log
        self._say = say
        self._can_write = True
        self._directory = directory
        self._placer: Placer | ConcurrentPlacer | None = None
        self._best_secs: float | None = None
        self._is_better = False
        self._saved_secs: float | None = None

    def observed(self, placer: Placer | ConcurrentPlacer) -> None:
        """Keeps what there is after a placer has observed; nothing of one that does not learn."""
        updates = placer.updates
        if not updates or len(updates) < self._log.num_updates or not self._can_write:
            return
        self._placer = placer
        try:
            self._log.extend(updates)
        except OSError as error:
            self._give_up(error)
            return
        best_secs = updates[-1].best_step_secs
        if best_secs is not None and (self._best_secs is None or best_secs < self._best_secs):
            self._best_secs, self._is_better = best_secs, True
        now_secs = time.monotonic()
        is_due = self._saved_secs is None or now_secs - self._saved_secs >= _SAVE_SECS
        if self._is_better and is_due:
            self._save(placer)

    def finish(self) -> None:
        """Keeps the policy as it is at the end."""
        if self._placer is not None and self._can_write:
            self._save(self._placer)

    def _give_up(self, error: OSError) -> None:
        self._can_write = False
        self._say(f"{error_text(error)}: what the placer learns from now on is not written")

    def _save(self, placer: Placer | ConcurrentPlacer) -> None:
        try:
            placer.save(self._directory)
        except OSError as error:
            self._give_up(error)
            return
        self._saved_secs, self._is_better = time.monotonic(), False
