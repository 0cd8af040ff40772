"""Sessions on the machine of a worker, for the confirmation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np

from tf_placer.environments.environment import Failure
from tf_placer.environments.live_processes import WorkerStartError
from tf_placer.search.distributed.actor_backend import WorkerLostError
from tf_placer.search.distributed.worker_pool import WorkerPool

__all__ = ["RemoteSessions"]


class RemoteSessions:
    """The methods of a `SessionEnvironment` that a confirmation needs, run by a worker.

    One worker runs them all while the others are idle. If it is lost, the method raises
    WorkerLostError, and another worker runs the next one. Measurements from before the loss must
    not be compared with later ones.

    Attributes:
        timeout_secs: time limit for opening a session and for running steps.
    """

    def __init__(self, pool: WorkerPool, timeout_secs: float) -> None:
        """Opens nothing yet.

        Args:
            pool: the pool of workers.
            timeout_secs: see the class.
        """
        self._pool = pool
        self.timeout_secs = timeout_secs

    def restart(self) -> None:
        """Starts fresh processes for all later calls."""
        self._do("restart")

    def stop(self) -> None:
        """Cancels the call that is under way."""
        self._pool.cancel()

    def open_session(self, label: str, assignment: Mapping[str, str]) -> float | Failure:
        """Opens a session; see `SessionEnvironment.open_session`."""
        opened: float | Failure = self._do("open_session", label, assignment)
        return opened

    def run_steps(self, label: str, count: int) -> tuple[float, ...] | Failure:
        """Times steps; see `SessionEnvironment.run_steps`."""
        steps: tuple[float, ...] | Failure = self._do("run_steps", label, count)
        return steps

    def fetch_values(
        self, assignment: Mapping[str, str], *, tensors: Sequence[str] = (), alone: bool = False
    ) -> dict[str, np.ndarray] | Failure:
        """Fetches the values of a few steps; see `SessionEnvironment.fetch_values`."""
        values: dict[str, np.ndarray] | Failure = self._do(
            "fetch_values", assignment, tensors=tensors, alone=alone
        )
        return values

    def _do(self, method: str, *args: Any, **options: Any) -> Any:
        try:
            return self._pool.call_one(
                "confirm", method, self.timeout_secs, args, options, alone=True
            )
        except WorkerLostError as error:
            if error.has_failed:
                raise WorkerStartError(str(error)) from None
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass
