"""A stage whose placements are proposed by several controllers at the same time."""

from __future__ import annotations

import abc
import collections
import dataclasses
import math
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import numpy as np

from tf_placer.environments.environment import Measurement
from tf_placer.placers.update_record import UpdateRecord
from tf_placer.search.measuring import Measuring
from tf_placer.search.replay import by_position
from tf_placer.search.trial_log import LogError, Trial

__all__ = ["ConcurrentPlacer", "Recording", "SampledBatch", "run_concurrently"]

# Between two looks at what controllers do while placements are measured, and where none is.
_LOOK_SECS, _WAIT_SECS = 0.05, 0.2


@dataclasses.dataclass(frozen=True, eq=False)
class SampledBatch:
    """Placements that a controller wants measured.

    Attributes:
        controller: its number, from 1.
        batch: number of the batch, from 0 for each controller.
        version: how many updates the weights had that it was sampled under.
        placements: int32 [num_placements, num_groups].
    """

    controller: int
    batch: int
    version: int
    placements: np.ndarray


class ConcurrentPlacer(abc.ABC):
    """Several controllers, each of which proposes a batch, waits for it, and learns from it.

    Attributes:
        name: what the log calls them.
    """

    name: str

    @property
    @abc.abstractmethod
    def updates(self) -> Sequence[UpdateRecord]:
        """What each update so far saw and did; see `Placer.updates`."""

    @abc.abstractmethod
    def begin(self, last_batches: Mapping[int, int]) -> None:
        """Begins, or goes on with what was saved.

        Args:
            last_batches: the number of the last batch in the log, by controller: the next one of
                each has a number of its own.
        """

    @abc.abstractmethod
    def advance(self, timeout_secs: float) -> list[SampledBatch]:
        """Lets controllers sample and learn.

        Args:
            timeout_secs: how long to wait for something to happen.

        Returns:
            What was sampled since, and after `begin` what is to be measured to its end.

        Raises:
            SearchError: controllers die again and again.
        """

    @abc.abstractmethod
    def learn(self, batch: SampledBatch, measurements: Sequence[Measurement]) -> None:
        """Begins to learn from a batch, whose controller samples the next one afterwards."""

    @abc.abstractmethod
    def settle(self) -> None:
        """Waits until everything has been learned that was measured, and samples no more."""

    @abc.abstractmethod
    def save(self, directory: str | os.PathLike[str]) -> None:
        """Writes the policy; see `Placer.save`."""

    @abc.abstractmethod
    def close(self) -> None:
        """Ends the processes."""


class Recording(Protocol):
    """What a stage needs of its search: its budget, its log, and what was measured before."""

    @property
    def measuring(self) -> Measuring:
        """What measures placements."""
        ...

    def is_over(self, under_way: int = 0) -> bool:
        """Says whether no further trial may start, where some are being measured."""
        ...

    def was_stopped(self) -> bool:
        """Says whether somebody ended the search, so that failures may have that for a reason."""
        ...

    def measured_before(self, row: tuple[int, ...]) -> Trial | None:
        """Finds the trial that measured a placement; None if none did."""
        ...

    def record(
        self,
        placer: str,
        batch: int,
        assignment: tuple[int, ...],
        measurement: Measurement,
        repeats: int | None,
        position: int,
        worker: str | None,
        controller: int,
        version: int,
    ) -> Trial:
        """Puts a trial into the log."""
        ...


@dataclasses.dataclass(frozen=True)
class _Place:
    """Where a placement is in which batch."""

    batch: SampledBatch
    position: int

    @property
    def row(self) -> tuple[int, ...]:
        return tuple(self.batch.placements[self.position].tolist())


def run_concurrently(
    search: Recording,
    placer: ConcurrentPlacer,
    logged: Sequence[Trial],
    observed: Callable[[ConcurrentPlacer], None],
) -> None:
    """Measures what controllers propose, until the search is over.

    Every controller waits for its own batch only. A batch that the log has a part of is measured to
    its end, and what it has is not measured again.

    Args:
        search: whose stage it is.
        placer: the controllers, not begun.
        logged: their trials in the log.
        observed: called with the placer after it may have learned.

    Raises:
        LogError: the log has trials of these controllers that no controller proposed.
        SearchError: controllers die again and again.
    """
    stage = _Stage(search, placer, logged)

    while not search.is_over(len(stage.under_way)):
        stage.advance()
        observed(placer)
    while stage.under_way:
        stage.measure(math.inf)
    stage.learn()
    placer.settle()
    observed(placer)


class _Stage:
    """What is being measured for which controller."""

    def __init__(
        self, search: Recording, placer: ConcurrentPlacer, logged: Sequence[Trial]
    ) -> None:
        self._search = search
        self._placer = placer
        self._logged: dict[tuple[int, int], list[Trial]] = collections.defaultdict(list)
        for trial in logged:
            if trial.controller is None:
                raise LogError(f"trial {trial.index} of {placer.name!r} has no controller")
            self._logged[trial.controller, trial.batch].append(trial)
        self._measured: dict[SampledBatch, dict[int, Measurement]] = {}
        self._waiting: collections.deque[_Place] = collections.deque()
        self._num_started = 0
        self.under_way: dict[int, _Place] = {}
        last: dict[int, int] = {}
        for controller, batch in self._logged:
            last[controller] = max(batch, last.get(controller, -1))
        placer.begin(last)

    def advance(self) -> None:
        """Takes in what was sampled, starts what can be measured, and what has ended."""
        is_busy = bool(self.under_way)
        for batch in self._placer.advance(0.0 if is_busy else _WAIT_SECS):
            self._take(batch)
        self._start()
        if self.under_way:
            self.measure(_LOOK_SECS if is_busy else 0.0)
        self.learn()

    def measure(self, timeout_secs: float) -> None:
        """Logs what has been measured."""
        for ended in self._search.measuring.finished(timeout_secs):
            place = self.under_way.pop(ended.key)
            if ended.measurement.failure is not None and self._search.was_stopped():
                continue
            self._record(place, ended.measurement, None, ended.worker)

    def learn(self) -> None:
        """Lets controllers learn from the batches that are whole."""
        whole = [b for b, done in self._measured.items() if len(done) == len(b.placements)]
        for batch in whole:
            measured = self._measured.pop(batch)
            self._placer.learn(batch, [measured[n] for n in range(len(batch.placements))])

    def _take(self, batch: SampledBatch) -> None:
        """Takes in a batch, of which the log may have a part."""
        known = by_position(self._logged.get((batch.controller, batch.batch), []))
        self._measured[batch] = {}
        for position in range(len(batch.placements)):
            place = _Place(batch, position)
            trial = known.get(position)
            if trial is not None and trial.assignment == place.row:
                self._measured[batch][position] = trial.measurement
            else:
                self._waiting.append(place)

    def _start(self) -> None:
        """Starts to measure as many as can be; what is being measured already has to wait."""
        later = []
        rows = {place.row for place in self.under_way.values()}
        while self._waiting and not self._search.is_over(len(self.under_way)):
            place = self._waiting.popleft()
            same = self._search.measured_before(place.row)
            if same is not None:
                self._record(place, same.measurement, same.index, None)
            elif place.row in rows:
                later.append(place)
            elif len(self.under_way) < self._search.measuring.capacity:
                self._num_started += 1
                rows.add(place.row)
                self.under_way[self._num_started] = place
                self._search.measuring.start(
                    self._num_started, place.batch.placements[place.position]
                )
            else:
                self._waiting.appendleft(place)
                break
        self._waiting.extendleft(reversed(later))

    def _record(
        self, place: _Place, measurement: Measurement, repeats: int | None, worker: str | None
    ) -> None:
        batch = place.batch
        self._measured[batch][place.position] = measurement
        self._search.record(
            self._placer.name,
            batch.batch,
            place.row,
            measurement,
            repeats,
            place.position,
            worker,
            batch.controller,
            batch.version,
        )
