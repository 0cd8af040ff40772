"""The time that planning may take, reading the problem and writing the result included."""

from __future__ import annotations

import time

from tf_placer.text.units import format_duration

__all__ = ["Deadline"]

# A search must have some time, even where reading its problem took all that there is.
_LEAST_SECS = 1e-3
# An excess up to this long is not reported.
_TOLERATED_SECS = 1.0


class Deadline:
    """The end of the time of a call."""

    def __init__(self, start_secs: float, max_secs: float) -> None:
        """Takes over a budget.

        Args:
            start_secs: the time of the call, by `time.monotonic`.
            max_secs: seconds that it may take; infinite without a limit.
        """
        self.max_secs = max_secs
        self._start_secs = start_secs
        self._read_secs = self._prepared_secs = 0.0

    @property
    def preparing_secs(self) -> float:
        """How long it took to prepare the search of a problem that was read."""
        return self._prepared_secs - self._read_secs

    def compute_used_secs(self) -> float:
        """Computes how long the call has taken so far."""
        return time.monotonic() - self._start_secs

    def compute_secs_left(self, reserved_secs: float = 0.0) -> float:
        """Computes the time that is left for a search, but for some: positive in any case."""
        return max(_LEAST_SECS, self.max_secs - reserved_secs - self.compute_used_secs())

    def end_reading(self) -> None:
        """Notes that the problem is read."""
        self._read_secs = self.compute_used_secs()

    def begin_search(self) -> None:
        """Notes that all before the search is done."""
        self._prepared_secs = self.compute_used_secs()

    def describe_excess(self) -> str | None:
        """Explains an excess, which no limit covers; None where the time was enough."""
        if self.compute_used_secs() <= self.max_secs + _TOLERATED_SECS:
            return None
        return (
            f"{format_duration(self.compute_used_secs())} were used where "
            f"{format_duration(self.max_secs)} are allowed: reading and preparing the problem "
            f"takes {format_duration(self._prepared_secs)} here, whatever is allowed"
        )
