"""A lock file per running search, by which searches on one computer notice each other.

Each search has a file in the user's cache directory that is locked as long as its process lives.
Searches at the same time disturb each other's step times.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pathlib
import tempfile
import time
from collections.abc import Callable
from typing import Any, Self

from tf_placer.files import cache_directory

__all__ = ["RunLock"]

# A file has this prefix until it is locked.
_NEW_PREFIX = "new_"
_MAX_SECS_UNTIL_LOCKED = 60.0


class RunLock:
    """The lock of a running search, held in a `with`; reports other running searches.

    If the file cannot be written, no search is reported.
    """

    def __init__(
        self,
        log_dir: str | os.PathLike[str],
        report: Callable[[str], None],
        *,
        is_here: bool = True,
    ) -> None:
        """Stores the settings without touching any file.

        Args:
            log_dir: the directory of the search's log.
            report: called with a line for users for each other search.
            is_here: whether the search measures on this computer; else it ignores other searches.
        """
        self._log_dir = os.fspath(log_dir)
        self._report = report
        self._is_here = is_here
        self._directory = cache_directory() / "searches"
        self._computer = _identify_computer()
        self._path: pathlib.Path | None = None
        self._lock: int | None = None
        self._told: set[str] = set()

    @property
    def note(self) -> str | None:
        """A note on other searches for the result; None if there was none."""
        if not self._told:
            return None
        return "another search ran on this computer meanwhile, so times and free memory suffered"

    def look(self) -> None:
        """Reports another running search, once."""
        if self._lock is None:
            return
        with contextlib.suppress(OSError):
            for name in sorted(os.listdir(self._directory)):
                path = self._directory / name
                if path == self._path or name in self._told:
                    continue
                with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
                    other = _read_running_search(path)
                    if other is not None and other["computer"] == self._computer:
                        is_first = not self._told
                        self._told.add(name)
                        if not is_first:
                            continue
                        self._report(
                            f"another search runs on this computer (process {other['process']}, "
                            f"log in {other['log_dir']}): the times of both suffer. Better run one "
                            "after the other"
                        )

    def __enter__(self) -> Self:
        if self._is_here:
            with contextlib.suppress(OSError):
                self._begin()
        return self

    def _begin(self) -> None:
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock, new = tempfile.mkstemp(prefix=_NEW_PREFIX, dir=self._directory)
        path = self._directory / os.path.basename(new).removeprefix(_NEW_PREFIX)
        mine = {"process": os.getpid(), "log_dir": self._log_dir, "computer": self._computer}
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.write(lock, json.dumps(mine).encode())
            # Rename after locking, because other searches ignore new files with the prefix.
            os.replace(new, path)
        except OSError:
            os.close(lock)
            os.unlink(new)
            raise
        self._lock, self._path = lock, path
        self.look()

    def __exit__(self, *_: object) -> None:
        if self._path is not None and self._lock is not None:
            with contextlib.suppress(OSError):
                self._path.unlink()
            os.close(self._lock)
            self._lock = None


def _read_running_search(path: pathlib.Path) -> dict[str, Any] | None:
    """Reads the file of a running search; removes files of ended ones and returns None."""
    if path.name.startswith(_NEW_PREFIX) and _is_recent(path):
        return None
    descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    with open(descriptor, "rb") as file:
        content = file.read()
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return _parse_entry(content)
        if not content or _parse_entry(content) is not None:
            path.unlink(missing_ok=True)
    return None


def _is_recent(path: pathlib.Path) -> bool:
    return time.time() - path.stat().st_mtime < _MAX_SECS_UNTIL_LOCKED


def _parse_entry(content: bytes) -> dict[str, Any] | None:
    """Parses the content of a lock file; None if another program has written the file.

    Raises:
        ValueError: the content is no JSON.
    """
    value = json.loads(content)
    is_own = isinstance(value, dict) and {"process", "log_dir", "computer"} <= value.keys()
    return value if is_own else None


def _identify_computer() -> str:
    """Identifies this computer since its boot, as several may share a home directory."""
    try:
        return pathlib.Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return os.uname().nodename
