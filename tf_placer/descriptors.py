"""Opens missing standard streams, and waits for file descriptors."""

from __future__ import annotations

import math
import os
import select

__all__ = ["open_standard_files", "wait_until_readable", "wait_until_writable"]

_MAX_POLL_MILLISECS = 2**31 - 1


def open_standard_files() -> None:
    """Opens /dev/null for each of standard input, output and error that is closed.

    Otherwise a new pipe could get the number of a standard stream, and a child could not inherit
    it, because the child has its own streams there.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            # The kernel assigns the lowest free number, which is this one.
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)


def wait_until_readable(descriptor: int, timeout_secs: float) -> bool:
    """Waits until a descriptor is readable or at its end; returns False after the timeout."""
    return _wait(descriptor, select.POLLIN, timeout_secs)


def wait_until_writable(descriptor: int, timeout_secs: float) -> bool:
    """Waits until a descriptor is writable or broken; returns False after the timeout."""
    return _wait(descriptor, select.POLLOUT, timeout_secs)


def _wait(descriptor: int, event: int, timeout_secs: float) -> bool:
    # `poll`, because `select` only supports descriptors below 1,024.
    poll = select.poll()
    poll.register(descriptor, event)
    return bool(poll.poll(min(math.ceil(timeout_secs * 1e3), _MAX_POLL_MILLISECS)))
