"""What all logs do with their file: it has one writer, and lines get there whole or not at all."""

from __future__ import annotations

import fcntl
import io
import os

from absl import logging

from tf_placer.search.log_header import LogError

__all__ = ["LogLockedError", "lock", "write_lines"]


class LogLockedError(LogError):
    """Another search is writing the log."""


def lock(file: io.FileIO) -> None:
    """Keeps other searches from writing, until the file is closed.

    Raises:
        LogLockedError: another search is writing it.
    """
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise LogLockedError(f"another search is writing {file.name}") from error
    except OSError as error:  # some network file systems have no locks
        logging.warning("%s cannot be locked against a second search: %s", file.name, error)


def write_lines(file: io.FileIO, lines: bytes) -> None:
    """Puts lines on disk, behind all others.

    Raises:
        OSError: they could not be written, and the file is as before; names it.
    """
    end = file.seek(0, os.SEEK_END)
    try:
        rest = memoryview(lines)
        while rest:
            rest = rest[file.write(rest) :]
        os.fsync(file.fileno())
    except OSError as error:
        file.truncate(end)
        raise OSError(error.errno, error.strerror, file.name) from error
