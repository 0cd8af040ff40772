"""Sessions on the machine of a worker, for what one machine does for all: the confirmation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np

from tf_placer.environments.environment import Failure
from tf_placer.environments.live_processes import WorkerStartError
from tf_placer.search.distributed.fleet import WorkerLostError
from tf_placer.search.distributed.worker_pool import WorkerPool

__all__ = ["RemoteSessions"]


class RemoteSessions:
    """Does what a confirmation needs of a `SessionEnvironment`, on the machine of a worker.

    All is done by the same worker, while the others do nothing. If it is lost, every method raises
    WorkerLostError once, and the next one is done by another: what was measured before does not
    belong to what follows.

    Attributes:
        timeout_secs: seconds that opening a session or running steps may take.
    """

    def __init__(self, pool: WorkerPool, timeout_secs: float) -> None:
        """Opens nothing yet.

        Args:
            pool: has the workers.
            timeout_secs: see above.
        """
        self._pool = pool
        self.timeout_secs = timeout_secs

    def restart(self) -> None:
        """Lets everything that follows run in fresh processes."""
        self._do("restart")

    def stop(self) -> None:
        """Ends what is under way, which was broken off."""
        self._pool.drop()

    def open_session(self, label: str, assignment: Mapping[str, str]) -> float | Failure:
        """Opens a session; see `SessionEnvironment.open_session`."""
        opened: float | Failure = self._do("open_session", label, assignment)
        return opened

    def run_steps(self, label: str, count: int) -> tuple[float, ...] | Failure:
        """Times steps; see `SessionEnvironment.run_steps`."""
        steps: tuple[float, ...] | Failure = self._do("run_steps", label, count)
        return steps

    def fetched_values(
        self, assignment: Mapping[str, str], *, tensors: Sequence[str] = ()
    ) -> dict[str, np.ndarray] | Failure:
        """Fetches what a few steps compute; see `SessionEnvironment.fetched_values`."""
        values: dict[str, np.ndarray] | Failure = self._do(
            "fetched_values", assignment, tensors=tensors
        )
        return values

    def _do(self, method: str, *args: Any, **options: Any) -> Any:
        try:
            return self._pool.ask("confirm", method, self.timeout_secs, args, options, alone=True)
        except WorkerLostError as error:
            if error.has_failed:
                raise WorkerStartError(str(error)) from None
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass
