"""The time limit of planning, which includes reading the problem and writing the result."""

from __future__ import annotations

import time

from tf_placer.text.units import format_duration

__all__ = ["Deadline"]

# A search needs a positive limit, even if reading the problem used all of the time.
_MIN_SEARCH_SECS = 1e-3
_MAX_UNREPORTED_EXCESS_SECS = 1.0


class Deadline:
    """The end of the time of a call."""

    def __init__(self, start_secs: float, max_secs: float) -> None:
        """Starts a deadline.

        Args:
            start_secs: the time of the call, by `time.monotonic`.
            max_secs: limit in seconds; infinite for no limit.
        """
        self.max_secs = max_secs
        self._start_secs = start_secs
        self._read_secs = self._prepared_secs = 0.0

    @property
    def preparing_secs(self) -> float:
        """The duration of the preparation between reading the problem and searching."""
        return self._prepared_secs - self._read_secs

    def compute_used_secs(self) -> float:
        """Computes the time since the call in seconds."""
        return time.monotonic() - self._start_secs

    def compute_secs_left(self, reserved_secs: float = 0.0) -> float:
        """Computes the time left for a search, without a reserve; always positive."""
        return max(_MIN_SEARCH_SECS, self.max_secs - reserved_secs - self.compute_used_secs())

    def end_reading(self) -> None:
        """Records that the problem is read."""
        self._read_secs = self.compute_used_secs()

    def begin_search(self) -> None:
        """Records that the search begins."""
        self._prepared_secs = self.compute_used_secs()

    def describe_excess(self) -> str | None:
        """Explains why the limit was exceeded; None if it was not."""
        if self.compute_used_secs() <= self.max_secs + _MAX_UNREPORTED_EXCESS_SECS:
            return None
        used = (
            f"{format_duration(self.compute_used_secs())} were used where "
            f"{format_duration(self.max_secs)} are allowed"
        )
        if self._prepared_secs < self.max_secs:
            return (
                f"{used}: what had begun by then took longer than planned; the first batch of a "
                "placer always runs to its end"
            )
        return (
            f"{used}: reading and preparing the problem takes "
            f"{format_duration(self._prepared_secs)} here, whatever is allowed"
        )
