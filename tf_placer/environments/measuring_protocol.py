"""Measuring protocols: the steps of a trial, in turns with the original or alone in a session."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

__all__ = [
    "ALONE_PROTOCOLS",
    "COLOCRL",
    "EAGLE",
    "POST",
    "PROTOCOLS",
    "TURNS",
    "MeasuringProtocol",
]


@dataclasses.dataclass(frozen=True)
class MeasuringProtocol:
    """The numbers of steps of a measurement.

    Attributes:
        steps: number of steps after the initializers.
        dropped: number of first steps that are warm-up and do not count.

    Raises:
        ValueError: no step would be counted.
    """

    steps: int
    dropped: int

    def __post_init__(self) -> None:
        if not 0 <= self.dropped < self.steps:
            raise ValueError(
                f"of {self.steps} steps, {self.dropped} cannot be dropped: at least one must count"
            )

    @property
    def counted(self) -> int:
        """The number of steps that count."""
        return self.steps - self.dropped


COLOCRL = MeasuringProtocol(steps=10, dropped=1)
"""10 steps of which the first is dropped, as ColocRL measures."""
POST = MeasuringProtocol(steps=11, dropped=1)
"""11 steps of which the first is dropped, as Post measures."""
EAGLE = MeasuringProtocol(steps=15, dropped=5)
"""15 steps of which the first 5 are dropped, as EAGLE measures."""

#: The name of the protocol of trials that take turns with the original.
TURNS = "turns"
#: The papers' protocols of trials that are alone in a session, by name.
ALONE_PROTOCOLS: Mapping[str, MeasuringProtocol] = {
    "colocrl": COLOCRL,
    "post": POST,
    "eagle": EAGLE,
}
#: The names of all protocols of a trial, the default first.
PROTOCOLS = (TURNS, *ALONE_PROTOCOLS)
