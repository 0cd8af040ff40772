"""Runs a command that ends, with all processes that it started, when its client process ends.

Run as a script, `python -I -S served_command.py LINE COMMAND ARGUMENTS...`, which imports nothing
of this package and so runs in any environment, such as the command's. LINE is the file descriptor
of a pipe whose other end the client process holds: the pipe closes when the client ends, even by
SIGKILL.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import pathlib
import select
import signal
import sys
import time
from collections.abc import Sequence
from types import FrameType

__all__ = ["ENDING_SIGNALS"]

#: The signals that ask a process to end, and that are forwarded to the command.
ENDING_SIGNALS = (signal.SIGTERM, signal.SIGHUP)
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_GRACE_PERIOD_SECS = 5.0
_PAUSE_SECS = 0.05


def _run(line: int, command: Sequence[str]) -> int:
    """Runs the command, and returns its exit code as a shell reports it."""
    os.set_inheritable(line, False)
    # If this process is stopped (Ctrl-Z), the end of the line resumes it by SIGCONT.
    fcntl.fcntl(line, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(line, fcntl.F_SETSIG, signal.SIGCONT)
    fcntl.fcntl(line, fcntl.F_SETFL, fcntl.fcntl(line, fcntl.F_GETFL) | os.O_ASYNC)
    # Adopt processes whose parent ends, so that they are found and killed as well.
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    # Ctrl-C reaches the command as well, which decides whether to end.
    is_interruptible = signal.signal(signal.SIGINT, signal.SIG_IGN) is not signal.SIG_IGN
    own = os.getpid()
    pid = os.fork()
    if pid == 0:
        _execute(command, own, is_interruptible)
    forwarded: list[int] = []

    def forward_signal(number: int, frame: FrameType | None) -> None:
        del frame
        forwarded.append(number)
        _signal_all(number)

    for number in ENDING_SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:  # Ignored under `nohup`.
            signal.signal(number, forward_signal)
    status = _wait_for(pid, line)
    deadline = time.monotonic() + _GRACE_PERIOD_SECS
    while forwarded and _find_descendants() and time.monotonic() < deadline:
        time.sleep(_PAUSE_SECS)
    if forwarded or status is None:
        _kill_all()
    if status is None:
        return 128 + signal.SIGKILL
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


def _wait_for(command: int, line: int) -> int | None:
    """Waits for the end of the command, and returns its status; None if the line ends first."""
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    poll = select.poll()
    poll.register(line, select.POLLIN)
    poll.register(woken, select.POLLIN)
    while True:
        # Check before waiting: the command may have ended before the signal handler was set.
        while (ended := os.waitpid(-1, os.WNOHANG)) != (0, 0):
            if ended[0] == command:
                return ended[1]
        ready = [descriptor for descriptor, _ in poll.poll()]
        if line in ready:
            return None
        os.read(woken, 4096)


def _execute(command: Sequence[str], parent: int, is_interruptible: bool) -> None:
    """Replaces the forked process by the command."""
    try:
        _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)
        # Python ignores SIGPIPE and SIGXFSZ, but programs expect the default.
        for number in (signal.SIGINT, signal.SIGPIPE, signal.SIGXFSZ):
            if number is not signal.SIGINT or is_interruptible:
                signal.signal(number, signal.SIG_DFL)
        os.execvp(command[0], list(command))
    except OSError as error:
        os.write(2, os.fsencode(f"tf_placer: cannot run {command[0]!r}: {error.strerror}\n"))
    finally:
        os._exit(1)


def _kill_all() -> None:
    """Kills all descendants of this process, including those that are started meanwhile."""
    while _signal_all(signal.SIGKILL):
        time.sleep(_PAUSE_SECS)


def _signal_all(number: int) -> bool:
    """Sends a signal to all descendants of this process; returns False if none received it."""
    was_received = False
    for pid in _find_descendants():
        # A process of another user, as by `sudo`, cannot be signaled.
        with contextlib.suppress(PermissionError, ProcessLookupError):
            os.kill(pid, number)
            was_received = True
    return was_received


def _find_descendants() -> list[int]:
    """Finds the live descendants of this process."""
    children: dict[int, list[int]] = {}
    for entry in pathlib.Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            # Split at the last parenthesis: the name of the program, which may contain any text, is
            # in parentheses before the state.
            state, parent = (entry / "stat").read_text().rpartition(")")[2].split()[:2]
        except (OSError, ValueError):  # The process has ended.
            continue
        if state not in "ZX":
            children.setdefault(int(parent), []).append(int(entry.name))
    found: list[int] = []
    waiting = [os.getpid()]
    while waiting:
        below = children.get(waiting.pop(), [])
        found += below
        waiting += below
    return found


def _prctl(option: int, value: int) -> None:
    ctypes.CDLL(None).prctl(option, value)


if __name__ == "__main__":
    sys.exit(_run(int(sys.argv[1]), sys.argv[2:]))
