"""The interface of several controllers that propose at the same time, and their batches."""

from __future__ import annotations

import abc
import collections
import os
from collections.abc import Callable, Mapping, Sequence

from tf_placer.environments.environment import Measurement
from tf_placer.placers.update_record import UpdateRecord
from tf_placer.search.batches import SampledBatch
from tf_placer.search.replay import index_by_position
from tf_placer.search.trial_log import LogError, Trial

__all__ = ["ConcurrentPlacer", "ControllerBatches"]

_IDLE_WAIT_SECS = 0.2


class ConcurrentPlacer(abc.ABC):
    """Several controllers, each of which proposes a batch, waits for it, and learns from it.

    Attributes:
        name: the name of the placer in the log.
    """

    name: str

    @property
    @abc.abstractmethod
    def updates(self) -> Sequence[UpdateRecord]:
        """The records of all updates so far; see `Placer.updates`."""

    @abc.abstractmethod
    def begin(self, last_batches: Mapping[int, int]) -> None:
        """Begins, or resumes from a checkpoint.

        Args:
            last_batches: the number of the last batch in the log, by controller; new batches get
                higher numbers.
        """

    @abc.abstractmethod
    def advance(self, timeout_secs: float) -> list[SampledBatch]:
        """Lets controllers sample and learn.

        Args:
            timeout_secs: the longest wait for a controller to finish something.

        Returns:
            The batches sampled since the last call; after `begin`, also those of the checkpoint
            that were not completely measured.

        Raises:
            SearchError: controllers die repeatedly.
        """

    @abc.abstractmethod
    def learn(self, batch: SampledBatch, measurements: Sequence[Measurement]) -> None:
        """Starts to learn from a batch, after which its controller samples the next one."""

    @abc.abstractmethod
    def settle(self) -> None:
        """Waits until the controllers have learned from all measured batches; samples no more."""

    @abc.abstractmethod
    def save(self, directory: str | os.PathLike[str]) -> None:
        """Writes the policy; see `Placer.save`."""

    @abc.abstractmethod
    def close(self) -> None:
        """Ends the processes."""


class ControllerBatches:
    """The batches of controllers, each of which waits for its own only; see `BatchSource`.

    Of a batch that the log has a part of, only the rest is measured.
    """

    poll_secs = 0.05

    def __init__(
        self,
        placer: ConcurrentPlacer,
        logged: Sequence[Trial],
        observed: Callable[[ConcurrentPlacer], None],
    ) -> None:
        """Lets the controllers begin.

        Args:
            placer: the controllers, whose `begin` was not called yet.
            logged: the trials of the controllers in the log.
            observed: called whenever the controllers may have learned.

        Raises:
            LogError: the log has trials of these controllers that no controller proposed.
        """
        self._placer = placer
        self._observed = observed
        self._logged: dict[tuple[int, int], list[Trial]] = collections.defaultdict(list)
        last: dict[int, int] = {}
        for trial in logged:
            if trial.controller is None:
                raise LogError(f"trial {trial.index} of {placer.name!r} has no controller")
            self._logged[trial.controller, trial.batch].append(trial)
            last[trial.controller] = max(trial.batch, last.get(trial.controller, -1))
        placer.begin(last)

    def sample(self, is_busy: bool) -> list[SampledBatch]:
        """Lets controllers sample and learn; see `BatchSource.sample`."""
        batches = self._placer.advance(0.0 if is_busy else _IDLE_WAIT_SECS)
        self._observed(self._placer)
        return batches

    def find_logged(self, batch: SampledBatch) -> Mapping[int, Measurement]:
        """Finds the measurements of a batch in the log; see `BatchSource.find_logged`."""
        rows = batch.placements.tolist()
        logged = index_by_position(self._logged.get((batch.controller, batch.batch), []))
        return {
            place: trial.measurement
            for place, trial in logged.items()
            if place < len(rows) and trial.assignment == tuple(rows[place])
        }

    def observe(self, batch: SampledBatch, measurements: Sequence[Measurement]) -> None:
        """Lets a controller start to learn from its batch; see `BatchSource.observe`."""
        self._placer.learn(batch, measurements)

    def settle(self) -> None:
        """Waits until all batches have been learned from; see `BatchSource.settle`."""
        self._placer.settle()
        self._observed(self._placer)
