"""Several controllers that share one parameter server: ColocRL's asynchronous training.

References:
    Mirhoseini et al., Device Placement Optimization with Reinforcement Learning, ICML 2017,
    section 3.3: controllers sample placements, each waits for its own, and gradients are applied
    to shared weights without waiting for the others.
"""

from __future__ import annotations

import collections
import dataclasses
import os
import pathlib
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tf_placer.environments.environment import Measurement
from tf_placer.files import write_bytes
from tf_placer.placers.update_record import UpdateRecord
from tf_placer.search.batches import SampledBatch
from tf_placer.search.concurrent import ConcurrentPlacer
from tf_placer.search.distributed.controller_place import ControllerPlace
from tf_placer.search.distributed.fleet import ArgumentLostError, Fleet, WorkerLostError
from tf_placer.search.distributed.kept_weights import KeptBatch, KeptWeights, WeightsKeeper
from tf_placer.search.distributed.lasting_actor import LastingActor
from tf_placer.search.distributed.pooled_worker import PoolTimes

__all__ = ["Controllers"]

_POLL_SECS = 0.2


class Controllers(ConcurrentPlacer):
    """Samples by several processes, and has one other process apply what they learn.

    A controller samples a batch under the current weights, waits until it is measured, computes its
    gradients under the weights that it was sampled under, has them applied to the current ones, and
    samples again. No controller waits for another. Each has a baseline of its own.

    A process that is lost is replaced. What it was doing is done again from the same weights and
    measurements, and an update is applied once: where it is not certain that it was, the parameter
    server begins again with the weights from before it.

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
        times: PoolTimes | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Starts the processes and does not wait for them.

        Args:
            name: of the placer.
            controllers: starts `Controller`s.
            server: starts a `ParameterServer`, which may have calls of controllers for arguments.
            count: how many controllers.
            directory: of the run, where the weights are kept; None to keep nothing.
            updates: those of the training log; of a search that goes on.
            lift: turns placements of controllers into those that are measured.
            say: called with a line for people when a process is lost.
            times: how long to wait for what.
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
        # What the server has: None for initial weights, else a call of it, or what was kept.
        self._parameters: Any = None
        self._parameters_version: int | None = None
        self._asked_parameters: Any = None
        self._policy: Mapping[str, bytes] = {}
        self._is_policy_wanted = False
        self._server = LastingActor(server, "the parameter server", say, times, clock)
        self._applying: ControllerPlace | None = None
        self._waiting: collections.deque[ControllerPlace] = collections.deque()
        self._is_settling = False
        self._controllers = [
            ControllerPlace(
                number, LastingActor(controllers, f"controller {number}", say, times, clock)
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
            self.version, self._parameters = kept.version, kept.parameters
            for controller, state, batch in zip(
                self._controllers, kept.states, kept.batches, strict=True
            ):
                controller.state = state
                if batch is not None:
                    self._has_sampled(controller, batch)
                    controller.next_batch = max(controller.next_batch, batch.number + 1)
            self._say(f"going on with weights that have had {kept.version} updates")
        self._server.begin("restore", self._parameters)

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
        if self._parameters_version is None:
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
                controller.asked = self._parameters_version
                controller.parameters = self._parameters
                where = controller.number, controller.next_batch
                controller.actor.begin("sample", self._parameters, *where)
        if self._server.doing:
            return
        if self._waiting:
            self._applying = self._waiting.popleft()
            self._server.begin("apply", self._applying.actor.send("steps"))
        elif self._is_policy_wanted:
            self._server.begin("policy")

    def _server_outcome(self, ended: Sequence[Any]) -> None:
        """Takes in what the parameter server has done."""
        try:
            found = self._server.outcome(ended)
        except WorkerLostError as error:
            # What was being applied is not in the weights that the next one begins with, or was
            # lost with its controller.
            if self._applying is not None:
                self._applying.learned, self._applying = None, None
            if not isinstance(error, ArgumentLostError):
                self._server.begin("restore", self._parameters)
            return
        if found is None:
            return
        method, value = found
        if method in ("restore", "apply"):
            self._asked_parameters = self._server.begin("parameters")
        elif method == "parameters":
            self._has_parameters()
        elif method == "policy":
            self._policy, self._is_policy_wanted = value, False

    def _has_parameters(self) -> None:
        """Goes on with the weights that the parameter server has now."""
        self._parameters = self._asked_parameters
        if self._applying is not None:
            controller, self._applying = self._applying, None
            self._has_learned(controller, is_update=True)
        self._parameters_version = self.version
        for controller in self._controllers:
            if controller.kept is not None and controller.parameters is None:
                # Those that it was sampled under are gone with an earlier process.
                controller.parameters = self._parameters

    def _controller_outcome(self, controller: ControllerPlace, ended: Sequence[Any]) -> None:
        """Takes in what a controller has done."""
        try:
            found = controller.actor.outcome(ended)
        except WorkerLostError:
            if controller in self._waiting:
                # The steps are gone with it.
                self._waiting.remove(controller)
                controller.learned = None
            return
        if found is None:
            return
        method, value = found
        if method == "sample":
            actions, placements = value
            kept = KeptBatch(controller.next_batch, controller.asked, placements, actions)
            controller.next_batch += 1
            self._has_sampled(controller, kept)
        elif method == "learn":
            controller.learned = value
            if value.counts:
                self._waiting.append(controller)
            else:
                self._has_learned(controller, is_update=False)

    def _has_sampled(self, controller: ControllerPlace, kept: KeptBatch) -> None:
        controller.kept = kept
        controller.batch = SampledBatch(
            controller.number, kept.number, kept.version, self._lift(kept.placements)
        )
        self._sampled.append(controller.batch)
        self._has_changed = True

    def _has_learned(self, controller: ControllerPlace, *, is_update: bool) -> None:
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
        controller.measurements = controller.parameters = None
        self._has_changed = True

    def _keep(self, *, at_once: bool = False) -> None:
        """Writes the weights now and then, with where each controller stands."""
        if not (
            self._has_changed
            and self._parameters_version is not None
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
