"""Measurements of placements, and the interface of environments that make them."""

from __future__ import annotations

import dataclasses
import enum
import statistics
from typing import Annotated, Any, Protocol

import numpy as np

from graph_passes.util.json_records import POSITIVE, read_record

__all__ = ["Environment", "Failure", "FailureKind", "Measurement"]

_Secs = tuple[Annotated[float, POSITIVE], ...]


class FailureKind(enum.Enum):
    """The kinds of failures of a placement."""

    OUT_OF_MEMORY = "out_of_memory"
    INVALID_PLACEMENT = "invalid_placement"
    TIMEOUT = "timeout"
    WORKER_DIED = "worker_died"
    RUNTIME_ERROR = "runtime_error"


@dataclasses.dataclass(frozen=True)
class Failure:
    """A placement that could not be timed.

    Attributes:
        kind: the kind of the failure.
        message: one sentence for users, with the end of the worker's log where it helps.
        excess_bytes: the bytes that the devices lack, all together, at their peaks; None if they
            are unknown, or memory is not the reason.
    """

    kind: FailureKind
    message: str
    excess_bytes: int | None = None


@dataclasses.dataclass(frozen=True)
class Measurement:
    """The result of running one placement: step times or a failure.

    Attributes:
        step_secs: seconds of every counted step, in the order they ran; None after a failure.
        failure: the reason why the placement could not be timed, or None.
        setup_secs: seconds spent before the first counted step (session, initializers, warm-up).
        peak_bytes: peak memory of each device; None if unknown. A placement that ran out of memory
            may have it, too.
        reference_secs: seconds of the original's steps that took turns with `step_secs`, each
            shortly before or after the step at the same position; None if the placement was
            measured alone.
        drift: step time of the original during this measurement divided by its first step time; 1
            if unknown.

    Raises:
        ValueError: neither or both of `step_secs` and `failure` were given, or `reference_secs` and
            `step_secs` differ in length.
    """

    step_secs: _Secs | None = None
    failure: Failure | None = None
    setup_secs: float = 0.0
    peak_bytes: tuple[int, ...] | None = None
    reference_secs: _Secs | None = None
    drift: float = 1.0

    def __post_init__(self) -> None:
        if (self.step_secs is None) == (self.failure is None):
            raise ValueError("a measurement has either step times or a failure")
        if self.step_secs is not None and not self.step_secs:
            raise ValueError("a measurement that did not fail has at least one step time")
        if self.reference_secs is not None and len(self.reference_secs) != len(
            self.step_secs or ()
        ):
            raise ValueError("there must be as many steps of the reference as of the placement")
        if not self.drift > 0:
            raise ValueError(f"a drift is positive, not {self.drift}")

    @property
    def steady_secs(self) -> tuple[float, ...] | None:
        """The step times without the drift of the machine, or None after a failure."""
        return None if self.step_secs is None else tuple(s / self.drift for s in self.step_secs)

    @property
    def median_secs(self) -> float | None:
        """The median step time without the drift of the machine, or None after a failure."""
        return None if self.step_secs is None else statistics.median(self.step_secs) / self.drift

    @property
    def spread_secs(self) -> float | None:
        """The interquartile range of `steady_secs`, or None after a failure."""
        if self.step_secs is None:
            return None
        low, high = np.percentile(self.step_secs, [25, 75])
        return float(high - low) / self.drift

    @property
    def total_secs(self) -> float:
        """Seconds of the setup and of all steps, including the steps of the reference."""
        return self.setup_secs + sum(self.step_secs or ()) + sum(self.reference_secs or ())

    def to_json(self) -> dict[str, Any]:
        """Builds the JSON form: `step_secs`, `failure`, `setup_secs`, and the others if known."""
        failure: dict[str, Any] | None = None
        if self.failure is not None:
            failure = {"kind": self.failure.kind.value, "message": self.failure.message}
            if self.failure.excess_bytes is not None:
                failure["excess_bytes"] = self.failure.excess_bytes
        value = {
            "step_secs": None if self.step_secs is None else list(self.step_secs),
            "failure": failure,
            "setup_secs": self.setup_secs,
        }
        if self.peak_bytes is not None:
            value["peak_bytes"] = list(self.peak_bytes)
        if self.reference_secs is not None:
            value["reference_secs"] = list(self.reference_secs)
        if self.reference_secs is not None or self.drift != 1.0:
            value["drift"] = self.drift
        return value

    @classmethod
    def from_json(cls, value: object) -> Measurement:
        """Reads the JSON form of this version or an earlier one.

        Raises:
            ValueError: the value is not a measurement.
        """
        return read_record(cls, value)


class Environment(Protocol):
    """The interface of environments: they measure the step times of placements."""

    def measure(self, placements: np.ndarray) -> list[Measurement]:
        """Measures placements one after the other.

        Args:
            placements: int32 [num_placements, num_groups], a device index per group.

        Returns:
            One measurement per placement. A placement that cannot run gives a `Failure`, never an
            exception.
        """
        ...
