"""A line on a terminal that is written over again and again."""

from __future__ import annotations

import time
from typing import TextIO

__all__ = ["TerminalLine"]

_SHOWN_SECS = 0.2


class TerminalLine:
    """Says where something stands; nothing where there is no terminal."""

    def __init__(self, stream: TextIO) -> None:
        """Starts with an empty line.

        Args:
            stream: the terminal, if it is one.
        """
        self._stream = stream
        self._is_terminal = stream.isatty()
        self._shown_secs = float("-inf")

    def show(self, text: str) -> None:
        """Replaces the line, a few times a second at most."""
        now_secs = time.monotonic()
        if self._is_terminal and now_secs - self._shown_secs >= _SHOWN_SECS:
            self._shown_secs = now_secs
            self._write(text)

    def clear(self) -> None:
        """Takes the line away."""
        if self._is_terminal:
            self._write("")

    def _write(self, text: str) -> None:
        self._stream.write(f"\r\x1b[K{text}")
        self._stream.flush()
