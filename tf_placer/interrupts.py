"""Being asked to end early, at a moment that does no harm, and ending when time is over."""

from __future__ import annotations

import contextlib
import math
import signal
import threading
from collections.abc import Iterator
from types import FrameType

__all__ = ["Interrupts", "TimeIsOver"]

# While something does not end although its time is over, it is told again. What it has begun to
# clear away gets this time.
_AGAIN_SECS = 5.0


class TimeIsOver(KeyboardInterrupt):
    """Raised in what may be broken off when its time is over."""


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
        self._listens = False

    def listen(self) -> None:
        """Takes SIGINT for a request, and SIGALRM for the end of some time, from now on.

        For processes that have nothing else to do.
        """
        signal.signal(signal.SIGINT, self._handle)
        signal.signal(signal.SIGALRM, self._handle_alarm)
        self._listens = True

    def ask(self) -> None:
        """Asks to end, from any thread of a process that listens."""
        # A real signal, because only that ends the waiting for another process.
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    def request_end(self) -> None:
        """Notes a request to end, unless there was one; breaks off nothing."""
        self.count = max(1, self.count)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        self.count += 1
        if self._breaks_at is not None and self.count >= self._breaks_at:
            raise KeyboardInterrupt

    def _handle_alarm(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        if self._breaks_at is not None:
            raise TimeIsOver

    @contextlib.contextmanager
    def breakable(self, at: int = 1, max_secs: float = math.inf) -> Iterator[None]:
        """Raises KeyboardInterrupt in its body once there are so many requests, or time is over.

        Args:
            at: how many.
            max_secs: the time of the body. Where nobody listens for signals, it only says whether
                the body begins.

        Raises:
            KeyboardInterrupt: there are, or were before.
            TimeIsOver: the time is over, or there is none.
        """
        self._breaks_at = at
        try:
            if self.count >= at:
                raise KeyboardInterrupt
            if max_secs <= 0:
                raise TimeIsOver
            if self._listens and math.isfinite(max_secs):
                signal.setitimer(signal.ITIMER_REAL, max_secs, _AGAIN_SECS)
            yield
        finally:
            self._breaks_at = None
            if self._listens:
                signal.setitimer(signal.ITIMER_REAL, 0.0)
