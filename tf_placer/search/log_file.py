"""Append-only JSON Lines files: a header, then a line per record.

A file has one writer. Records are on disk when `extend` returns; a last line that a crash cut off
is dropped when the file is read.
"""

from __future__ import annotations

import dataclasses
import errno
import fcntl
import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, Self, TypeVar

from absl import logging

from graph_passes.util.json_records import check_entries
from graph_passes.util.json_text import parse_json
from tf_placer.search.log_header import LogError, check_header

__all__ = [
    "LogFile",
    "LogKind",
    "LogLockedError",
    "is_being_written",
    "is_torn_header",
    "lock_log",
    "read_log_file",
]

_Record = TypeVar("_Record")

# Distinguishes an incomplete header from another kind of file.
_HEADER_START = b'{"format": '
# `is_being_written` locks a log for an instant, so try more than once.
_LOCK_TRIES, _LOCK_RETRY_SECS = 5, 0.05


class LogLockedError(LogError):
    """Another search is writing the log."""


@dataclasses.dataclass(frozen=True)
class LogKind(Generic[_Record]):
    """A kind of log file.

    Attributes:
        name: the name of such a file in messages: "search log".
        record: the name of a record in messages: "a trial".
        latest_format: the format number to write; all formats up to it can be read.
        to_json: converts a record to JSON values.
        from_json: converts JSON values to a record; takes the values and the number of the record,
            from 0. Raises ValueError if they are no record, LogError if they have another number.
    """

    name: str
    record: str
    latest_format: int
    to_json: Callable[[_Record], Mapping[str, Any]]
    from_json: Callable[[Mapping[str, Any], int], _Record]


class LogFile(Generic[_Record]):
    """A log open for writing, which is locked until it is closed or its process ends.

    Attributes:
        path: the file.
        header: the JSON values of its first line.
        records: the records of all other lines.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        kind: LogKind[_Record],
        header: Mapping[str, Any],
        elsewhere: Callable[[OSError], str | os.PathLike[str]] | None = None,
    ) -> None:
        """Creates a log, or opens an existing one to append to it.

        A last line that a crash cut off is dropped with a warning. A file without a complete header
        counts as new.

        Args:
            path: the file; its directory is made if it does not exist.
            kind: the kind of log.
            header: JSON values that identify the search. An existing log must have the same, except
                under "versions", where a difference is a warning.
            elsewhere: called with the error if a record cannot be written; returns the path of a
                new file to move the log to, or raises the error. None to raise it.

        Raises:
            LogLockedError: another search is writing the log.
            LogMismatchError: the log belongs to another search.
            LogError: the file is not a log, or one of its lines is damaged.
            OSError: the file cannot be read or written.
        """
        self.path = os.path.abspath(path)
        self._kind = kind
        self._elsewhere = elsewhere
        # Compare the header as it is read back: tuples become lists, keys become strings.
        version = {"format": kind.latest_format}
        given = json.loads(_encode(version | dict(header) | version))
        os.makedirs(os.path.dirname(self.path), exist_ok=True)
        self._file = open(self.path, "a+b", buffering=0)  # noqa: SIM115 (the log keeps it open)
        try:
            self._lock()
            self._file.seek(0)
            content = self._file.readall()
            logged, self.records, size = _parse(self.path, kind, content)
            if logged is not None:
                # The format number may differ: all formats can be read.
                check_header(self.path, logged | version, given)
            self._file.truncate(size)
            if logged is None:
                self._write(_encode(given))
                _sync_directory(os.path.dirname(self.path))
            elif not content[:size].endswith(b"\n"):
                self._write(b"\n")
            self.header: dict[str, Any] = given if logged is None else logged
        except BaseException:
            self._file.close()
            raise

    def extend(self, records: Sequence[_Record]) -> None:
        """Appends records, and returns when they are on disk.

        Raises:
            ValueError: a number in a record is not finite.
            OSError: the records could not be written, and the file is unchanged; names the file.
        """
        lines = b"".join(_encode(self._kind.to_json(record)) for record in records)
        try:
            self._write(lines)
        except OSError as error:
            if self._elsewhere is None:
                raise
            self.move(self._elsewhere(error))
            self._write(lines)
        self.records.extend(records)

    def move(self, path: str | os.PathLike[str]) -> None:
        """Copies the log to a new file and continues there; the old file stays unchanged.

        Raises:
            OSError: the new file cannot be written.
        """
        old, old_path = self._file, self.path
        self._file = open(path, "x+b", buffering=0)  # noqa: SIM115 (the log keeps it open)
        self.path = os.path.abspath(path)
        try:
            self._lock()
            lines = [self.header, *map(self._kind.to_json, self.records)]
            self._write(b"".join(map(_encode, lines)))
        except BaseException:
            self._file.close()
            self._file, self.path = old, old_path
            raise
        old.close()

    def restart(self) -> None:
        """Drops all records."""
        self._file.seek(0)
        header = self._file.readall().partition(b"\n")[0]
        self._file.truncate(len(header) + 1)
        self.records.clear()

    def close(self) -> None:
        """Closes and unlocks the file."""
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _lock(self) -> None:
        lock_log(self._file.fileno(), self.path)

    def _check_exists(self) -> None:
        """Checks that the file still exists at its path.

        Raises:
            OSError: the file or its directory was deleted or moved.
        """
        try:
            exists = os.path.samestat(os.stat(self.path), os.fstat(self._file.fileno()))
        except FileNotFoundError:
            exists = False
        if not exists:
            number = errno.ENOENT
            raise OSError(number, "it was deleted or moved while a search wrote it", self.path)

    def _write(self, lines: bytes) -> None:
        """Appends lines to the file and syncs it, or leaves it unchanged on an error."""
        self._check_exists()
        end = self._file.seek(0, os.SEEK_END)
        try:
            rest = memoryview(lines)
            while rest:
                rest = rest[self._file.write(rest) :]
            os.fsync(self._file.fileno())
        except OSError as error:
            self._file.truncate(end)
            raise OSError(error.errno, error.strerror, self.path) from error


def lock_log(descriptor: int, path: str | os.PathLike[str]) -> None:
    """Locks an open file or directory of a search until it is closed or the process ends.

    A file system without locks is a warning.

    Args:
        descriptor: the open file or directory.
        path: its name, for errors.

    Raises:
        LogLockedError: another search has the lock.
    """
    for tries_left in reversed(range(_LOCK_TRIES)):
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError as error:
            if not tries_left:
                raise LogLockedError(f"another search is writing {path}") from error
            time.sleep(_LOCK_RETRY_SECS)
        except OSError as error:  # Some network file systems have no locks.
            logging.warning("%s cannot be locked against a second search: %s", path, error)
            return


def is_being_written(path: str | os.PathLike[str]) -> bool:
    """Returns whether a process has locked a log, or a directory; False if there is none."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return False


def read_log_file(
    path: str | os.PathLike[str], kind: LogKind[_Record]
) -> tuple[dict[str, Any], tuple[_Record, ...]]:
    """Reads a log without changing it, even while another process writes it.

    Args:
        path: the file.
        kind: the kind of log.

    Returns:
        The header and the records. An incomplete last line is left out with a warning.

    Raises:
        LogError: the file is not such a log, or one of its lines is damaged.
        OSError: the file cannot be read.
    """
    path = os.fspath(path)
    with open(path, "rb") as file:
        header, records, _ = _parse(path, kind, file.read())
    if header is None:
        raise LogError(f"{path}:1: not a {kind.name}: there is no header")
    return header, tuple(records)


def _parse(
    path: str, kind: LogKind[_Record], content: bytes
) -> tuple[dict[str, Any] | None, list[_Record], int]:
    """Parses a file: its header (None if new), its records, and the bytes of its complete lines."""
    lines = content.split(b"\n")
    if not lines[-1]:
        lines.pop()
    header: dict[str, Any] | None = None
    records: list[_Record] = []
    size = 0
    for number, line in enumerate(lines, start=1):
        try:
            value = parse_json(line)
        except ValueError as error:  # Includes bad UTF-8.
            if number < len(lines) or (number == 1 and not is_torn_header(line)):
                raise LogError(f"{path}:{number}: not a line of a {kind.name}: {error}") from error
            logging.warning("%s:%d: dropping the last line, which is incomplete", path, number)
            break
        try:
            if number == 1:
                header = _parse_header(kind, value)
            else:
                records.append(_parse_record(kind, value, number - 2))
        except LogError as error:
            raise LogError(f"{path}:{number}: {error}") from error.__cause__
        size = min(size + len(line) + 1, len(content))
    return header, records, size


def is_torn_header(line: bytes) -> bool:
    """Returns whether a first line may be the beginning of a header that a crash cut off."""
    # After a crash, some file systems leave zeros in place of content that was not written.
    start = line.rstrip(b"\0")[: len(_HEADER_START)]
    return _HEADER_START.startswith(start)


def _parse_header(kind: LogKind[_Record], value: Any) -> dict[str, Any]:
    version = value.get("format") if isinstance(value, dict) else None
    if not isinstance(version, int) or isinstance(version, bool):
        raise LogError(f"not the header of a {kind.name}")
    if version > kind.latest_format:
        raise LogError(
            f"written by a later version of tf_placer: log format {version}, this one reads up to "
            f"{kind.latest_format}"
        )
    return dict(value)


def _parse_record(kind: LogKind[_Record], value: Any, number: int) -> _Record:
    try:
        check_entries(value, ())
        return kind.from_json(value, number)
    except LogError:
        raise
    except ValueError as error:
        raise LogError(f"not {kind.record}: {error}") from error


def _encode(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value, allow_nan=False).encode() + b"\n"


def _sync_directory(path: str) -> None:
    """Syncs a directory, so that the entry of a new file survives a power failure."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
