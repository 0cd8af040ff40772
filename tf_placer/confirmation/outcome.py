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
