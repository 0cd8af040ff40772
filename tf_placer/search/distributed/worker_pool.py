"""Measures placements by workers that may die, hang, be slow, or come late."""

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
from tf_placer.search.distributed.fleet import Fleet, WorkerLostError
from tf_placer.search.distributed.straggler_detection import find_straggler
from tf_placer.search.distributed.supervision import Heartbeat, PauseAwareClock, Timeouts
from tf_placer.search.distributed.tallies import Tally
from tf_placer.search.distributed.worker_state import Task, WorkerState
from tf_placer.search.runner import CompletedTrial

__all__ = ["WorkerPool"]

# A placement during whose measurement so many workers were lost is not measured again.
_MOST_LOSSES = 3
# So many workers in a row that cannot begin, while no other can measure, end the search.
_MOST_FAILED_STARTS = 5
_MOST_BACK_OFF_SECS = 60.0


class WorkerPool:
    """Measures placements by the workers of a fleet; see `Runner`.

    A worker that is ready has measured the graph as it came on its machine. What it measures later
    is told in the seconds of the machine of trial 0, by the ratio of the two, so that machines are
    compared by ratios. A worker that dies or does not answer is replaced, and its placement is
    measured by another; what it may still answer is not heard. One whose machine is slower than
    those of the others is set aside, and comes back when it is as fast again.
    """

    def __init__(
        self,
        fleet: Fleet,
        assign: Callable[[np.ndarray], Mapping[str, str]],
        *,
        timeout_secs: Callable[[], float],
        best_secs: Callable[[], float | None] = lambda: None,
        reference_secs: float | None = None,
        num_before: int = 0,
        should_break: Callable[[], bool] = lambda: False,
        report: Callable[[str], None] = lambda line: None,
        timeouts: Timeouts | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Starts the workers and does not wait for them.

        Args:
            fleet: starts workers.
            assign: turns a placement, int32 [num_groups], into device names by operation name.
            timeout_secs: says how long the next measurement may take.
            best_secs: says what the fastest placement so far takes.
            reference_secs: what a step of the graph as it came took in trial 0; of a search that
                goes on.
            num_before: how many workers the search has had before, whose names are taken.
            should_break: says whether what is under way is of no interest any more.
            report: called with a line for people when a worker comes or goes.
            timeouts: how long to wait for what.
            clock: gives the time in seconds.
        """
        self._fleet = fleet
        self._assign = assign
        self._timeout_secs = timeout_secs
        self._best_secs = best_secs
        self._reference_secs = reference_secs
        self._original: Measurement | None = None
        self._should_break = should_break
        self._report = report
        self._timeouts = timeouts or Timeouts()
        self._clock = clock
        self._awake = PauseAwareClock(clock)
        self._workers: list[WorkerState] = []
        self._num_started = num_before
        self._lost: list[Tally] = []
        self._waiting: collections.deque[Task] = collections.deque()
        self._ended: list[CompletedTrial] = []
        self._failed_starts = 0
        self._next_start_secs = -math.inf
        self._reasons: list[str] = []
        self._is_one_enough = False
        self._had_worker_secs = self._awake()
        self._fill()

    # What a search asks for.

    def wait_for_machine(self) -> None:
        """Waits until a worker has a machine, or nobody wants to wait any more.

        Raises:
            WorkerStartError: no machine comes.
        """
        while not (self._should_break() or any(each.has_machine for each in self._workers)):
            self._advance()

    def measure_original(self) -> Measurement:
        """Waits until a worker has measured the graph as it came.

        Raises:
            WorkerStartError: no worker can begin.
        """
        while self._original is None:
            if self._should_break():
                return _broken_off()
            self._advance()
        return self._original

    @property
    def capacity(self) -> int:
        """How many workers measure; see `Runner.capacity`."""
        return max(1, sum(worker.can_measure for worker in self._workers))

    def submit(self, key: Any, placement: np.ndarray) -> None:
        """Takes a placement, which the next free worker measures; see `Runner.submit`."""
        self._waiting.append(Task(key, placement))
        self._dispatch()

    def wait(self, timeout_secs: float = math.inf) -> list[CompletedTrial]:
        """Waits until a placement has been measured; see `Runner.wait`.

        Raises:
            WorkerStartError: no worker is left, and none can begin.
        """
        end_secs = self._clock() + timeout_secs
        while not self._ended:
            if self._should_break():
                self._break_off()
            else:
                self._advance(end_secs - self._clock())
            if self._clock() >= end_secs:
                break
        ended, self._ended = self._ended, []
        return ended

    def tallies(self) -> list[Tally]:
        """Says what each worker has done, those that were lost first."""
        for worker in self._workers:
            worker.tally.state, worker.tally.slowness = worker.state, worker.slowness.now
        return [*self._lost, *(worker.tally for worker in self._workers)]

    def now_secs(self) -> float:
        """The time of the clock that tallies go by."""
        return self._clock()

    # What one worker does for all.

    def ask(self, method: str, *args: Any, alone: bool = False) -> Any:
        """Has a worker do something that only one needs to do, and waits for it.

        The same worker does all that is asked for, until it is lost.

        Args:
            method: name of the method of the worker.
            args: its arguments.
            alone: whether the processes of all others are stopped, now and from now on.

        Returns:
            What the method returns.

        Raises:
            WorkerLostError: the worker is gone, or the method raised an error.
            WorkerStartError: no worker can begin.
        """
        while not (ready := [each for each in self._workers if each.is_ready and not each.doing]):
            self._advance()
        worker = min(ready, key=lambda each: each.aside_secs is not None)
        if alone and not self._is_one_enough:
            self._quiet_others(worker)
        self._do(worker, "ask", method, *args)
        while worker.doing == "ask":
            self._advance()
        if worker not in self._workers:
            raise WorkerLostError(f"{worker.name} is lost: {self._reasons[-1]}")
        answer, worker.answer = worker.answer, None
        if isinstance(answer, WorkerLostError):
            raise answer
        return answer

    def drop(self) -> None:
        """Ends the workers that are doing something, which is of no interest any more."""
        for worker in list(self._workers):
            if worker.doing in ("measure", "ask"):
                self._remove(worker, "ended")
        self._waiting.clear()

    def close(self) -> None:
        """Ends all workers."""
        self._fleet.close()
        self._workers.clear()

    def _quiet_others(self, worker: WorkerState) -> None:
        """Lets a worker have the computer for itself, which may be that of others, too."""
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

    # The course of events.

    def _advance(self, timeout_secs: float = math.inf) -> None:
        """Lets workers start, measure and answer, for a moment.

        Args:
            timeout_secs: how long that moment may be.

        Raises:
            WorkerStartError: no worker is left, and none can begin.
        """
        self._fill()
        self._dispatch()
        calls = [call for each in self._workers for call in (each.call, each.heartbeat.call)]
        poll_secs = max(0.0, min(self._timeouts.poll, timeout_secs))
        ended = self._fleet.ended([call for call in calls if call is not None], poll_secs)
        for worker in list(self._workers):
            try:
                worker.heartbeat.update(ended)
                if worker.call is not None and worker.call in ended:
                    self._ended_call(worker)
                self._check(worker)
            except WorkerLostError as error:
                self._lose(worker, str(error))
        self._give_up_without_workers()

    def _fill(self) -> None:
        """Starts workers in place of those that are missing."""
        if self._clock() < self._next_start_secs:
            return
        wanted = 1 if self._is_one_enough else self._fleet.wanted()
        while len(self._workers) < wanted:
            self._num_started += 1
            handle = self._fleet.start()
            heartbeat = Heartbeat(self._fleet, handle, self._awake, self._timeouts)
            tally = Tally(f"worker {self._num_started}")
            self._workers.append(WorkerState(handle, tally, heartbeat))

    def _dispatch(self) -> None:
        """Gives placements to workers that wait, and has those set aside look at themselves."""
        now_secs = self._clock()
        is_any_usable = any(each.can_measure for each in self._workers)
        for worker in self._workers:
            if worker.doing or not worker.has_machine:
                continue
            if not worker.is_ready:
                self._do(worker, "begin", "begin", self._timeout_secs())
                continue
            if worker.aside_secs is not None and is_any_usable:
                is_due = now_secs - worker.aside_secs >= self._timeouts.check
                if is_due and not self._is_one_enough:
                    worker.aside_secs = now_secs
                    self._do(worker, "check", "measure_original", self._timeout_secs())
            elif self._waiting:
                worker.task = self._waiting.popleft()
                assignment = self._assign(worker.task.placement)
                best_secs = self._best_secs()
                if best_secs is not None:
                    best_secs *= self._factor(worker)
                limit_secs = self._timeout_secs()
                self._do(worker, "measure", "measure", assignment, best_secs, limit_secs)

    def _do(self, worker: WorkerState, doing: str, method: str, *args: Any) -> None:
        """Calls a method of a worker that does nothing else."""
        worker.doing, worker.since_secs = doing, self._clock()
        worker.limit_secs = math.inf
        if doing in ("begin", "measure", "check"):
            worker.limit_secs = self._awake() + self._timeout_secs() + self._timeouts.start
        worker.call = self._fleet.call(worker.handle, method, *args)

    def _ended_call(self, worker: WorkerState) -> None:
        """Takes in what a call gave.

        Raises:
            WorkerLostError: the worker is gone, or cannot do what it must.
        """
        doing, worker.doing = worker.doing, ""
        call, worker.call = worker.call, None
        try:
            value = self._fleet.result(call)
        except WorkerLostError as error:
            if not (error.has_failed and doing == "ask"):
                raise
            worker.answer = error
            return
        worker.heartbeat.hear()
        if doing == "begin":
            self._begun(worker, value)
        elif doing == "measure":
            self._measured(worker, *value)
        elif doing == "check":
            self._checked(worker, value)
        elif doing == "ask":
            worker.answer = value

    def _begun(self, worker: WorkerState, greeting: Any) -> None:
        """Lets a worker measure that has measured the graph as it came.

        Raises:
            WorkerLostError: that fails there, and not where the search has begun.
        """
        original = greeting.original
        if self._original is None:
            self._original = original
            if self._reference_secs is None:
                self._reference_secs = original.median_secs
        worker.tally.place = greeting.host
        worker.reference_secs = original.median_secs
        if original.failure is not None and self._reference_secs is not None:
            raise WorkerLostError(f"the graph as it came fails there: {original.failure.message}")
        self._failed_starts = 0
        worker.tally.ready_secs = self._clock()
        if worker.reference_secs is not None:
            worker.slowness.add(self._factor(worker))
        self._report(
            f"{worker.name} on {greeting.host} is ready"
            + (
                f": a step takes {worker.slowness.now:.2f}x as long there as in trial 0"
                if worker.slowness.now is not None
                else ""
            )
        )

    def _measured(
        self, worker: WorkerState, measurement: Measurement, reference_secs: float | None
    ) -> None:
        """Ends a trial, in the seconds of the machine of trial 0."""
        task, worker.task = worker.task, None
        assert task is not None
        worker.reference_secs = reference_secs
        if measurement.step_secs is not None:
            drift = measurement.drift * self._factor(worker)
            measurement = dataclasses.replace(measurement, drift=drift)
            if reference_secs is not None:
                worker.slowness.add(drift)
        worker.tally.trials += 1
        worker.tally.failures += measurement.failure is not None
        worker.tally.busy_secs += self._clock() - worker.since_secs
        self._ended.append(CompletedTrial(task.key, measurement, worker.name))
        self._set_aside()

    def _checked(self, worker: WorkerState, secs: float | None) -> None:
        """Lets a worker measure again that is as fast as the others."""
        if secs is None or self._reference_secs is None:
            return
        worker.slowness.forget()
        for _ in range(3):
            worker.slowness.add(secs / self._reference_secs)
        odd = find_straggler({each.name: each.slowness for each in self._workers if each.is_ready})
        if odd is None or odd[0] != worker.name:
            worker.aside_secs = None
            self._report(f"{worker.name} on {worker.tally.place} is as fast as the others again")

    def _set_aside(self) -> None:
        """Lets a worker measure no more whose machine is slower than those of the others."""
        measuring = {each.name: each for each in self._workers if each.can_measure}
        odd = find_straggler({name: each.slowness for name, each in measuring.items()})
        if odd is None:
            return
        name, reason = odd
        worker = measuring[name]
        worker.aside_secs = self._clock()
        self._report(f"{name} on {worker.tally.place} is set aside: it {reason}")

    # What goes wrong.

    def _check(self, worker: WorkerState) -> None:
        """Asks a worker whether it is there.

        Raises:
            WorkerLostError: it does not answer, or measures for too long.
        """
        worker.heartbeat.check()
        if worker.doing and self._awake() >= worker.limit_secs:
            took_secs = self._clock() - worker.since_secs
            raise WorkerLostError(f"it has not ended a measurement within {took_secs:.0f} s")

    def _lose(self, worker: WorkerState, reason: str) -> None:
        """Gives a worker up, and its placement to another."""
        task = worker.task
        self._reasons.append(reason)
        if not worker.is_ready:
            self._failed_starts += 1
            back_off_secs = min(_MOST_BACK_OFF_SECS, 2.0**self._failed_starts)
            self._next_start_secs = self._clock() + back_off_secs
        else:
            # What it had may do for another.
            self._failed_starts, self._next_start_secs = 0, -math.inf
        self._remove(worker)
        where = f" on {worker.tally.place}" if worker.tally.place else ""
        then = ""
        if task is not None:
            task.losses.append(reason)
            if len(task.losses) < _MOST_LOSSES:
                self._waiting.appendleft(task)
                then = "; its placement is measured by another"
            else:
                message = f"{len(task.losses)} workers were lost while they measured it: {reason}"
                failure = Failure(FailureKind.WORKER_DIED, message)
                self._ended.append(
                    CompletedTrial(task.key, Measurement(failure=failure), worker.name)
                )
        self._report(f"{worker.name}{where} is lost: {reason}{then}")

    def _remove(self, worker: WorkerState, state: str = "lost") -> None:
        """Ends a worker."""
        self._workers.remove(worker)
        self._fleet.kill(worker.handle)
        worker.tally.state, worker.doing, worker.task = state, "", None
        # What it may still answer is not heard.
        worker.call = None
        self._lost.append(worker.tally)

    def _give_up_without_workers(self) -> None:
        now_secs = self._awake()
        if any(each.has_machine for each in self._workers):
            self._had_worker_secs = now_secs
        if any(each.is_ready for each in self._workers):
            return
        if self._failed_starts >= _MOST_FAILED_STARTS:
            raise WorkerStartError(f"no worker can begin: {self._reasons[-1]}")
        if now_secs - self._had_worker_secs >= self._timeouts.machine:
            why = f"; the last worker was lost: {self._reasons[-1]}" if self._reasons else ""
            limit = f"{self._timeouts.machine:.0f} s"
            raise WorkerStartError(f"no machine with room for a worker was there for {limit}{why}")

    def _break_off(self) -> None:
        """Ends what is under way, which is of no interest any more."""
        tasks = [each.task for each in self._workers if each.task is not None]
        self._ended += [
            CompletedTrial(task.key, _broken_off()) for task in (*tasks, *self._waiting)
        ]
        self.drop()

    def _factor(self, worker: WorkerState) -> float:
        """How many times as long as in trial 0 the graph as it came takes on a machine."""
        if worker.reference_secs is None or self._reference_secs is None:
            return 1.0
        return worker.reference_secs / self._reference_secs


def _broken_off() -> Measurement:
    return Measurement(failure=Failure(FailureKind.TIMEOUT, "broken off"))
