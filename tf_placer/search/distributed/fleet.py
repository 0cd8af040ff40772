"""What starts workers on machines and talks to them, and what they say first."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from tf_placer.environments.environment import Measurement

__all__ = ["Fleet", "Greeting", "WorkerLostError"]


class WorkerLostError(RuntimeError):
    """A worker died, or its machine cannot be reached; one sentence says what is known.

    Attributes:
        has_failed: whether the worker is there, and its method raised an error.
    """

    def __init__(self, reason: str, *, has_failed: bool = False) -> None:
        super().__init__(reason)
        self.has_failed = has_failed


@dataclasses.dataclass(frozen=True)
class Greeting:
    """What a worker says when it is ready.

    Attributes:
        host: name of its computer.
        process: id of its process.
        versions: of the packages that decide what a step takes.
        original: the graph as it came, measured there.
    """

    host: str
    process: int
    versions: Mapping[str, str]
    original: Measurement


class Fleet(Protocol):
    """Starts workers and calls their methods without waiting for what they return."""

    def wanted(self) -> int:
        """Counts how many workers there should be now, at least one."""
        ...

    def start(self) -> Any:
        """Begins to start a worker; it waits for a machine that has room for it."""
        ...

    def call(self, worker: Any, method: str, *args: Any) -> Any:
        """Calls a method of a worker.

        Args:
            worker: from `start`.
            method: name of the method.
            args: its arguments, or calls that have returned them.

        Returns:
            The call, which has not ended.
        """
        ...

    def ended(self, calls: Sequence[Any], timeout_secs: float) -> list[Any]:
        """Waits until at least one of some calls has ended.

        Args:
            calls: from `call`.
            timeout_secs: how long to wait at most.

        Returns:
            Those that have ended; none if there was not enough time.
        """
        ...

    def result(self, call: Any) -> Any:
        """Gives what a call that has ended returned.

        Raises:
            WorkerLostError: the worker is gone, or the method raised an error.
        """
        ...

    def kill(self, worker: Any) -> None:
        """Ends a worker, whatever it does, and all of its processes."""
        ...

    def close(self) -> None:
        """Ends all workers, and what was started for them."""
        ...
