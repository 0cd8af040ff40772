"""A fleet whose workers, machines and clock are all made up: minutes pass in no time."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Collection, Sequence
from typing import Any

from tf_placer.environments.environment import Failure, FailureKind, Measurement
from tf_placer.search.distributed.fleet import Greeting, WorkerLostError

#: What a step of the graph as it came takes on a machine of speed 1.
ORIGINAL_SECS = 0.1
BEGIN_SECS, TRIAL_SECS = 5.0, 10.0


def relative_secs(row: Sequence[int]) -> float:
    """What a step takes under a placement, where the graph as it came takes 1."""
    return 0.5 + 0.1 * (sum(row) % 10)


def measurement_of(
    row: Sequence[int],
    slowness: float = 1.0,
    own_secs: float = ORIGINAL_SECS,
    failing: Collection[tuple[int, ...]] = (),
) -> Measurement:
    """What a worker measures, by its own clock.

    Args:
        row: the placement.
        slowness: of its machine, now.
        own_secs: what a step of the graph as it came took there first.
        failing: placements that do not fit.
    """
    if tuple(row) in failing:
        return Measurement(failure=Failure(FailureKind.OUT_OF_MEMORY, "it is too large"))
    secs, reference_secs = ORIGINAL_SECS * slowness * relative_secs(row), ORIGINAL_SECS * slowness
    drift = reference_secs / own_secs
    return Measurement((secs, secs), reference_secs=(reference_secs, reference_secs), drift=drift)


@dataclasses.dataclass(eq=False)
class FakeWorker:
    """A worker that is made up.

    Attributes:
        number: from 0 in the order in which they were started.
        machine_secs: when it gets a machine; infinite for never.
        slowness: how many times as long as on a machine of speed 1 everything takes, by the time.
        dead_secs, hung_secs: when it dies, or does not answer any more.
        measured: what it was asked to measure.
    """

    number: int
    machine_secs: float
    slowness: Callable[[float], float]
    dead_secs: float = math.inf
    hung_secs: float = math.inf
    measured: list[tuple[int, ...]] = dataclasses.field(default_factory=list)


@dataclasses.dataclass(eq=False)
class _Call:
    worker: FakeWorker
    method: str
    args: tuple[Any, ...]
    end_secs: float


class FakeFleet:
    """Starts workers that are made up.

    Attributes:
        now_secs: the time.
        size: how many workers there should be.
        workers: all that were started.
        killed: those that were ended by the pool.
        start_failure: why workers cannot begin; None where they can.
        failing, fatal: placements that fail, and that kill whoever measures them.
    """

    def __init__(
        self,
        size: int,
        slowness: Callable[[int], Callable[[float], float]] = lambda number: lambda now: 1.0,
        machine_secs: Callable[[int], float] = lambda number: 0.0,
    ) -> None:
        self.now_secs = 1000.0
        self.size = size
        self.workers: list[FakeWorker] = []
        self.killed: list[FakeWorker] = []
        self.start_failure: str | None = None
        self.failing: set[tuple[int, ...]] = set()
        self.fatal: set[tuple[int, ...]] = set()
        self._slowness = slowness
        self._machine_secs = machine_secs

    def clock(self) -> float:
        return self.now_secs

    def wanted(self) -> int:
        return self.size

    def start(self) -> FakeWorker:
        number = len(self.workers)
        there_secs = max(self.now_secs, 1000.0 + self._machine_secs(number))
        worker = FakeWorker(number, there_secs, self._slowness(number))
        self.workers.append(worker)
        return worker

    def call(self, worker: FakeWorker, method: str, *args: Any) -> _Call:
        took_secs = {"begin": BEGIN_SECS, "measure": TRIAL_SECS}.get(method, 0.01)
        began_secs = max(self.now_secs, worker.machine_secs)
        if method == "measure":
            row = tuple(args[0]["row"])
            worker.measured.append(row)
            if row in self.fatal:
                worker.dead_secs = self.now_secs + 1.0
        call = _Call(worker, method, args, began_secs + took_secs)
        if call.end_secs > worker.hung_secs:
            call.end_secs = math.inf
        if worker.dead_secs < call.end_secs:
            call.end_secs = max(self.now_secs, worker.dead_secs)
        return call

    def ended(self, calls: Sequence[_Call], timeout_secs: float) -> list[_Call]:
        for call in calls:
            worker = call.worker
            if call.end_secs > worker.hung_secs and worker.hung_secs <= self.now_secs:
                call.end_secs = math.inf
            if worker.dead_secs < call.end_secs:
                call.end_secs = max(self.now_secs, worker.dead_secs)
        first_secs = min((call.end_secs for call in calls), default=math.inf)
        self.now_secs = max(self.now_secs, min(first_secs, self.now_secs + timeout_secs))
        return [call for call in calls if call.end_secs <= self.now_secs]

    def result(self, call: _Call) -> Any:
        worker = call.worker
        if worker.dead_secs <= self.now_secs:
            raise WorkerLostError("its process died")
        if worker in self.killed:
            raise AssertionError("a worker that was ended is still heard")
        slowness = worker.slowness(self.now_secs)
        own_secs = ORIGINAL_SECS * worker.slowness(worker.machine_secs)
        if call.method == "begin":
            if self.start_failure is not None:
                raise WorkerLostError(self.start_failure, has_failed=True)
            original = Measurement((own_secs, own_secs))
            return Greeting(f"host{worker.number}", worker.number, {}, original)
        if call.method == "measure":
            return measurement_of(call.args[0]["row"], slowness, own_secs, self.failing), own_secs
        if call.method == "measure_original":
            return ORIGINAL_SECS * slowness
        if call.method == "fail":
            raise WorkerLostError("there is nothing to trace", has_failed=True)
        return f"{call.method} by {worker.number}"

    def kill(self, worker: FakeWorker) -> None:
        self.killed.append(worker)

    def close(self) -> None:
        self.killed += [worker for worker in self.workers if worker not in self.killed]


def assign(row: Any) -> dict[str, Any]:
    """Stands in for device names by operation name: a worker that is made up takes the row."""
    return {"row": tuple(int(device) for device in row)}
