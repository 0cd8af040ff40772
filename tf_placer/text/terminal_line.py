"""A line that says where something stands: written over on a terminal, now and then elsewhere."""

from __future__ import annotations

import contextlib
import time
from typing import Self, TextIO

from graph_passes.util.messages import plain_text
from tf_placer.text.notes import say

__all__ = ["TerminalLine"]

_TERMINAL_SECS = 0.2
_FILE_SECS = 10.0


class TerminalLine:
    """Says where something stands: a few times a second on a terminal, else every ten seconds."""

    def __init__(self, stream: TextIO | None) -> None:
        """Starts with an empty line.

        Args:
            stream: standard error, a terminal perhaps; None where it is closed.
        """
        self._stream = stream
        self._is_terminal = stream is not None and stream.isatty()
        # What is over within ten seconds leaves nothing in a file.
        self._shown_secs = float("-inf") if self._is_terminal else time.monotonic()

    def show(self, text: str) -> None:
        """Replaces the line of a terminal, or writes another, unless the last was just now."""
        now_secs = time.monotonic()
        interval_secs = _TERMINAL_SECS if self._is_terminal else _FILE_SECS
        if now_secs - self._shown_secs >= interval_secs:
            self._shown_secs = now_secs
            text = plain_text(text)
            self._write(f"\r\x1b[K{text}" if self._is_terminal else f"{text}\n")

    def say(self, line: str) -> None:
        """Says something as this program, in place of the line."""
        self.clear()
        say(line)

    def clear(self) -> None:
        """Takes the line of a terminal away."""
        if self._is_terminal:
            self._write("\r\x1b[K")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.clear()

    def _write(self, text: str) -> None:
        if self._stream is None:
            return
        # As of any note: a full disk does not end what it tells about.
        with contextlib.suppress(OSError, ValueError):
            self._stream.write(text)
            self._stream.flush()
