"""JSON Lines files: a header, then a line per record; they are only ever appended to.

A file has one writer. A record that `extend` has returned from is on disk; one that a crash tore
off at the end of the file is dropped when the file is read.
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
    "read_log_file",
]

_Record = TypeVar("_Record")

# How every header line begins: tells a torn header from a file that is something else.
_HEADER_START = b'{"format": '
# Whoever looks whether a log is locked has a lock for an instant.
_LOCK_TRIES, _LOCK_WAIT_SECS = 5, 0.05


class LogLockedError(LogError):
    """Another search is writing the log."""


@dataclasses.dataclass(frozen=True)
class LogKind(Generic[_Record]):
    """What is in the files of one kind.

    Attributes:
        name: what messages call such a file: "search log".
        record: what they call a record: "a trial".
        latest_format: the format that is written; it and all earlier ones are read.
        to_json: turns a record into the JSON values of its line.
        from_json: turns them into a record again; takes them and the number of the record, from 0.
            Raises ValueError where they are not one, LogError where they are that of another
            number.
    """

    name: str
    record: str
    latest_format: int
    to_json: Callable[[_Record], Mapping[str, Any]]
    from_json: Callable[[Mapping[str, Any], int], _Record]


class LogFile(Generic[_Record]):
    """A log that is open for writing, and locked for as long as it is or its process lives.

    Attributes:
        path: the file.
        header: its first line.
        records: all further lines.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        kind: LogKind[_Record],
        header: Mapping[str, Any],
        elsewhere: Callable[[OSError], str | os.PathLike[str]] | None = None,
    ) -> None:
        """Creates a log, or opens an existing one to go on with it.

        A line that a crash tore off at the end of the file is dropped with a warning. A file
        without even a whole header counts as new.

        Args:
            path: the file; its directory is made where it does not exist.
            kind: of the log.
            header: what the log is of, as JSON values. An existing log must have the same, except
                under "versions", where a difference is a warning.
            elsewhere: called when a record cannot be written; returns the path of a new file where
                the log moves to, or raises what it was called with. None to raise it.

        Raises:
            LogLockedError: another search is writing it.
            LogMismatchError: it is the log of another search.
            LogError: it is not a log, or one of its lines is damaged.
            OSError: it cannot be read or written.
        """
        self.path = os.path.abspath(path)
        self._kind = kind
        self._elsewhere = elsewhere
        # As a reader will see it: tuples become lists, keys become strings.
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
                # All formats are read; what differs between them is in other fields.
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
        """Puts records on disk.

        Raises:
            ValueError: a number in them is not finite.
            OSError: they could not be written, and the file is as before; names it.
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
        """Writes all there is to a new file, and goes on there; the old file stays as it is.

        Raises:
            OSError: it cannot be written.
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
        for tries_left in reversed(range(_LOCK_TRIES)):
            try:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except BlockingIOError as error:
                if not tries_left:
                    raise LogLockedError(f"another search is writing {self.path}") from error
                time.sleep(_LOCK_WAIT_SECS)
            except OSError as error:  # some network file systems have no locks
                logging.warning("%s cannot be locked against a second search: %s", self.path, error)
                return

    def _check_it_is_there(self) -> None:
        """Makes sure that what is written can be found again.

        Raises:
            OSError: somebody has deleted or moved the file, or its directory.
        """
        try:
            is_there = os.path.samestat(os.stat(self.path), os.fstat(self._file.fileno()))
        except FileNotFoundError:
            is_there = False
        if not is_there:
            number = errno.ENOENT
            raise OSError(number, "it was deleted or moved while a search wrote it", self.path)

    def _write(self, lines: bytes) -> None:
        """Puts lines on disk, behind all others, or nothing of them."""
        self._check_it_is_there()
        end = self._file.seek(0, os.SEEK_END)
        try:
            rest = memoryview(lines)
            while rest:
                rest = rest[self._file.write(rest) :]
            os.fsync(self._file.fileno())
        except OSError as error:
            self._file.truncate(end)
            raise OSError(error.errno, error.strerror, self.path) from error


def is_being_written(path: str | os.PathLike[str]) -> bool:
    """Says whether a process has the log open for writing; False where there is no log."""
    try:
        with open(path, "rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def read_log_file(
    path: str | os.PathLike[str], kind: LogKind[_Record]
) -> tuple[dict[str, Any], tuple[_Record, ...]]:
    """Reads a log without changing it; works while it is written.

    Args:
        path: the file.
        kind: of the log.

    Returns:
        The header and the records. A last line that is not whole is left out with a warning.

    Raises:
        LogError: the file is not such a log, or one of its lines is damaged.
        OSError: it cannot be read.
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
    """Reads a whole file: header (None in a new file), records, and how many bytes they take."""
    lines = content.split(b"\n")
    if not lines[-1]:
        lines.pop()
    header: dict[str, Any] | None = None
    records: list[_Record] = []
    size = 0
    for number, line in enumerate(lines, start=1):
        try:
            value = parse_json(line)
        except ValueError as error:  # bad UTF-8 is one, too
            if number < len(lines) or (number == 1 and not is_torn_header(line)):
                raise LogError(f"{path}:{number}: not a line of a {kind.name}: {error}") from error
            logging.warning("%s:%d: dropping the last line, which is not whole", path, number)
            break
        try:
            if number == 1:
                header = _checked_header(kind, value)
            else:
                records.append(_record(kind, value, number - 2))
        except LogError as error:
            raise LogError(f"{path}:{number}: {error}") from error.__cause__
        size = min(size + len(line) + 1, len(content))
    return header, records, size


def is_torn_header(line: bytes) -> bool:
    """Says whether a first line may be the beginning of a header, as a crash leaves it."""
    # A file system may have given the file its length before its content: zeros.
    start = line.rstrip(b"\0")[: len(_HEADER_START)]
    return _HEADER_START.startswith(start)


def _checked_header(kind: LogKind[_Record], value: Any) -> dict[str, Any]:
    version = value.get("format") if isinstance(value, dict) else None
    if not isinstance(version, int) or isinstance(version, bool):
        raise LogError(f"not the header of a {kind.name}")
    if version > kind.latest_format:
        raise LogError(
            f"written by a later version of tf_placer: log format {version}, this one reads up to "
            f"{kind.latest_format}"
        )
    return dict(value)


def _record(kind: LogKind[_Record], value: Any, number: int) -> _Record:
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
    """Makes a new file's entry in its directory survive a power failure."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
