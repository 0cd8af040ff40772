"""The ways in which a live search ends."""

from __future__ import annotations

import enum

__all__ = ["Outcome"]


class Outcome(enum.Enum):
    """The outcome of a search."""

    NOTHING_TO_PLACE = "nothing_to_place"
    NOTHING_RUNS = "nothing_runs"
    NO_TIME = "no_time"
    NOT_FASTER = "not_faster"
    DIFFERENT_VALUES = "different_values"
    NOT_CONFIRMED = "not_confirmed"
    INTERRUPTED = "interrupted"
    FITS = "fits"
    FASTER = "faster"

    @property
    def is_verdict(self) -> bool:
        """True if the search says whether the graph is placed; more time would not be needed."""
        return self in (
            *(Outcome.FASTER, Outcome.FITS, Outcome.NOT_FASTER),
            *(Outcome.DIFFERENT_VALUES, Outcome.NOTHING_TO_PLACE),
        )

    @property
    def title(self) -> str:
        """The outcome for the first words of a verdict."""
        if self is Outcome.FASTER:
            return "placed"
        return "unchanged" if self.is_verdict else "no verdict"
