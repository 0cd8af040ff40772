"""Lines for people on standard error."""

from __future__ import annotations

import sys

from graph_passes.messages import plain_text

__all__ = ["say"]


def say(line: str) -> None:
    """Prints a line on standard error, so that any terminal shows what is in it."""
    print(f"tf_placer: {plain_text(line)}", file=sys.stderr, flush=True)
