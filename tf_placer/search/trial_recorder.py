"""The record of a search: its budget, its log, and its incomplete batches."""

from __future__ import annotations

import collections
import datetime
import time
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from tf_placer.environments.environment import Measurement
from tf_placer.search.batches import SampledBatch
from tf_placer.search.budget import Budget, Progress
from tf_placer.search.runner import CompletedTrial
from tf_placer.search.trial_log import Trial, TrialLog, best_trial

__all__ = ["StageTrials", "TrialRecorder"]

_Key = tuple[SampledBatch, int]
"""The key of a placement under way: a batch, and a position in it."""

# The batch of the original graph.
_NO_BATCH = SampledBatch(0, 0, 0, np.zeros([0, 0], np.int32))


class TrialRecorder:
    """Records the trials of one search, and tracks the rest of its budget.

    Attributes:
        num_trials: the number of trials so far.
        keeps_trials: whether there is a log, in which earlier measurements can be found.
    """

    def __init__(
        self,
        log: TrialLog | None,
        budget: Budget,
        report: Callable[[Trial, Progress], None] | None,
        should_stop: Callable[[], bool] | None,
    ) -> None:
        """Starts the clock of the search, or resumes it from the log.

        Args:
            log: stores the trials, and may have those of an earlier call; None to count them only.
            budget: the limits of the search.
            report: called after each logged trial.
            should_stop: returns true to end the search as the budget would.
        """
        self._log = log
        self._budget = budget
        self._report = report
        trials = () if log is None else log.trials
        self.num_trials = len(trials)
        self.keeps_trials = log is not None
        self._best = best_trial(trials)
        self._trial_by_assignment: dict[tuple[int, ...], Trial] = {}
        for trial in trials:
            self._index(trial)
        earlier_secs = trials[-1].elapsed_secs if trials else 0.0
        self._start_secs = time.monotonic() - earlier_secs
        self._should_stop = should_stop or (lambda: False)
        self._is_stopped = False

    def is_over(self, num_under_way: int = 0) -> bool:
        """Returns whether no further trial may start, given the number under way."""
        return self.count_remaining(num_under_way) == 0

    def count_remaining(self, num_under_way: int) -> int:
        """Counts the trials that may still start, given the number under way."""
        if self._measure_elapsed() >= self._budget.max_secs or self.was_stopped():
            return 0
        return max(0, self._budget.max_trials - self.num_trials - num_under_way)

    def was_stopped(self) -> bool:
        """Returns whether the search was stopped, which may also have caused failures."""
        # A stopped search stays stopped: no batch may follow one that it left incomplete.
        self._is_stopped = self._is_stopped or self._should_stop()
        return self._is_stopped

    def find_measured(self, row: tuple[int, ...]) -> Trial | None:
        """Finds the trial that measured a placement; None if there is none."""
        return self._trial_by_assignment.get(row)

    def record(
        self,
        placer: str,
        key: _Key | None,
        measurement: Measurement,
        worker: str | None = None,
        repeats: int | None = None,
        is_next: bool = True,
    ) -> None:
        """Logs a trial, and reports it.

        Args:
            placer: name of the placer that proposed it.
            key: its batch, and its position there; None for the original graph.
            measurement: the measurement.
            worker: see `Trial`.
            repeats: see `Trial`.
            is_next: whether the log has all earlier trials of its batch and no later ones.
        """
        self.num_trials += 1
        if self._log is None:
            return
        secs = self._measure_elapsed()
        batch, position = key or (_NO_BATCH, 0)
        trial = Trial(
            index=self.num_trials - 1,
            placer=placer,
            batch=batch.batch,
            assignment=_row(key) if key else None,
            measurement=measurement,
            repeats=repeats,
            elapsed_secs=round(secs, 3),
            time=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            position=None if is_next and not batch.controller else position,
            worker=worker,
            controller=batch.controller or None,
            version=batch.version if batch.controller else None,
        )
        self._log.append(trial)
        self._index(trial)
        self._best = best_trial(best for best in (self._best, trial) if best is not None)
        if self._report is not None:
            eta_secs = self._budget.eta_secs(self.num_trials, secs)
            progress = Progress(self.num_trials, self._budget, self._best, secs, eta_secs)
            self._report(trial, progress)

    def _measure_elapsed(self) -> float:
        return time.monotonic() - self._start_secs

    def _index(self, trial: Trial) -> None:
        if trial.assignment is not None:
            self._trial_by_assignment.setdefault(trial.assignment, trial)


class StageTrials:
    """The incomplete batches of a stage, and their placements under way."""

    def __init__(self, name: str, recorder: TrialRecorder) -> None:
        """Starts without batches.

        Args:
            name: name of the placer.
            recorder: recorder of the search.
        """
        self._name = name
        self._recorder = recorder
        self._measured: dict[SampledBatch, dict[int, Measurement]] = {}
        self._waiting: collections.deque[_Key] = collections.deque()
        self._under_way: set[_Key] = set()

    @property
    def num_under_way(self) -> int:
        """The number of placements that are being measured."""
        return len(self._under_way)

    def add(self, batch: SampledBatch, logged: Mapping[int, Measurement]) -> None:
        """Adds a batch, of which the log may have some measurements."""
        self._measured[batch] = dict(logged)
        positions = range(len(batch.placements))
        self._waiting.extend([(batch, each) for each in positions if each not in logged])

    def take_next(self, capacity: int) -> list[_Key]:
        """Takes the placements to measure next, and records those measured before at once."""
        count = min(
            capacity - self.num_under_way, self._recorder.count_remaining(self.num_under_way)
        )
        if self._recorder.keeps_trials:
            keys = self._take_unmeasured(count)
        else:
            keys = [self._waiting.popleft() for _ in range(min(count, len(self._waiting)))]
        self._under_way.update(keys)
        return keys

    def _take_unmeasured(self, count: int) -> list[_Key]:
        """Takes up to `count` placements that are neither measured nor under way."""
        keys: list[_Key] = []
        later: list[_Key] = []
        rows = {_row(key) for key in self._under_way}
        while self._waiting and len(keys) < count:
            key = self._waiting.popleft()
            row = _row(key)
            same = self._recorder.find_measured(row)
            if same is not None:
                self._record(key, same.measurement, None, same.index)
                count = min(count, self._recorder.count_remaining(self.num_under_way))
            elif row in rows:
                later.append(key)
            else:
                rows.add(row)
                keys.append(key)
        self._waiting.extendleft(reversed(later))
        return keys

    def record(self, completed: Sequence[CompletedTrial]) -> None:
        """Records completed trials, except failures that a stop of the search may have caused."""
        self._under_way.difference_update([each.key for each in completed])
        for key, measurement, worker in completed:
            if measurement.failure is None or not self._recorder.was_stopped():
                self._record(key, measurement, worker)

    def pop_complete_batches(self) -> Iterator[tuple[SampledBatch, list[Measurement]]]:
        """Yields the batches that are completely measured, each once."""
        for batch, measured in list(self._measured.items()):
            if len(measured) == len(batch.placements):
                del self._measured[batch]
                yield batch, [measured[position] for position in range(len(measured))]

    def _record(
        self, key: _Key, measurement: Measurement, worker: str | None, repeats: int | None = None
    ) -> None:
        batch, position = key
        measured = self._measured[batch]
        is_next = position == len(measured)
        measured[position] = measurement
        self._recorder.record(self._name, key, measurement, worker, repeats, is_next)


def _row(key: _Key) -> tuple[int, ...]:
    batch, position = key
    return tuple(batch.placements[position].tolist())
