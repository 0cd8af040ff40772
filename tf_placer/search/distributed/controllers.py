"""Several controllers that share one parameter server: ColocRL's asynchronous training.

References:
    Mirhoseini et al., Device Placement Optimization with Reinforcement Learning, ICML 2017,
    section 3.3: controllers sample placements, each waits for its own, and gradients are applied
    to shared weights without waiting for the others.
"""

from __future__ import annotations

import collections
import copy
import dataclasses
import os
import pathlib
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tf_placer.environments.environment import Measurement
from tf_placer.files import write_bytes
from tf_placer.placers.learned.training_values import Learned
from tf_placer.placers.update_record import UpdateRecord
from tf_placer.search.batches import SampledBatch
from tf_placer.search.concurrent import ConcurrentPlacer
from tf_placer.search.distributed.fleet import Fleet
from tf_placer.search.distributed.kept_weights import KeptBatch, KeptWeights, WeightsKeeper
from tf_placer.search.distributed.supervision import SupervisedActor, Timeouts

__all__ = ["Controllers"]

_POLL_SECS = 0.2


@dataclasses.dataclass(eq=False)
class _Slot:
    """A controller, whichever process has its place.

    Attributes:
        number: from 1.
        actor: its process.
        state: what it remembers of its earlier batches.
        next_batch: number of the batch that it samples next.
        batch: what it has sampled and not learned yet.
        kept: the same with its actions.
        parameters: the call that gave the weights that it was sampled under; None for weights that
            are gone with an earlier search.
        asked: the version of the weights that it samples under now.
        measurements: of its batch; None before all have ended.
        learned: what came of them, and has not been applied yet.
        steps: the call that gave that.
    """

    number: int
    actor: SupervisedActor
    state: Mapping[str, np.ndarray] = dataclasses.field(default_factory=dict)
    next_batch: int = 0
    batch: SampledBatch | None = None
    kept: KeptBatch | None = None
    parameters: Any = None
    asked: int = 0
    measurements: Sequence[Measurement] | None = None
    learned: Learned | None = None
    steps: Any = None


class Controllers(ConcurrentPlacer):
    """Samples by several processes, and has one other process apply what they learn.

    A controller samples a batch under the current weights, waits until it is measured, computes its
    gradients under the weights that it was sampled under, has them applied to the current ones, and
    samples again. No controller waits for another. Each has a baseline of its own.

    Weights, and what is learned, are results of calls, which no process keeps. What one that is
    lost was doing is done again from the same weights and measurements, so an update is applied
    once.

    Attributes:
        version: how many updates the weights have had.
    """

    def __init__(
        self,
        name: str,
        controllers: Fleet,
        server: Fleet,
        count: int,
        *,
        directory: str | os.PathLike[str] | None,
        updates: Sequence[UpdateRecord] = (),
        lift: Callable[[np.ndarray], np.ndarray] = lambda placements: placements,
        say: Callable[[str], None] = lambda line: None,
        timeouts: Timeouts | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Starts the processes and does not wait for them.

        Args:
            name: of the placer.
            controllers: starts `Controller`s.
            server: starts a `ParameterServer`, which takes calls of controllers for arguments.
            count: how many controllers.
            directory: of the run, where the weights are kept; None to keep nothing.
            updates: those of the training log; of a search that goes on.
            lift: turns placements of controllers into those that are measured.
            say: called with a line for people when a process is lost.
            timeouts: how long to wait for what.
            clock: gives the time in seconds.
        """
        self.name = name
        self.version = 0
        self._fleets = controllers, server
        self._keeper = WeightsKeeper(directory, say, clock)
        self._records = list(updates)
        self._lift = lift
        self._say = say
        self._num_samples = 0
        self._has_changed = False
        # The call that gave the current weights; None before the first.
        self._parameters: Any = None
        self._policy: Mapping[str, bytes] = {}
        self._is_policy_wanted = False
        self._server = SupervisedActor(server, "the parameter server", say, timeouts, clock)
        self._waiting: collections.deque[_Slot] = collections.deque()
        self._is_settling = False
        self._controllers = [
            _Slot(
                number, SupervisedActor(controllers, f"controller {number}", say, timeouts, clock)
            )
            for number in range(1, count + 1)
        ]
        self._sampled: list[SampledBatch] = []

    @property
    def updates(self) -> Sequence[UpdateRecord]:
        """What was learned so far, in the order in which it was applied."""
        return self._records

    def begin(self, last_batches: Mapping[int, int]) -> None:
        """Begins, or goes on with what was kept; see `ConcurrentPlacer.begin`.

        Raises:
            SearchError: what was kept is damaged.
        """
        kept = self._keeper.read() if last_batches else None
        # What was learned after the weights were kept is not in them: it is learned again.
        del self._records[0 if kept is None else kept.num_records :]
        self._num_samples = self._records[-1].samples if self._records else 0
        for controller in self._controllers:
            controller.next_batch = last_batches.get(controller.number, -1) + 1
        if kept is not None:
            self.version = kept.version
            for controller, state, batch in zip(
                self._controllers, kept.states, kept.batches, strict=True
            ):
                controller.state = state
                if batch is not None:
                    self._has_sampled(controller, batch)
                    controller.next_batch = max(controller.next_batch, batch.number + 1)
            self._say(f"going on with weights that have had {kept.version} updates")
        self._server.begin("initial", None if kept is None else kept.parameters)

    def advance(self, timeout_secs: float) -> list[SampledBatch]:
        """Lets controllers sample and learn; see `ConcurrentPlacer.advance`."""
        self._turn(timeout_secs)
        sampled, self._sampled = self._sampled, []
        return sampled

    def learn(self, batch: SampledBatch, measurements: Sequence[Measurement]) -> None:
        """Begins to learn from a batch; see `ConcurrentPlacer.learn`."""
        controller = self._controllers[batch.controller - 1]
        assert controller.batch is batch
        controller.measurements = measurements

    def settle(self) -> None:
        """Waits until all has been learned; see `ConcurrentPlacer.settle`."""
        self._is_settling = True
        while any(each.measurements is not None for each in self._controllers):
            self._turn(_POLL_SECS)
        self._keep(at_once=True)

    def save(self, directory: str | os.PathLike[str]) -> None:
        """Writes the policy as the placer does; see `Placer.save`."""
        self._policy, self._is_policy_wanted = {}, True
        while self._is_policy_wanted:
            self._turn(_POLL_SECS)
        for name, content in self._policy.items():
            write_bytes(pathlib.Path(directory, name), content)

    def close(self) -> None:
        """Ends the processes."""
        for fleet in self._fleets:
            fleet.close()

    # What happens.

    def _turn(self, timeout_secs: float) -> None:
        """Lets every process do what it can do next, and takes in what has ended."""
        self._begin_what_can()
        actors = [self._server, *(each.actor for each in self._controllers)]
        calls = [call for actor in actors for call in actor.calls]
        ended = self._fleets[0].ended(calls, timeout_secs)
        self._server_outcome(ended)
        for controller in self._controllers:
            self._controller_outcome(controller, ended)
        self._begin_what_can()
        self._keep()

    def _begin_what_can(self) -> None:
        if self._parameters is None:
            return
        for controller in self._controllers:
            if controller.actor.doing or controller.learned is not None:
                continue
            if controller.measurements is not None:
                assert controller.kept is not None
                controller.actor.begin(
                    "learn",
                    controller.parameters,
                    controller.state,
                    self.version,
                    controller.kept.actions,
                    controller.measurements,
                )
            elif controller.batch is None and not self._is_settling:
                controller.asked = self.version
                controller.parameters = self._parameters
                where = controller.number, controller.next_batch
                controller.actor.begin("sample", self._parameters, *where)
        if self._server.doing:
            return
        if self._waiting:
            self._server.begin("apply", self._parameters, self._waiting[0].steps)
        elif self._is_policy_wanted:
            self._server.begin("policy", self._parameters)

    def _server_outcome(self, ended: Sequence[Any]) -> None:
        """Takes in what the parameter server has done."""
        done = self._server.outcome(ended)
        if done is None:
            return
        method, value, call = done
        if method == "policy":
            self._policy, self._is_policy_wanted = value, False
            return
        self._parameters = call
        if method == "apply":
            self._has_learned(self._waiting.popleft(), is_update=True)
            return
        for controller in self._controllers:
            if controller.kept is not None:
                # Those that it was sampled under are gone with an earlier process.
                controller.parameters = self._parameters

    def _controller_outcome(self, controller: _Slot, ended: Sequence[Any]) -> None:
        """Takes in what a controller has done."""
        done = controller.actor.outcome(ended)
        if done is None:
            return
        method, value, call = done
        if method == "sample":
            actions, placements = value
            kept = KeptBatch(controller.next_batch, controller.asked, placements, actions)
            controller.next_batch += 1
            self._has_sampled(controller, kept)
        elif method == "learn":
            # Views would keep the steps in the store of Ray.
            controller.learned, controller.steps = copy.deepcopy(value[0]), call
            if controller.learned.counts:
                self._waiting.append(controller)
            else:
                self._has_learned(controller, is_update=False)

    def _has_sampled(self, controller: _Slot, kept: KeptBatch) -> None:
        controller.kept = kept
        controller.batch = SampledBatch(
            controller.number, kept.number, kept.version, self._lift(kept.placements)
        )
        self._sampled.append(controller.batch)
        self._has_changed = True

    def _has_learned(self, controller: _Slot, *, is_update: bool) -> None:
        """Ends a batch whose steps are in the weights."""
        learned, batch = controller.learned, controller.batch
        assert learned is not None and batch is not None
        controller.state = learned.state
        self._num_samples += len(batch.placements)
        best_secs = self._records[-1].best_step_secs if self._records else None
        for record in learned.records:
            known = [secs for secs in (best_secs, record.best_step_secs) if secs is not None]
            best_secs = min(known, default=None)
            self._records.append(
                dataclasses.replace(
                    record,
                    update=len(self._records),
                    samples=self._num_samples,
                    best_step_secs=best_secs,
                    controller=batch.controller,
                    version=batch.version,
                    staleness=self.version - batch.version,
                )
            )
        self.version += is_update
        controller.batch = controller.kept = controller.learned = None
        controller.measurements = controller.parameters = controller.steps = None
        self._has_changed = True

    def _keep(self, *, at_once: bool = False) -> None:
        """Writes the weights now and then, with where each controller stands."""
        if not (
            self._has_changed
            and self._parameters is not None
            and self._keeper.is_due(at_once=at_once)
        ):
            return
        self._keeper.write(
            KeptWeights(
                self.version,
                len(self._records),
                self._fleets[1].result(self._parameters),
                tuple(each.state for each in self._controllers),
                tuple(each.kept for each in self._controllers),
            )
        )
        self._has_changed = False
