"""Lines for people, on standard error."""

from __future__ import annotations

import contextlib
import sys

from graph_passes.util.messages import plain_text

__all__ = ["say", "write_note"]


def say(line: str) -> None:
    """Says something as this program."""
    write_note(f"tf_placer: {plain_text(line)}")


def write_note(text: str, end: str = "\n") -> None:
    """Writes text to standard error, if that takes any.

    Whatever runs is worth more than what it has to say: on a disk that is full, or to a reader that
    has gone, nothing is written. Any terminal shows what is in the text.
    """
    if sys.stderr is None:
        return  # `print` would write to standard output.
    with contextlib.suppress(OSError, ValueError):  # A closed file is a ValueError.
        print(plain_text(text, lines=True), end=end, file=sys.stderr, flush=True)
