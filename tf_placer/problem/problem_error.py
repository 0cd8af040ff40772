"""What is said of something that is no placement problem."""

from __future__ import annotations

from graph_passes.util.json_text import shown

__all__ = ["ProblemError", "shown"]


class ProblemError(ValueError):
    """This is no placement problem; one sentence names the entry that is wrong."""
