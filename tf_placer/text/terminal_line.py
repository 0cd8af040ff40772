"""A progress line: overwritten in place on a terminal, printed now and then elsewhere."""

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
    """A progress line, updated five times a second on a terminal, elsewhere every ten seconds."""

    def __init__(self, stream: TextIO | None) -> None:
        """Starts with an empty line.

        Args:
            stream: standard error; None if it is closed.
        """
        self._stream = stream
        self._is_terminal = stream is not None and stream.isatty()
        # Work that ends within ten seconds writes no progress line into a file.
        self._shown_secs = float("-inf") if self._is_terminal else time.monotonic()

    def show(self, text: str) -> None:
        """Updates the line, unless the last update was just before."""
        now_secs = time.monotonic()
        interval_secs = _TERMINAL_SECS if self._is_terminal else _FILE_SECS
        if now_secs - self._shown_secs >= interval_secs:
            self._shown_secs = now_secs
            text = plain_text(text)
            self._write(f"\r\x1b[K{text}" if self._is_terminal else f"{text}\n")

    def say(self, line: str) -> None:
        """Prints a message in place of the line."""
        self.clear()
        say(line)

    def clear(self) -> None:
        """Removes the line from a terminal."""
        if self._is_terminal:
            self._write("\r\x1b[K")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.clear()

    def _write(self, text: str) -> None:
        if self._stream is None:
            return
        # As in `write_note`: a full disk must not end the work.
        with contextlib.suppress(OSError, ValueError):
            self._stream.write(text)
            self._stream.flush()
