"""File descriptors: the three that every process is thought to have, and waiting for any."""

from __future__ import annotations

import math
import os
import select

__all__ = ["open_standard_files", "wait_until_readable", "wait_until_writable"]

_MAX_POLL_MILLISECS = 2**31 - 1


def open_standard_files() -> None:
    """Opens /dev/null where standard input, output or error is closed.

    A pipe would get their number otherwise, and a child could not inherit it beside its own.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            # The lowest number that is free.
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)


def wait_until_readable(descriptor: int, timeout_secs: float) -> bool:
    """Waits until a file descriptor can be read, or is at its end; returns False if it is not."""
    return _wait(descriptor, select.POLLIN, timeout_secs)


def wait_until_writable(descriptor: int, timeout_secs: float) -> bool:
    """Waits until a file descriptor takes data, or never will; returns False if it does not."""
    return _wait(descriptor, select.POLLOUT, timeout_secs)


def _wait(descriptor: int, event: int, timeout_secs: float) -> bool:
    # Not `select`, which takes numbers below 1,024 only.
    poll = select.poll()
    poll.register(descriptor, event)
    return bool(poll.poll(min(math.ceil(timeout_secs * 1e3), _MAX_POLL_MILLISECS)))
