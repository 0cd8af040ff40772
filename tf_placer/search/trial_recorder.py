"""The record of a search: its budget, its log, and the batches that are not whole."""

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
"""A placement that is measured: a batch, and a place in it."""

# The graph as it came is in none.
_NO_BATCH = SampledBatch(0, 0, 0, np.zeros([0, 0], np.int32))


class TrialRecorder:
    """The log of one search, and what of its budget is left.

    Attributes:
        num_trials: how many trials there were.
        keeps_trials: whether there is a log, so that what was measured before is known.
    """

    def __init__(
        self,
        log: TrialLog | None,
        budget: Budget,
        report: Callable[[Trial, Progress], None] | None,
        should_stop: Callable[[], bool] | None,
    ) -> None:
        """Begins to count time.

        Args:
            log: keeps the trials, and may have those of an earlier search; None to count them only.
            budget: when the search ends.
            report: called after each trial that is logged.
            should_stop: true ends the search as the budget would.
        """
        self._log = log
        self._budget = budget
        self._report = report
        trials = () if log is None else log.trials
        self.num_trials = len(trials)
        self.keeps_trials = log is not None
        self._best = best_trial(trials)
        # By placement, the trial that measured it.
        self._measured: dict[tuple[int, ...], Trial] = {}
        for trial in trials:
            self._index(trial)
        earlier_secs = trials[-1].elapsed_secs if trials else 0.0
        self._start_secs = time.monotonic() - earlier_secs
        self._should_stop = should_stop or (lambda: False)
        self._is_stopped = False

    def is_over(self, num_under_way: int = 0) -> bool:
        """Says whether no further trial may start, where some are being measured."""
        return self.room(num_under_way) == 0

    def room(self, num_under_way: int) -> int:
        """Counts the trials that may start, where some are being measured."""
        if self._elapsed_secs() >= self._budget.max_secs or self.was_stopped():
            return 0
        return max(0, self._budget.max_trials - self.num_trials - num_under_way)

    def was_stopped(self) -> bool:
        """Says whether somebody ended the search, so that failures may have that for a reason."""
        # Once stopped, a search stays so: a batch that it left is not to be followed by another.
        self._is_stopped = self._is_stopped or self._should_stop()
        return self._is_stopped

    def measured_before(self, row: tuple[int, ...]) -> Trial | None:
        """Finds the trial that measured a placement; None if none did."""
        return self._measured.get(row)

    def record(
        self,
        placer: str,
        key: _Key | None,
        measurement: Measurement,
        worker: str | None = None,
        repeats: int | None = None,
        is_next: bool = True,
    ) -> None:
        """Puts a trial into the log, and tells who asked to be told.

        Args:
            placer: name of the placer that proposed it.
            key: the batch that it came in, and its place there; None for the graph as it came.
            measurement: what running it gave.
            worker: see `Trial`.
            repeats: see `Trial`.
            is_next: whether all before it in its batch are in the log, and none behind it.
        """
        self.num_trials += 1
        if self._log is None:
            return
        secs = self._elapsed_secs()
        batch, place = key or (_NO_BATCH, 0)
        trial = Trial(
            index=self.num_trials - 1,
            placer=placer,
            batch=batch.batch,
            assignment=_row(key) if key else None,
            measurement=measurement,
            repeats=repeats,
            elapsed_secs=round(secs, 3),
            time=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            position=None if is_next and not batch.controller else place,
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

    def _elapsed_secs(self) -> float:
        return time.monotonic() - self._start_secs

    def _index(self, trial: Trial) -> None:
        if trial.assignment is not None:
            self._measured.setdefault(trial.assignment, trial)


class StageTrials:
    """The batches of a stage that are not whole, and what of them is being measured."""

    def __init__(self, name: str, recorder: TrialRecorder) -> None:
        """Has no batch yet.

        Args:
            name: of the placer.
            recorder: of the search.
        """
        self._name = name
        self._recorder = recorder
        self._measured: dict[SampledBatch, dict[int, Measurement]] = {}
        self._waiting: collections.deque[_Key] = collections.deque()
        self._under_way: set[_Key] = set()

    @property
    def num_under_way(self) -> int:
        """How many placements are being measured."""
        return len(self._under_way)

    def add(self, batch: SampledBatch, known: Mapping[int, Measurement]) -> None:
        """Takes in a batch of which some is known."""
        self._measured[batch] = dict(known)
        places = range(len(batch.placements))
        self._waiting.extend([(batch, place) for place in places if place not in known])

    def next_ones(self, capacity: int) -> list[_Key]:
        """Says what is to be measured now; what was measured before is recorded at once."""
        room = min(capacity - self.num_under_way, self._recorder.room(self.num_under_way))
        if self._recorder.keeps_trials:
            keys = self._new_ones(room)
        else:
            keys = [self._waiting.popleft() for _ in range(min(room, len(self._waiting)))]
        self._under_way.update(keys)
        return keys

    def _new_ones(self, room: int) -> list[_Key]:
        """Finds up to so many placements that nobody has measured or is measuring."""
        keys: list[_Key] = []
        later: list[_Key] = []
        rows = {_row(key) for key in self._under_way}
        while self._waiting and len(keys) < room:
            key = self._waiting.popleft()
            row = _row(key)
            same = self._recorder.measured_before(row)
            if same is not None:
                self._record(key, same.measurement, None, same.index)
                room = min(room, self._recorder.room(self.num_under_way))
            elif row in rows:
                later.append(key)
            else:
                rows.add(row)
                keys.append(key)
        self._waiting.extendleft(reversed(later))
        return keys

    def record(self, completed: Sequence[CompletedTrial]) -> None:
        """Takes in what was measured; not what failed for having been stopped."""
        self._under_way.difference_update([each.key for each in completed])
        for key, measurement, worker in completed:
            if measurement.failure is None or not self._recorder.was_stopped():
                self._record(key, measurement, worker)

    def whole_batches(self) -> Iterator[tuple[SampledBatch, list[Measurement]]]:
        """Yields the batches of which all is known, each once."""
        for batch, measured in list(self._measured.items()):
            if len(measured) == len(batch.placements):
                del self._measured[batch]
                yield batch, [measured[place] for place in range(len(measured))]

    def _record(
        self, key: _Key, measurement: Measurement, worker: str | None, repeats: int | None = None
    ) -> None:
        batch, place = key
        measured = self._measured[batch]
        is_next = place == len(measured)
        measured[place] = measurement
        self._recorder.record(self._name, key, measurement, worker, repeats, is_next)


def _row(key: _Key) -> tuple[int, ...]:
    batch, place = key
    return tuple(batch.placements[place].tolist())
