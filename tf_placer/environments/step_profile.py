"""Profiles of traced steps by operation, in plain Python."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

__all__ = ["OperationProfile", "OperationTimes", "StepProfile"]


@dataclasses.dataclass(frozen=True)
class OperationProfile:
    """Times and memory of an operation in the traced steps.

    Attributes:
        compute_secs: median over the steps of the seconds it ran, summed over its runs in a step.
        runs: median number of runs in a step; an operation in a loop runs more than once.
        temp_bytes: the most memory that it held only while it ran.
        output_bytes: size of each output by its number, the largest that was seen.
    """

    compute_secs: float
    runs: int = 1
    temp_bytes: int = 0
    output_bytes: Mapping[int, int] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class OperationTimes:
    """Times of an operation that runs alone.

    Attributes:
        secs: seconds of every counted run.
        cpu_secs: by the name of each process that runs sessions, the processor time that it used
            in every counted run.
    """

    secs: tuple[float, ...]
    cpu_secs: Mapping[str, tuple[float, ...]] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class StepProfile:
    """Times of a step and profiles of its operations.

    Attributes:
        step_secs: seconds of every counted step, measured without a trace.
        operations: profiles by operation name. An operation without a profile did not run: it was
            folded into a constant, merged with an equal one, or lies in a branch not taken.
    """

    step_secs: tuple[float, ...]
    operations: Mapping[str, OperationProfile]

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> StepProfile:
        """Reads the JSON form that the worker sends."""
        return cls(
            tuple(value["step_secs"]),
            {
                name: OperationProfile(
                    operation["compute_secs"],
                    operation["runs"],
                    operation["temp_bytes"],
                    {int(port): size for port, size in operation["output_bytes"].items()},
                )
                for name, operation in value["operations"].items()
            },
        )
