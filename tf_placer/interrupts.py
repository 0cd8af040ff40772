"""Interrupts long computations safely: on request (Ctrl-C), or at a time limit."""

from __future__ import annotations

import contextlib
import functools
import math
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import ParamSpec, TypeVar

__all__ = ["Interrupts", "TimeLimitReached", "shorten_interrupts"]

_P = ParamSpec("_P")
_R = TypeVar("_R")

# After the time limit, the alarm is repeated at this interval, in case that the first exception was
# swallowed. The interval also leaves time for clean-up.
_ALARM_INTERVAL_SECS = 5.0


class TimeLimitReached(KeyboardInterrupt):
    """The error in an interruptible block at its time limit."""


class Interrupts:
    """Counts stop requests, and interrupts blocks that are marked as interruptible.

    Nothing is raised outside of these blocks, so that no file is left half written. Signals can
    only be handled in the main thread; in other threads requests are counted but interrupt nothing.

    Attributes:
        count: the number of stop requests.
    """

    def __init__(self) -> None:
        self.count = 0
        self._interrupt_at: int | None = None
        self._listens = False

    def listen(self) -> None:
        """Installs signal handlers: SIGINT for stop requests, and SIGALRM for time limits.

        Only for processes that are dedicated to a search.
        """
        signal.signal(signal.SIGINT, self._handle)
        signal.signal(signal.SIGALRM, self._handle_alarm)
        self._listens = True

    def request_stop(self) -> None:
        """Requests a stop, from any thread of a process with installed handlers."""
        # A real signal, because only a signal interrupts system calls of the main thread.
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    def count_stop_request(self) -> None:
        """Counts a stop request if there was none, without interrupting anything."""
        self.count = max(1, self.count)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        self.count += 1
        if self._interrupt_at is not None and self.count >= self._interrupt_at:
            raise KeyboardInterrupt

    def _handle_alarm(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        if self._interrupt_at is not None:
            raise TimeLimitReached

    @contextlib.contextmanager
    def interruptible(self, at: int = 1, max_secs: float = math.inf) -> Iterator[None]:
        """Makes a block interruptible by stop requests and a time limit.

        Args:
            at: the number of stop requests, including earlier ones, that interrupts the block.
            max_secs: the time limit of the block. Without installed handlers, only a limit of 0 or
                less has an effect.

        Raises:
            KeyboardInterrupt: the number of stop requests is reached.
            TimeLimitReached: the time limit is reached.
        """
        self._interrupt_at = at
        try:
            if self.count >= at:
                raise KeyboardInterrupt
            if max_secs <= 0:
                raise TimeLimitReached
            if self._listens and math.isfinite(max_secs):
                signal.setitimer(signal.ITIMER_REAL, max_secs, _ALARM_INTERVAL_SECS)
            yield
        finally:
            self._interrupt_at = None
            if self._listens:
                signal.setitimer(signal.ITIMER_REAL, 0.0)


def shorten_interrupts(call: Callable[_P, _R]) -> Callable[_P, _R]:
    """Makes a function raise a KeyboardInterrupt whose traceback ends there.

    Where the function happened to be is of no use to people who have interrupted it themselves.
    """

    @functools.wraps(call)
    def call_interruptibly(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        try:
            return call(*args, **kwargs)
        except KeyboardInterrupt:
            raise KeyboardInterrupt("interrupted before there was a result") from None

    return call_interruptibly
