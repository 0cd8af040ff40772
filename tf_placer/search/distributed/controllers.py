"""Asynchronous training by several controllers that share a parameter server, as in ColocRL.

References:
    Mirhoseini et al., Device Placement Optimization with Reinforcement Learning, ICML 2017,
    section 3.3: each controller samples placements and waits for its own; the parameter server
    applies its gradients to the shared weights without waiting for the other controllers.
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
from tf_placer.search.distributed.actor_backend import ActorBackend
from tf_placer.search.distributed.supervision import SupervisedActor, Timeouts
from tf_placer.search.distributed.training_checkpoint import (
    PendingBatch,
    TrainingCheckpoint,
    TrainingCheckpointer,
)

__all__ = ["Controllers"]

_POLL_SECS = 0.2


@dataclasses.dataclass(eq=False)
class _Slot:
    """The state of a controller, which outlives its process.

    Attributes:
        number: number of the controller, from 1.
        actor: its current process.
        state: its training state from earlier batches.
        next_batch: number of the batch that it samples next.
        batch: the batch that it has sampled and not learned from yet.
        pending: the same batch with its actions.
        parameters: the call that returned the weights that the batch was sampled under; None if
            they were lost with an earlier process.
        sampling_version: the version of the weights that it samples under now.
        measurements: the measurements of the batch; None before all have ended.
        learned: the result of learning from the batch, before it is applied to the weights.
        steps: the call that returned `learned`.
    """

    number: int
    actor: SupervisedActor
    state: Mapping[str, np.ndarray] = dataclasses.field(default_factory=dict)
    next_batch: int = 0
    batch: SampledBatch | None = None
    pending: PendingBatch | None = None
    parameters: Any = None
    sampling_version: int = 0
    measurements: Sequence[Measurement] | None = None
    learned: Learned | None = None
    steps: Any = None


class Controllers(ConcurrentPlacer):
    """Controllers that sample in several processes, and a parameter server in another process.

    A controller samples a batch under the current weights, waits until it is measured, computes its
    gradients under the weights that it was sampled under, has the server apply them to the current
    weights, and samples again. No controller waits for another. Each has its own baseline.

    Weights and gradients are results of calls, and no process stores them. If a process is lost,
    its call is repeated with the same weights and measurements, so each update is applied once.

    Attributes:
        version: the version of the weights, which is the number of their updates.
    """

    def __init__(
        self,
        name: str,
        controllers: ActorBackend,
        server: ActorBackend,
        count: int,
        *,
        directory: str | os.PathLike[str] | None,
        updates: Sequence[UpdateRecord] = (),
        expand: Callable[[np.ndarray], np.ndarray] = lambda placements: placements,
        say: Callable[[str], None] = lambda line: None,
        timeouts: Timeouts | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Starts the processes without waiting for them.

        Args:
            name: name of the placer.
            controllers: starts actors of class `Controller`.
            server: starts an actor of class `ParameterServer`, which accepts the calls of
                controllers as arguments.
            count: the number of controllers.
            directory: directory of the run for the checkpoint; None to write none.
            updates: the updates in the training log of a resumed search.
            expand: converts placements of controllers to placements to measure.
            say: called with a message for people when a process is lost.
            timeouts: limits on waiting.
            clock: returns the time in seconds.
        """
        self.name = name
        self.version = 0
        self._backends = controllers, server
        self._checkpointer = TrainingCheckpointer(directory, say, clock)
        self._records = list(updates)
        self._expand = expand
        self._say = say
        self._num_samples = 0
        self._has_changed = False
        # The call that returned the current weights; None before the first.
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
        """The updates so far, in the order in which they were applied."""
        return self._records

    def begin(self, last_batches: Mapping[int, int]) -> None:
        """Begins, or resumes from the checkpoint; see `ConcurrentPlacer.begin`.

        Raises:
            SearchError: the checkpoint is damaged.
        """
        checkpoint = self._checkpointer.read() if last_batches else None
        # Updates after the checkpoint are not in its weights, so drop them and learn them again.
        del self._records[0 if checkpoint is None else checkpoint.num_records :]
        self._num_samples = self._records[-1].samples if self._records else 0
        for controller in self._controllers:
            controller.next_batch = last_batches.get(controller.number, -1) + 1
        if checkpoint is not None:
            self.version = checkpoint.version
            for controller, state, batch in zip(
                self._controllers, checkpoint.states, checkpoint.batches, strict=True
            ):
                controller.state = state
                if batch is not None:
                    self._add_sampled(controller, batch)
                    controller.next_batch = max(controller.next_batch, batch.number + 1)
            self._say(f"resuming with weights that have had {checkpoint.version} updates")
        self._server.begin("initial", None if checkpoint is None else checkpoint.parameters)

    def advance(self, timeout_secs: float) -> list[SampledBatch]:
        """Lets controllers sample and learn; see `ConcurrentPlacer.advance`."""
        self._advance(timeout_secs)
        sampled, self._sampled = self._sampled, []
        return sampled

    def learn(self, batch: SampledBatch, measurements: Sequence[Measurement]) -> None:
        """Starts to learn from a batch; see `ConcurrentPlacer.learn`."""
        controller = self._controllers[batch.controller - 1]
        assert controller.batch is batch
        controller.measurements = measurements

    def settle(self) -> None:
        """Waits until all measured batches are learned from; see `ConcurrentPlacer.settle`."""
        self._is_settling = True
        while any(each.measurements is not None for each in self._controllers):
            self._advance(_POLL_SECS)
        self._write_checkpoint(at_once=True)

    def save(self, directory: str | os.PathLike[str]) -> None:
        """Writes the policy; see `Placer.save`."""
        self._policy, self._is_policy_wanted = {}, True
        while self._is_policy_wanted:
            self._advance(_POLL_SECS)
        for name, content in self._policy.items():
            write_bytes(pathlib.Path(directory, name), content)

    def close(self) -> None:
        """Ends the processes."""
        for backend in self._backends:
            backend.close()

    def _advance(self, timeout_secs: float) -> None:
        """Starts the next call of every idle process, and handles the calls that have ended."""
        self._start_calls()
        actors = [self._server, *(each.actor for each in self._controllers)]
        calls = [call for actor in actors for call in actor.calls]
        ended = self._backends[0].wait(calls, timeout_secs)
        self._handle_server(ended)
        for controller in self._controllers:
            self._handle_controller(controller, ended)
        self._start_calls()
        self._write_checkpoint()

    def _start_calls(self) -> None:
        if self._parameters is None:
            return
        for controller in self._controllers:
            if controller.actor.doing or controller.learned is not None:
                continue
            if controller.measurements is not None:
                assert controller.pending is not None
                controller.actor.begin(
                    "learn",
                    controller.parameters,
                    controller.state,
                    self.version,
                    controller.pending.actions,
                    controller.measurements,
                )
            elif controller.batch is None and not self._is_settling:
                controller.sampling_version = self.version
                controller.parameters = self._parameters
                numbers = controller.number, controller.next_batch
                controller.actor.begin("sample", self._parameters, *numbers)
        if self._server.doing:
            return
        if self._waiting:
            self._server.begin("apply", self._parameters, self._waiting[0].steps)
        elif self._is_policy_wanted:
            self._server.begin("policy", self._parameters)

    def _handle_server(self, ended: Sequence[Any]) -> None:
        """Handles a call of the parameter server that has ended."""
        done = self._server.update(ended)
        if done is None:
            return
        method, value, call = done
        if method == "policy":
            self._policy, self._is_policy_wanted = value, False
            return
        self._parameters = call
        if method == "apply":
            self._finish_batch(self._waiting.popleft(), is_update=True)
            return
        for controller in self._controllers:
            if controller.pending is not None:
                # The weights that the batch was sampled under were lost with an earlier process.
                controller.parameters = self._parameters

    def _handle_controller(self, controller: _Slot, ended: Sequence[Any]) -> None:
        """Handles a call of a controller that has ended."""
        done = controller.actor.update(ended)
        if done is None:
            return
        method, value, call = done
        if method == "sample":
            actions, placements = value
            version = controller.sampling_version
            pending = PendingBatch(controller.next_batch, version, placements, actions)
            controller.next_batch += 1
            self._add_sampled(controller, pending)
        elif method == "learn":
            # Copy, because views of arrays would keep the result of the call in Ray's object store.
            controller.learned, controller.steps = copy.deepcopy(value[0]), call
            if controller.learned.counts:
                self._waiting.append(controller)
            else:
                self._finish_batch(controller, is_update=False)

    def _add_sampled(self, controller: _Slot, pending: PendingBatch) -> None:
        controller.pending = pending
        controller.batch = SampledBatch(
            controller.number, pending.number, pending.version, self._expand(pending.placements)
        )
        self._sampled.append(controller.batch)
        self._has_changed = True

    def _finish_batch(self, controller: _Slot, *, is_update: bool) -> None:
        """Finishes a batch whose gradients have been applied, and records its updates."""
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
        controller.batch = controller.pending = controller.learned = None
        controller.measurements = controller.parameters = controller.steps = None
        self._has_changed = True

    def _write_checkpoint(self, *, at_once: bool = False) -> None:
        """Writes the weights and the state of each controller, if that is due."""
        if not (
            self._has_changed
            and self._parameters is not None
            and self._checkpointer.is_due(at_once=at_once)
        ):
            return
        self._checkpointer.write(
            TrainingCheckpoint(
                self.version,
                len(self._records),
                self._backends[1].result(self._parameters),
                tuple(each.state for each in self._controllers),
                tuple(each.pending for each in self._controllers),
            )
        )
        self._has_changed = False
