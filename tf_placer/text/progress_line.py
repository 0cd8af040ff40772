"""A progress line: replaced in place on a terminal and in a notebook, printed elsewhere."""

from __future__ import annotations

import contextlib
import html
import time
from typing import Self, TextIO

from graph_passes.util.messages import plain_text
from tf_placer.interpreter import is_notebook
from tf_placer.text.notebook import UpdatedOutput
from tf_placer.text.notes import say

__all__ = ["ProgressLine"]

_TERMINAL_SECS, _NOTEBOOK_SECS, _FILE_SECS = 0.2, 0.5, 10.0


class ProgressLine:
    """A progress line, updated in place on a terminal and in a notebook.

    A file gets a line every ten seconds.
    """

    def __init__(self, stream: TextIO | None) -> None:
        """Starts with an empty line.

        Args:
            stream: standard error; None if it is closed.
        """
        self._stream = stream
        self._is_terminal = stream is not None and stream.isatty()
        self._output = UpdatedOutput() if stream is not None and is_notebook() else None
        self._interval_secs = _FILE_SECS
        if self._is_terminal:
            self._interval_secs = _TERMINAL_SECS
        elif self._output is not None:
            self._interval_secs = _NOTEBOOK_SECS
        # Work that ends within ten seconds writes no progress line into a file.
        is_in_place = self._interval_secs < _FILE_SECS
        self._shown_secs = float("-inf") if is_in_place else time.monotonic()

    def show(self, text: str) -> None:
        """Updates the line, unless the last update was just before."""
        now_secs = time.monotonic()
        if now_secs - self._shown_secs >= self._interval_secs:
            self._shown_secs = now_secs
            text = plain_text(text)
            if self._output is not None:
                self._output.show(f"<small>{html.escape(text)}</small>")
            else:
                self._write(f"\r\x1b[K{text}" if self._is_terminal else f"{text}\n")

    def say(self, line: str) -> None:
        """Prints a message in place of the line."""
        self.clear()
        say(line)

    def clear(self) -> None:
        """Removes the line from a terminal or a notebook."""
        if self._output is not None and self._output.is_shown:
            self._output.show("")
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
