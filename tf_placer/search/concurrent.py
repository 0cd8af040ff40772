"""Several controllers that propose at the same time, and the batches of all of them."""

from __future__ import annotations

import abc
import collections
import os
from collections.abc import Callable, Mapping, Sequence

from tf_placer.environments.environment import Measurement
from tf_placer.placers.update_record import UpdateRecord
from tf_placer.search.batches import SampledBatch
from tf_placer.search.replay import by_position
from tf_placer.search.trial_log import LogError, Trial

__all__ = ["ConcurrentPlacer", "ControllerBatches"]

# How long to wait for controllers where no placement is being measured.
_WAIT_SECS = 0.2


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


class ControllerBatches:
    """The batches of controllers, each of which waits for its own only; see `Batches`.

    A batch that the log has a part of is measured to its end, and what it has is not measured
    again.
    """

    look_secs = 0.05

    def __init__(
        self,
        placer: ConcurrentPlacer,
        logged: Sequence[Trial],
        observed: Callable[[ConcurrentPlacer], None],
    ) -> None:
        """Lets the controllers begin.

        Args:
            placer: the controllers, not begun.
            logged: their trials in the log.
            observed: called after they may have learned.

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
        """Lets controllers sample and learn; see `Batches.sample`."""
        batches = self._placer.advance(0.0 if is_busy else _WAIT_SECS)
        self._observed(self._placer)
        return batches

    def known(self, batch: SampledBatch) -> Mapping[int, Measurement]:
        """Says what the log has of a batch; see `Batches.known`."""
        rows = batch.placements.tolist()
        logged = by_position(self._logged.get((batch.controller, batch.batch), []))
        return {
            place: trial.measurement
            for place, trial in logged.items()
            if place < len(rows) and trial.assignment == tuple(rows[place])
        }

    def observe(self, batch: SampledBatch, measurements: Sequence[Measurement]) -> None:
        """Lets a controller begin to learn from its batch; see `Batches.observe`."""
        self._placer.learn(batch, measurements)

    def settle(self) -> None:
        """Waits until everything has been learned; see `Batches.settle`."""
        self._placer.settle()
        self._observed(self._placer)
