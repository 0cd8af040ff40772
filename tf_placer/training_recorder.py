"""What a search keeps of a placer that learns: its training log and its policy."""

from __future__ import annotations

import os
import time

from tf_placer.placers.placer import Placer
from tf_placer.training_log import TrainingLog

__all__ = ["TrainingRecorder"]

_SAVE_SECS = 5.0


class TrainingRecorder:
    """Writes the updates of a placer as they come, and its policy when it has found something.

    The policy is saved when the best placement has improved, at most every few seconds, and at the
    end. Nothing is saved of a placer that has learned less than the log says: a search that goes on
    where it was begins with that.
    """

    def __init__(self, log: TrainingLog, placer: Placer, directory: str | os.PathLike[str]) -> None:
        """Begins with what there is in a log.

        Args:
            log: of this placer.
            placer: whose updates are kept.
            directory: where the policy goes; it exists.
        """
        self._log = log
        self._placer = placer
        self._directory = directory
        self._best_secs: float | None = None
        self._is_better = False
        self._saved_secs: float | None = None

    def observed(self, placer: Placer) -> None:
        """Keeps what there is after the placer has observed; nothing of other placers.

        Raises:
            OSError: a file cannot be written.
        """
        updates = placer.updates
        if placer is not self._placer or not updates or len(updates) < self._log.num_updates:
            return
        self._log.extend(updates)
        best_secs = updates[-1].best_step_secs
        if best_secs is not None and (self._best_secs is None or best_secs < self._best_secs):
            self._best_secs, self._is_better = best_secs, True
        now_secs = time.monotonic()
        is_due = self._saved_secs is None or now_secs - self._saved_secs >= _SAVE_SECS
        if self._is_better and is_due:
            self._save()

    def finish(self) -> None:
        """Keeps the policy as it is at the end.

        Raises:
            OSError: it cannot be written.
        """
        updates = self._placer.updates
        if updates and len(updates) >= self._log.num_updates:
            self._save()

    def _save(self) -> None:
        self._placer.save(self._directory)
        self._saved_secs, self._is_better = time.monotonic(), False
