"""A pool of workers that measure placements and may die, hang, be slow, or start late."""

from __future__ import annotations

import collections
import dataclasses
import math
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from tf_placer.environments.environment import Failure, FailureKind, Measurement
from tf_placer.environments.live_processes import WorkerStartError
from tf_placer.search.distributed.actor_backend import ActorBackend, WorkerLostError
from tf_placer.search.distributed.straggler_detection import find_straggler
from tf_placer.search.distributed.supervision import Heartbeat, PauseAwareClock, Timeouts
from tf_placer.search.distributed.worker_state import Task, WorkerState
from tf_placer.search.distributed.worker_statistics import WorkerStatistics
from tf_placer.search.runner import CompletedTrial

__all__ = ["WorkerPool"]


@dataclasses.dataclass(frozen=True)
class _RetryLimits:
    """Limits on retries after the loss of workers.

    Failed starts are counted in a row, while no worker can measure.
    """

    max_losses_per_placement: int = 3
    max_failed_starts: int = 5
    max_back_off_secs: float = 60.0


_LIMITS = _RetryLimits()


class WorkerPool:
    """A runner that measures placements by the workers of a backend; see `Runner`.

    Each worker first measures the original graph on its machine. By the ratio to the original in
    trial 0, its later measurements are scaled to the machine of trial 0. A worker that dies or does
    not answer is replaced, its late answers are ignored, and another worker measures its placement.
    A worker whose machine is slower than those of the others is set aside until it is as fast
    again.
    """

    def __init__(
        self,
        backend: ActorBackend,
        assign: Callable[[np.ndarray], Mapping[str, str]],
        *,
        timeout_secs: Callable[[], float],
        best_secs: Callable[[], float | None] = lambda: None,
        reference_secs: float | None = None,
        num_before: int = 0,
        should_cancel: Callable[[], bool] = lambda: False,
        report: Callable[[str], None] = lambda line: None,
        timeouts: Timeouts | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Starts the workers without waiting for them.

        Args:
            backend: starts workers.
            assign: converts a placement, int32 [num_groups], to device names by operation name.
            timeout_secs: returns the time limit of the next measurement.
            best_secs: returns the step time of the fastest placement so far.
            reference_secs: the step time of the original graph in trial 0 of a resumed search.
            num_before: the number of workers of the search before, whose names are taken.
            should_cancel: returns whether the measurements under way are to be canceled.
            report: called with a message for people when a worker is gained or lost.
            timeouts: limits on waiting.
            clock: returns the time in seconds.
        """
        self._backend = backend
        self._assign = assign
        self._timeout_secs = timeout_secs
        self._best_secs = best_secs
        self._reference_secs = reference_secs
        self._original: Measurement | None = None
        self._should_cancel = should_cancel
        self._report = report
        self._timeouts = timeouts or Timeouts()
        self._clock = clock
        self._pause_aware_clock = PauseAwareClock(clock)
        self._workers: list[WorkerState] = []
        self._num_started = num_before
        self._lost: list[WorkerStatistics] = []
        self._waiting: collections.deque[Task] = collections.deque()
        self._completed: list[CompletedTrial] = []
        self._failed_starts = 0
        self._next_start_secs = -math.inf
        self._reasons: list[str] = []
        self._is_one_enough = False
        self._last_worker_secs = self._pause_aware_clock()
        self._start_missing()

    # The interface for a search.

    def wait_for_machine(self) -> None:
        """Waits until a worker has a machine, or the wait is canceled.

        Raises:
            WorkerStartError: no machine becomes available.
        """
        while not (self._should_cancel() or any(each.has_machine for each in self._workers)):
            self._advance()

    def measure_original(self) -> Measurement:
        """Waits until a worker has measured the original graph.

        Raises:
            WorkerStartError: no worker can start.
        """
        while self._original is None:
            if self._should_cancel():
                return _make_canceled()
            self._advance()
        return self._original

    @property
    def capacity(self) -> int:
        """The number of workers that can measure; see `Runner.capacity`."""
        return max(1, sum(worker.can_measure for worker in self._workers))

    def submit(self, key: Any, placement: np.ndarray) -> None:
        """Queues a placement for the next free worker; see `Runner.submit`."""
        self._waiting.append(Task(key, placement))
        self._dispatch()

    def wait(self, timeout_secs: float = math.inf) -> list[CompletedTrial]:
        """Waits until a placement has been measured; see `Runner.wait`.

        Raises:
            WorkerStartError: no worker is left, and none can start.
        """
        end_secs = self._clock() + timeout_secs
        while not self._completed:
            if self._should_cancel():
                self._complete_canceled()
            else:
                self._advance(end_secs - self._clock())
            if self._clock() >= end_secs:
                break
        completed, self._completed = self._completed, []
        return completed

    def list_statistics(self) -> list[WorkerStatistics]:
        """Lists the statistics of all workers, those that were lost first."""
        for worker in self._workers:
            worker.statistics.state = worker.state
            worker.statistics.relative_step_time = worker.relative_step_time.now
        return [*self._lost, *(worker.statistics for worker in self._workers)]

    def now_secs(self) -> float:
        """Returns the time by the clock of the statistics."""
        return self._clock()

    def call_one(self, method: str, *args: Any, alone: bool = False) -> Any:
        """Calls a method of one worker, and waits for the result.

        The same worker runs all such calls until it is lost.

        Args:
            method: name of the method of the worker.
            args: its arguments.
            alone: whether to stop the processes of all other workers, from now on.

        Returns:
            The result of the method.

        Raises:
            WorkerLostError: the worker is gone, or the method raised an error.
            WorkerStartError: no worker can start.
        """
        while not (ready := [each for each in self._workers if each.is_ready and not each.doing]):
            self._advance()
        worker = min(ready, key=lambda each: each.aside_secs is not None)
        if alone and not self._is_one_enough:
            self._release_others(worker)
        self._do(worker, "ask", method, *args)
        while worker.doing == "ask":
            self._advance()
        if worker not in self._workers:
            raise WorkerLostError(f"{worker.name} is lost: {self._reasons[-1]}")
        answer, worker.answer = worker.answer, None
        if isinstance(answer, WorkerLostError):
            raise answer
        return answer

    def cancel(self) -> None:
        """Cancels all placements and calls, by ending the workers that are busy with them."""
        for worker in list(self._workers):
            if worker.doing in ("measure", "ask"):
                self._remove(worker, "ended")
        self._waiting.clear()

    def close(self) -> None:
        """Ends all workers."""
        self._backend.close()
        self._workers.clear()

    def _release_others(self, worker: WorkerState) -> None:
        """Stops all other workers, because they may share the computer of this one."""
        self._is_one_enough = True
        for other in list(self._workers):
            if other is worker or other.doing == "release":
                continue
            if other.doing or not other.is_ready:
                self._remove(other, "ended")
            else:
                self._do(other, "release", "release")
        while any(other.doing for other in self._workers):
            self._advance()

    # The event loop.

    def _advance(self, timeout_secs: float = math.inf) -> None:
        """Starts workers and calls, waits shortly, and handles the calls that have ended.

        Args:
            timeout_secs: the longest wait.

        Raises:
            WorkerStartError: no worker is left, and none can start.
        """
        self._start_missing()
        self._dispatch()
        calls = [call for each in self._workers for call in (each.call, each.heartbeat.call)]
        poll_secs = max(0.0, min(self._timeouts.poll_interval, timeout_secs))
        ended = self._backend.wait([call for call in calls if call is not None], poll_secs)
        for worker in list(self._workers):
            try:
                worker.heartbeat.update(ended)
                if worker.call is not None and worker.call in ended:
                    self._handle_result(worker)
                self._check(worker)
            except WorkerLostError as error:
                self._handle_loss(worker, str(error))
        self._give_up_without_workers()

    def _start_missing(self) -> None:
        """Starts workers until there are as many as wanted."""
        if self._clock() < self._next_start_secs:
            return
        wanted = 1 if self._is_one_enough else self._backend.count_wanted()
        while len(self._workers) < wanted:
            self._num_started += 1
            handle = self._backend.start()
            heartbeat = Heartbeat(self._backend, handle, self._pause_aware_clock, self._timeouts)
            statistics = WorkerStatistics(f"worker {self._num_started}")
            self._workers.append(WorkerState(handle, statistics, heartbeat))

    def _dispatch(self) -> None:
        """Gives placements to idle workers, and rechecks workers that were set aside."""
        now_secs = self._clock()
        is_any_usable = any(each.can_measure for each in self._workers)
        for worker in self._workers:
            if worker.doing or not worker.has_machine:
                continue
            if not worker.is_ready:
                self._do(worker, "begin", "begin", self._timeout_secs())
                continue
            if worker.aside_secs is not None and is_any_usable:
                is_due = now_secs - worker.aside_secs >= self._timeouts.recheck_interval
                if is_due and not self._is_one_enough:
                    worker.aside_secs = now_secs
                    self._do(worker, "check", "measure_original", self._timeout_secs())
            elif self._waiting:
                worker.task = self._waiting.popleft()
                assignment = self._assign(worker.task.placement)
                best_secs = self._best_secs()
                if best_secs is not None:
                    best_secs *= self._compute_slowdown(worker)
                limit_secs = self._timeout_secs()
                self._do(worker, "measure", "measure", assignment, best_secs, limit_secs)

    def _do(self, worker: WorkerState, doing: str, method: str, *args: Any) -> None:
        """Calls a method of an idle worker."""
        worker.doing, worker.since_secs = doing, self._clock()
        worker.limit_secs = math.inf
        if doing in ("begin", "measure", "check"):
            limit_secs = self._timeout_secs() + self._timeouts.max_start
            worker.limit_secs = self._pause_aware_clock() + limit_secs
        worker.call = self._backend.call(worker.handle, method, *args)

    def _handle_result(self, worker: WorkerState) -> None:
        """Handles the result of a worker's call.

        Raises:
            WorkerLostError: the worker is gone, or its method raised an error.
        """
        doing, worker.doing = worker.doing, ""
        call, worker.call = worker.call, None
        try:
            value = self._backend.result(call)
        except WorkerLostError as error:
            if not (error.has_failed and doing == "ask"):
                raise
            worker.answer = error
            return
        worker.heartbeat.record_answer()
        if doing == "begin":
            self._add_ready(worker, value)
        elif doing == "measure":
            self._complete_trial(worker, *value)
        elif doing == "check":
            self._reinstate(worker, value)
        elif doing == "ask":
            worker.answer = value

    def _add_ready(self, worker: WorkerState, info: Any) -> None:
        """Adds a worker that has measured the original graph to those that can measure.

        Raises:
            WorkerLostError: the original graph fails on its machine but ran in trial 0.
        """
        original = info.original
        if self._original is None:
            self._original = original
            if self._reference_secs is None:
                self._reference_secs = original.median_secs
        worker.statistics.place = info.host
        worker.reference_secs = original.median_secs
        if original.failure is not None and self._reference_secs is not None:
            raise WorkerLostError(f"the original graph fails there: {original.failure.message}")
        self._failed_starts = 0
        worker.statistics.ready_secs = self._clock()
        if worker.reference_secs is not None:
            worker.relative_step_time.add(self._compute_slowdown(worker))
        self._report(
            f"{worker.name} on {info.host} is ready"
            + (
                f": a step takes {worker.relative_step_time.now:.2f}x as long there as in trial 0"
                if worker.relative_step_time.now is not None
                else ""
            )
        )

    def _complete_trial(
        self, worker: WorkerState, measurement: Measurement, reference_secs: float | None
    ) -> None:
        """Completes a trial, with its times scaled to the machine of trial 0."""
        task, worker.task = worker.task, None
        assert task is not None
        worker.reference_secs = reference_secs
        if measurement.step_secs is not None:
            drift = measurement.drift * self._compute_slowdown(worker)
            measurement = dataclasses.replace(measurement, drift=drift)
            if reference_secs is not None:
                worker.relative_step_time.add(drift)
        worker.statistics.trials += 1
        worker.statistics.failures += measurement.failure is not None
        worker.statistics.busy_secs += self._clock() - worker.since_secs
        self._completed.append(CompletedTrial(task.key, measurement, worker.name))
        self._set_aside()

    def _reinstate(self, worker: WorkerState, secs: float | None) -> None:
        """Lets a worker that was set aside measure again if it is as fast as the others."""
        if secs is None or self._reference_secs is None:
            return
        worker.relative_step_time.forget()
        for _ in range(3):
            worker.relative_step_time.add(secs / self._reference_secs)
        odd = find_straggler(
            {each.name: each.relative_step_time for each in self._workers if each.is_ready}
        )
        if odd is None or odd[0] != worker.name:
            worker.aside_secs = None
            self._report(
                f"{worker.name} on {worker.statistics.place} is as fast as the others again"
            )

    def _set_aside(self) -> None:
        """Sets a worker aside whose machine is slower than those of the others."""
        measuring = {each.name: each for each in self._workers if each.can_measure}
        odd = find_straggler({name: each.relative_step_time for name, each in measuring.items()})
        if odd is None:
            return
        name, reason = odd
        worker = measuring[name]
        worker.aside_secs = self._clock()
        self._report(f"{name} on {worker.statistics.place} is set aside: it {reason}")

    # Losses.

    def _check(self, worker: WorkerState) -> None:
        """Checks that a worker answers and keeps its time limit.

        Raises:
            WorkerLostError: the worker does not answer, or measures for too long.
        """
        worker.heartbeat.check()
        if worker.doing and self._pause_aware_clock() >= worker.limit_secs:
            took_secs = self._clock() - worker.since_secs
            raise WorkerLostError(f"it has not ended a measurement within {took_secs:.0f} s")

    def _handle_loss(self, worker: WorkerState, reason: str) -> None:
        """Removes a lost worker, and queues its placement for another."""
        task = worker.task
        self._reasons.append(reason)
        if not worker.is_ready:
            self._failed_starts += 1
            back_off_secs = min(_LIMITS.max_back_off_secs, 2.0**self._failed_starts)
            self._next_start_secs = self._clock() + back_off_secs
        else:
            # Its resources are free again, so start a replacement at once.
            self._failed_starts, self._next_start_secs = 0, -math.inf
        self._remove(worker)
        where = f" on {worker.statistics.place}" if worker.statistics.place else ""
        then = ""
        if task is not None:
            task.losses.append(reason)
            if len(task.losses) < _LIMITS.max_losses_per_placement:
                self._waiting.appendleft(task)
                then = "; its placement is measured by another"
            else:
                message = f"{len(task.losses)} workers were lost while they measured it: {reason}"
                failure = Failure(FailureKind.WORKER_DIED, message)
                self._completed.append(
                    CompletedTrial(task.key, Measurement(failure=failure), worker.name)
                )
        self._report(f"{worker.name}{where} is lost: {reason}{then}")

    def _remove(self, worker: WorkerState, state: str = "lost") -> None:
        """Ends a worker, and forgets it."""
        self._workers.remove(worker)
        self._backend.kill(worker.handle)
        worker.statistics.state, worker.doing, worker.task = state, "", None
        # Ignore late answers of the worker.
        worker.call = None
        self._lost.append(worker.statistics)

    def _give_up_without_workers(self) -> None:
        now_secs = self._pause_aware_clock()
        if any(each.has_machine for each in self._workers):
            self._last_worker_secs = now_secs
        if any(each.is_ready for each in self._workers):
            return
        if self._failed_starts >= _LIMITS.max_failed_starts:
            raise WorkerStartError(f"no worker can start: {self._reasons[-1]}")
        if now_secs - self._last_worker_secs >= self._timeouts.max_without_worker:
            why = f"; the last worker was lost: {self._reasons[-1]}" if self._reasons else ""
            limit = f"{self._timeouts.max_without_worker:.0f} s"
            raise WorkerStartError(f"no machine with room for a worker was there for {limit}{why}")

    def _complete_canceled(self) -> None:
        """Cancels all placements, and completes their trials as failures."""
        tasks = [each.task for each in self._workers if each.task is not None]
        self._completed += [
            CompletedTrial(task.key, _make_canceled()) for task in (*tasks, *self._waiting)
        ]
        self.cancel()

    def _compute_slowdown(self, worker: WorkerState) -> float:
        """Computes the step time of the original graph on a machine, relative to trial 0."""
        if worker.reference_secs is None or self._reference_secs is None:
            return 1.0
        return worker.reference_secs / self._reference_secs


def _make_canceled() -> Measurement:
    return Measurement(failure=Failure(FailureKind.TIMEOUT, "canceled"))
