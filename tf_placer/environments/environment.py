"""What a placement is measured by, and what a measurement is."""

from __future__ import annotations

import dataclasses
import enum
import statistics
from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np

__all__ = ["Environment", "Failure", "FailureKind", "Measurement"]


class FailureKind(enum.Enum):
    """Why a placement has no step time."""

    OUT_OF_MEMORY = "out_of_memory"
    INVALID_PLACEMENT = "invalid_placement"
    TIMEOUT = "timeout"
    WORKER_DIED = "worker_died"
    RUNTIME_ERROR = "runtime_error"


@dataclasses.dataclass(frozen=True)
class Failure:
    """A placement that could not be timed.

    Attributes:
        kind: what happened.
        message: one sentence for people, with the end of the worker's own words where they help.
    """

    kind: FailureKind
    message: str


@dataclasses.dataclass(frozen=True)
class Measurement:
    """What running one placement gave: step times, or the reason why there are none.

    Attributes:
        step_secs: seconds of every counted step, in the order they ran; None after a failure.
        failure: None, or why the placement could not be timed.
        setup_secs: seconds spent before the first counted step (session, initialisers, warm-up).
        peak_bytes: the most memory that was held at once on each device; None where not known. A
            placement that ran out of memory may have it, too.

    Raises:
        ValueError: neither or both of `step_secs` and `failure` were given.
    """

    step_secs: tuple[float, ...] | None = None
    failure: Failure | None = None
    setup_secs: float = 0.0
    peak_bytes: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        if (self.step_secs is None) == (self.failure is None):
            raise ValueError("a measurement has either step times or a failure")
        if self.step_secs is not None and not self.step_secs:
            raise ValueError("a measurement that did not fail has at least one step time")

    @property
    def median_secs(self) -> float | None:
        """The median step time, or None after a failure."""
        return None if self.step_secs is None else statistics.median(self.step_secs)

    @property
    def spread_secs(self) -> float | None:
        """Distance between the quartiles of the step times, or None after a failure."""
        if self.step_secs is None:
            return None
        low, high = np.percentile(self.step_secs, [25, 75])
        return float(high - low)

    def to_json(self) -> dict[str, Any]:
        """The JSON form: `step_secs`, `failure`, `setup_secs`, and `peak_bytes` where known."""
        failure = self.failure and {
            "kind": self.failure.kind.value,
            "message": self.failure.message,
        }
        value = {
            "step_secs": None if self.step_secs is None else list(self.step_secs),
            "failure": failure,
            "setup_secs": self.setup_secs,
        }
        return value if self.peak_bytes is None else value | {"peak_bytes": list(self.peak_bytes)}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Measurement:
        """Reads what `to_json` wrote.

        Raises:
            KeyError, ValueError: the value is not a measurement.
        """
        failure = value["failure"]
        steps = value["step_secs"]
        peaks = value.get("peak_bytes")
        return cls(
            None if steps is None else tuple(float(secs) for secs in steps),
            failure and Failure(FailureKind(failure["kind"]), failure["message"]),
            float(value["setup_secs"]),
            None if peaks is None else tuple(int(peak) for peak in peaks),
        )


class Environment(Protocol):
    """Anything that can say how long a step takes under a placement."""

    def measure(self, placements: np.ndarray) -> list[Measurement]:
        """Measures placements one after the other.

        Args:
            placements: int32 [num_placements, num_groups], a device index per group.

        Returns:
            One measurement per placement. A placement that cannot run is a `Failure`, never an
            exception.
        """
        ...
