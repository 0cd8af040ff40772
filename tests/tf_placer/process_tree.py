"""Lists the descendants of a process."""

from __future__ import annotations

import os
import pathlib
import signal
import time

__all__ = ["descendants", "is_running", "kill", "wait_until_gone"]

# A process id and when that process started, because ids are used again.
Process = tuple[int, str]


def _stat(pid: int) -> list[str] | None:
    """Reads /proc/PID/stat from the state on; None if the process is gone or dead."""
    try:
        fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else fields


def is_running(pid: int) -> bool:
    """Says whether a process runs; a zombie does not."""
    return _stat(pid) is not None


def descendants(pid: int) -> dict[Process, str]:
    """Finds all processes below one, with their command lines."""
    parents: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit() and (fields := _stat(int(entry))):
            parents.setdefault(int(fields[1]), []).append(int(entry))
    found: dict[Process, str] = {}
    waiting = [pid]
    while waiting:
        for child in parents.get(waiting.pop(), ()):
            fields = _stat(child)
            if fields is not None:
                command = pathlib.Path(f"/proc/{child}/cmdline").read_bytes()
                found[child, fields[19]] = command.replace(b"\0", b" ").decode()
                waiting.append(child)
    return found


def kill(pid: int) -> None:
    """Kills processes, as `kill -9` does."""
    os.kill(pid, signal.SIGKILL)


def wait_until_gone(processes: dict[Process, str], timeout_secs: float = 30.0) -> list[str]:
    """Waits for processes to end; returns the command lines of those that do not."""
    deadline = time.monotonic() + timeout_secs
    while True:
        alive = [
            command
            for (pid, started), command in processes.items()
            if (fields := _stat(pid)) and fields[19] == started
        ]
        if not alive or time.monotonic() > deadline:
            return alive
        time.sleep(0.05)
