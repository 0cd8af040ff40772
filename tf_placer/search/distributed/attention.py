"""How long a search has listened to its processes, which is what their silence is measured by."""

from __future__ import annotations

from collections.abc import Callable

__all__ = ["Attention"]

# A search looks several times a second. What is longer between two looks was spent elsewhere.
_MOST_SECS = 1.0


class Attention:
    """A clock that stands still while nobody reads it.

    A search that was stopped, or did something else for long, has not heard what it was told
    meanwhile: it must not take that for silence of others.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        """Begins at zero.

        Args:
            clock: gives the time in seconds.
        """
        self._clock = clock
        self._read_secs = clock()
        self._secs = 0.0

    def __call__(self) -> float:
        """Gives the seconds so far, of which the last pause is one at most."""
        now_secs = self._clock()
        self._secs += min(now_secs - self._read_secs, _MOST_SECS)
        self._read_secs = now_secs
        return self._secs
