"""What is said of something that is no placement problem."""

from __future__ import annotations

__all__ = ["ProblemError"]


class ProblemError(ValueError):
    """This is no placement problem; one sentence names the entry that is wrong."""
