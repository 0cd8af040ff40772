"""A process that a campaign starts and kills, and all that is started by it, however far below."""

from __future__ import annotations

import contextlib
import os
import pathlib
import queue
import secrets
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import IO

__all__ = ["MarkedProcess", "marked"]

_MARK = "TF_PLACER_CAMPAIGN"


class MarkedProcess:
    """Python with some arguments as a process of its own, and what it has printed.

    Attributes:
        mark: what the environments of all its processes have.
        lines: printed so far, of standard output and standard error.
    """

    def __init__(
        self,
        arguments: Sequence[str],
        directory: pathlib.Path,
        environ: Mapping[str, str] | None = None,
        within: Sequence[str] = (),
    ) -> None:
        """Starts it.

        Args:
            arguments: of Python.
            directory: of its temporary files and of its cache.
            environ: further environment variables.
            within: a command that becomes Python, such as `nsenter` with its options.
        """
        self.mark = secrets.token_hex(8)
        self.lines: list[str] = []
        (directory / "tmp").mkdir(exist_ok=True)
        self._process = subprocess.Popen(
            [*within, sys.executable, *arguments],
            env={
                **os.environ,
                _MARK: self.mark,
                "PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path),
                "PYTHONUNBUFFERED": "1",
                "TMPDIR": f"{directory}/tmp",
                "XDG_CACHE_HOME": f"{directory}/cache",
                "TF_CPP_MIN_LOG_LEVEL": "3",
                **(environ or {}),
            },
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        self._news: queue.Queue[None] = queue.Queue()
        assert self._process.stdout is not None
        reader = threading.Thread(target=self._read, args=[self._process.stdout], daemon=True)
        reader.start()

    def _read(self, file: IO[bytes]) -> None:
        with file:
            for line in file:
                self.lines.append(line.decode(errors="replace").rstrip("\n"))
                self._news.put(None)

    def tell(self, line: str) -> None:
        """Writes a line to its standard input."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n".encode())
        self._process.stdin.flush()

    def end_input(self) -> None:
        """Lets it read the end of its standard input."""
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()

    def wait_for_lines(self, count: int) -> None:
        """Waits until it has printed so many lines, or has ended."""
        while len(self.lines) < count and self._process.poll() is None:
            with contextlib.suppress(queue.Empty):
                self._news.get(timeout=0.2)

    def wait(self, timeout_secs: float) -> int | None:
        """Waits for its end; returns its exit code, or None if it does not end."""
        try:
            return self._process.wait(timeout_secs)
        except subprocess.TimeoutExpired:
            return None

    def kill(self, number: int, *, group: bool) -> bool:
        """Sends a signal, to all of its process group if wanted; False if it has ended before."""
        if self._process.poll() is not None:
            return False
        (os.killpg if group else os.kill)(self._process.pid, number)
        return True

    def orphans(self, timeout_secs: float) -> list[str]:
        """Waits until no process of it is left, and names those that stay; ends them, too."""
        end_secs = time.monotonic() + timeout_secs
        while (left := dict(marked(self.mark))) and time.monotonic() < end_secs:
            time.sleep(0.05)
        for process in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        return list(left.values())


def marked(mark: str) -> Iterator[tuple[int, str]]:
    """Finds the processes that have inherited a mark in their environment: ids and commands."""
    for directory in pathlib.Path("/proc").glob("[0-9]*"):
        # It may end meanwhile, or be another user's.
        with contextlib.suppress(OSError):
            if mark.encode() in (directory / "environ").read_bytes():
                command = (directory / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                if command:  # Else it has ended, and nobody has asked how.
                    yield int(directory.name), command[:200]
