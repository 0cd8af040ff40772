"""What a search keeps of a placer that learns: its training log and its policy."""

from __future__ import annotations

import os
import time

from tf_placer.placers.placer import Placer
from tf_placer.search.training_log import TrainingLog

__all__ = ["TrainingRecorder"]

_SAVE_SECS = 5.0


class TrainingRecorder:
    """Writes the updates of a placer as they come, and its policy when it has found something.

    The policy is saved when the best placement has improved, at most every few seconds, and at the
    end. Nothing is saved of a placer that has learned less than the log says: a search that goes on
    where it was begins with that.
    """

    def __init__(self, log: TrainingLog, directory: str | os.PathLike[str]) -> None:
        """Begins with what there is in a log.

        Args:
            log: of the placer that learns.
            directory: where the policy goes; it exists.
        """
        self._log = log
        self._directory = directory
        self._placer: Placer | None = None
        self._best_secs: float | None = None
        self._is_better = False
        self._saved_secs: float | None = None

    def observed(self, placer: Placer) -> None:
        """Keeps what there is after a placer has observed; nothing of one that does not learn.

        Raises:
            OSError: a file cannot be written.
        """
        updates = placer.updates
        if not updates or len(updates) < self._log.num_updates:
            return
        self._placer = placer
        self._log.extend(updates)
        best_secs = updates[-1].best_step_secs
        if best_secs is not None and (self._best_secs is None or best_secs < self._best_secs):
            self._best_secs, self._is_better = best_secs, True
        now_secs = time.monotonic()
        is_due = self._saved_secs is None or now_secs - self._saved_secs >= _SAVE_SECS
        if self._is_better and is_due:
            self._save(placer)

    def finish(self) -> None:
        """Keeps the policy as it is at the end.

        Raises:
            OSError: it cannot be written.
        """
        if self._placer is not None:
            self._save(self._placer)

    def _save(self, placer: Placer) -> None:
        placer.save(self._directory)
        self._saved_secs, self._is_better = time.monotonic(), False
