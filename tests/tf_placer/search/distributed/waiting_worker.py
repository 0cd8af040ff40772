"""A worker that measures by waiting, for tests with real processes and no TensorFlow."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from typing import Any

from tests.tf_placer.search.distributed import fake_backend
from tf_placer.environments.environment import Measurement
from tf_placer.search.distributed.actor_backend import WorkerInfo


class WaitingWorker:
    """Waits as long as a trial takes, and returns a scripted measurement."""

    def __init__(self, trial_secs: float, log_path: str) -> None:
        self._trial_secs = trial_secs
        self._log_path = log_path

    def ping(self) -> bool:
        return True

    def begin(self, timeout_secs: float) -> Any:
        original = Measurement((fake_backend.ORIGINAL_SECS,) * 2)
        return WorkerInfo("here", os.getpid(), dict(os.environ), original)

    def measure(
        self, assignment: Mapping[str, Any], best_secs: float | None, timeout_secs: float
    ) -> tuple[Measurement, float]:
        with open(self._log_path, "a") as file:
            file.write(f"{os.getpid()}\n")
        time.sleep(self._trial_secs)
        return fake_backend.measurement_of(assignment["row"]), fake_backend.ORIGINAL_SECS

    def fail(self) -> None:
        raise ValueError("it cannot be done")

    def release(self) -> None:
        pass
