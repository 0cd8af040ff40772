"""A backend with fake workers, machines and clock, so that tests of minutes take no time."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Collection, Sequence
from typing import Any

from tf_placer.environments.environment import Failure, FailureKind, Measurement
from tf_placer.search.distributed.actor_backend import WorkerInfo, WorkerLostError

#: Step time of the original graph on a machine of speed 1.
ORIGINAL_SECS = 0.1
BEGIN_SECS, TRIAL_SECS = 5.0, 10.0


def relative_secs(row: Sequence[int]) -> float:
    """Computes the step time of a placement, relative to the original graph."""
    return 0.5 + 0.1 * (sum(row) % 10)


def measurement_of(
    row: Sequence[int],
    slowness: float = 1.0,
    own_secs: float = ORIGINAL_SECS,
    failing: Collection[tuple[int, ...]] = (),
) -> Measurement:
    """Makes the measurement of a worker, in seconds of its machine.

    Args:
        row: the placement.
        slowness: the relative step time of the machine now.
        own_secs: the first step time of the original graph on the machine.
        failing: placements that do not fit into memory.
    """
    if tuple(row) in failing:
        return Measurement(failure=Failure(FailureKind.OUT_OF_MEMORY, "it is too large"))
    secs, reference_secs = ORIGINAL_SECS * slowness * relative_secs(row), ORIGINAL_SECS * slowness
    drift = reference_secs / own_secs
    return Measurement((secs, secs), reference_secs=(reference_secs, reference_secs), drift=drift)


@dataclasses.dataclass(eq=False)
class FakeWorker:
    """A fake worker.

    Attributes:
        number: from 0 in the order of starts.
        machine_secs: the time when it gets a machine; infinite for never.
        slowness: computes the relative step time of its machine from the time.
        dead_secs, hung_secs: the times when it dies, and when it stops answering.
        measured: the placements that it was given to measure.
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


class FakeBackend:
    """Starts fake workers.

    Attributes:
        now_secs: the time.
        size: the number of workers wanted.
        workers: all workers that were started.
        killed: the workers that the pool has killed.
        start_failure: the reason that workers cannot start; None if they can.
        failing, fatal: placements that fail, and that kill the workers that measure them.
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

    def count_wanted(self) -> int:
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

    def wait(self, calls: Sequence[_Call], timeout_secs: float) -> list[_Call]:
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
            raise AssertionError("the pool has used an answer of a worker that it has killed")
        slowness = worker.slowness(self.now_secs)
        own_secs = ORIGINAL_SECS * worker.slowness(worker.machine_secs)
        if call.method == "begin":
            if self.start_failure is not None:
                raise WorkerLostError(self.start_failure, has_failed=True)
            original = Measurement((own_secs, own_secs))
            return WorkerInfo(f"host{worker.number}", worker.number, {}, original)
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
    """Makes an assignment for a fake worker, which has the row in place of device names."""
    return {"row": tuple(int(device) for device in row)}
