"""A process that a campaign starts and disturbs, with all that are started below it."""

from __future__ import annotations

import contextlib
import os
import pathlib
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence

__all__ = ["VictimProcess"]

_MARK = "TF_PLACER_CAMPAIGN"


class VictimProcess:
    """Python with some arguments as a process of its own.

    Attributes:
        pid: its process id.
    """

    def __init__(
        self,
        arguments: Sequence[str],
        directory: pathlib.Path,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        """Starts it.

        Args:
            arguments: of Python.
            directory: of its output, its temporary files and its cache.
            environ: further environment variables.
        """
        # All processes below it inherit this in their environment.
        self._mark = secrets.token_hex(8)
        self._output = directory / f"output_{self._mark}"
        (directory / "tmp").mkdir(exist_ok=True)
        with open(self._output, "wb") as output:
            self._process = subprocess.Popen(
                [sys.executable, *arguments],
                env={
                    **os.environ,
                    _MARK: self._mark,
                    "PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path),
                    "PYTHONUNBUFFERED": "1",
                    "TMPDIR": f"{directory}/tmp",
                    "XDG_CACHE_HOME": f"{directory}/cache",
                    **(environ or {}),
                },
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.pid = self._process.pid

    def output(self) -> str:
        """Reads what it has printed so far, to standard output and standard error."""
        return self._output.read_text(errors="replace")

    def wait(self, timeout_secs: float) -> int | None:
        """Waits for its end; returns its exit code, or None if it does not end."""
        try:
            return self._process.wait(timeout_secs)
        except subprocess.TimeoutExpired:
            return None

    def end(self, timeout_secs: float = 0.0) -> list[str]:
        """Waits until no process of it is left, ends those that stay, and names them."""
        end_secs = time.monotonic() + timeout_secs
        while (left := self._find_marked()) and time.monotonic() < end_secs:
            time.sleep(0.05)
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._process.kill()
        self._process.wait()
        return list(left.values())

    def _find_marked(self) -> dict[int, str]:
        """Finds its processes and their command lines by the mark."""
        found = {}
        for directory in pathlib.Path("/proc").glob("[0-9]*"):
            # It may end meanwhile, or be another user's.
            with contextlib.suppress(OSError):
                if self._mark.encode() in (directory / "environ").read_bytes():
                    command = (directory / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                    if command:  # Else it has ended, and nobody has asked how.
                        found[int(directory.name)] = command.strip()[:200]
        return found
