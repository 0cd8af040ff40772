"""The error for an invalid placement problem."""

from __future__ import annotations

__all__ = ["ProblemError"]


class ProblemError(ValueError):
    """An invalid placement problem; one sentence names the wrong entry."""
