"""The recorder of a learned placer's training log and policy."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

from tf_placer.errors import describe_error
from tf_placer.placers.placer import Placer
from tf_placer.search.concurrent import ConcurrentPlacer
from tf_placer.search.training_log import TrainingLog

__all__ = ["TrainingRecorder"]

_MIN_SECS_BETWEEN_SAVES = 5.0


class TrainingRecorder:
    """Writes the updates of a placer when they happen, and its policy when the result improves.

    The policy is saved when the best placement has improved, at most every few seconds, and at the
    end. Nothing is saved while a placer has fewer updates than the log: in a resumed search it
    first observes the logged batches again.
    """

    def __init__(
        self,
        log: TrainingLog,
        directory: str | os.PathLike[str],
        say: Callable[[str], None],
    ) -> None:
        """Resumes the record of a log.

        Args:
            log: training log of the placer.
            directory: existing directory for the policy.
            say: called with a message for people if a file cannot be written; the search then
                continues, and nothing more is written.
        """
        self._log = log
        self._say = say
        self._can_write = True
        self._directory = directory
        self._placer: Placer | ConcurrentPlacer | None = None
        self._best_secs: float | None = None
        self._is_better = False
        self._saved_secs: float | None = None

    def record(self, placer: Placer | ConcurrentPlacer) -> None:
        """Records new updates after a placer has observed; ignores a placer that does not learn."""
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
        is_due = self._saved_secs is None or now_secs - self._saved_secs >= _MIN_SECS_BETWEEN_SAVES
        if self._is_better and is_due:
            self._save(placer)

    def finish(self) -> None:
        """Saves the final policy."""
        if self._placer is not None and self._can_write:
            self._save(self._placer)

    def _give_up(self, error: OSError) -> None:
        self._can_write = False
        self._say(f"{describe_error(error)}: further updates of the placer will not be saved")

    def _save(self, placer: Placer | ConcurrentPlacer) -> None:
        try:
            placer.save(self._directory)
        except OSError as error:
            self._give_up(error)
            return
        self._saved_secs, self._is_better = time.monotonic(), False
