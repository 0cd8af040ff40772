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
        kind: what happened.
        message: one sentence for people, with the end of the worker's own words where they help.
    """

    kind: FailureKind
    message: str


@dataclasses.dataclass(frozen=True)
class Measurement:
    """The result of running one placement: step times or a failure.

    Attributes:
        step_secs: seconds of every counted step, in the order they ran; None after a failure.
        failure: None, or why the placement could not be timed.
        setup_secs: seconds spent before the first counted step (session, initializers, warm-up).
        peak_bytes: the most memory that was held at once on each device; None where not known. A
            placement that ran out of memory may have it, too.
        reference_secs: seconds of the steps of the graph as it came that took turns with
            `step_secs`, each shortly before or after the one at its position; None where the
            placement was measured alone.
        drift: how many times as slow the machine was meanwhile as the one on which the graph as it
            came was measured first, then; 1 where that is not known.

    Raises:
        ValueError: neither or both of `step_secs` and `failure` were given, or the steps of the
            reference are not as many.
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
        """Distance between the quartiles of `steady_secs`, or None after a failure."""
        if self.step_secs is None:
            return None
        low, high = np.percentile(self.step_secs, [25, 75])
        return float(high - low) / self.drift

    @property
    def total_secs(self) -> float:
        """Seconds that all took: the setup and all steps, those of the reference included."""
        return self.setup_secs + sum(self.step_secs or ()) + sum(self.reference_secs or ())

    def to_json(self) -> dict[str, Any]:
        """Makes the JSON form: `step_secs`, `failure`, `setup_secs`, and the others where known."""
        failure = self.failure and {
            "kind": self.failure.kind.value,
            "message": self.failure.message,
        }
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
        """Reads what `to_json` wrote, in this version or an earlier one.

        Raises:
            ValueError: the value is not a measurement.
        """
        return read_record(cls, value)


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
