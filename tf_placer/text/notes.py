"""Messages for people, on standard error."""

from __future__ import annotations

import contextlib
import sys

from graph_passes.util.messages import plain_text

__all__ = ["say", "write_note"]


def say(line: str) -> None:
    """Prints a message with the name of this program."""
    write_note(f"tf_placer: {plain_text(line)}")


def write_note(text: str, end: str = "\n") -> None:
    """Writes text to standard error, as characters that any terminal can show.

    Errors are ignored, as of a full disk or a closed pipe: a message must never end the work that
    it is about.
    """
    if sys.stderr is None:
        return  # `print` would write to standard output.
    with contextlib.suppress(OSError, ValueError):  # A closed file is a ValueError.
        print(plain_text(text, lines=True), end=end, file=sys.stderr, flush=True)
