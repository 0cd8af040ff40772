"""The interface of backends that start workers on machines and call their methods."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from tf_placer.environments.environment import Measurement

__all__ = ["ActorBackend", "WorkerInfo", "WorkerLostError"]


class WorkerLostError(RuntimeError):
    """The loss of a worker that died or cannot be reached, or the failure of its method.

    Attributes:
        has_failed: whether the worker is alive, and its method raised an error.
    """

    def __init__(self, reason: str, *, has_failed: bool = False) -> None:
        super().__init__(reason)
        self.has_failed = has_failed


@dataclasses.dataclass(frozen=True)
class WorkerInfo:
    """The facts that a worker reports when it is ready.

    Attributes:
        host: name of its computer.
        process: id of its process.
        versions: versions of the packages that affect step times.
        original: the measurement of the original graph on its machine.
    """

    host: str
    process: int
    versions: Mapping[str, str]
    original: Measurement


class ActorBackend(Protocol):
    """Starts workers, and calls their methods without waiting for the results."""

    def count_wanted(self) -> int:
        """Counts the workers that should run now, at least one."""
        ...

    def start(self) -> Any:
        """Requests a new worker, which starts when a machine has room for it."""
        ...

    def call(self, worker: Any, method: str, *args: Any) -> Any:
        """Calls a method of a worker.

        Args:
            worker: a worker from `start`.
            method: name of the method.
            args: its arguments, or earlier calls whose results are the arguments.

        Returns:
            The call, which has not ended.
        """
        ...

    def wait(self, calls: Sequence[Any], timeout_secs: float) -> list[Any]:
        """Waits until at least one of several calls has ended.

        Args:
            calls: calls from `call`.
            timeout_secs: the longest wait.

        Returns:
            The calls that have ended; none after the time-out.
        """
        ...

    def result(self, call: Any) -> Any:
        """Returns the result of a call that has ended.

        Raises:
            WorkerLostError: the worker is gone, or the method raised an error.
        """
        ...

    def kill(self, worker: Any) -> None:
        """Kills a worker and all of its processes."""
        ...

    def close(self) -> None:
        """Kills all workers, and stops everything that was started for them."""
        ...
