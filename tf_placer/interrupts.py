"""Being asked to end early, at a moment that does no harm."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType

__all__ = ["Interrupts"]


class Interrupts:
    """Counts requests to end, and breaks off what may be broken off.

    Nothing is raised anywhere else, so that no file is left half written. Signals can only be
    handled in the main thread; elsewhere requests are counted, and break off nothing.

    Attributes:
        count: how often it was asked to end.
    """

    def __init__(self) -> None:
        self.count = 0
        self._breaks_at: int | None = None

    def listen(self) -> None:
        """Takes SIGINT for a request from now on; for processes that have nothing else to do."""
        signal.signal(signal.SIGINT, self._handle)

    def ask(self) -> None:
        """Asks to end, from any thread of a process that listens."""
        # A real signal, because only that ends the waiting for another process.
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        self.count += 1
        if self._breaks_at is not None and self.count >= self._breaks_at:
            raise KeyboardInterrupt

    @contextlib.contextmanager
    def breakable(self, at: int = 1) -> Iterator[None]:
        """Raises KeyboardInterrupt in its body once there are so many requests.

        Args:
            at: how many.

        Raises:
            KeyboardInterrupt: there are, or were before.
        """
        self._breaks_at = at
        try:
            if self.count >= at:
                raise KeyboardInterrupt
            yield
        finally:
            self._breaks_at = None
