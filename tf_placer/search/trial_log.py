"""The log of a search: one JSON Lines file that is only ever appended to."""

from __future__ import annotations

import dataclasses
import io
import json
import os
from collections.abc import Mapping
from typing import Any

from absl import logging

from tf_placer.environments.environment import Measurement
from tf_placer.search.log_file import lock, write_lines
from tf_placer.search.log_header import LogError, LogMismatchError, check_header

__all__ = [
    "ORIGINAL",
    "LogError",
    "LogMismatchError",
    "Trial",
    "TrialLog",
    "read_log",
]

ORIGINAL = "original"
"""What trial 0, the graph as it came, has for a placer."""

# Since 2, trials of placements that took turns with the graph as it came have `reference_secs` and
# `drift`.
_FORMAT = 2

# How every header line begins: tells a torn header from a file that is something else.
_HEADER_START = b'{"format": '


@dataclasses.dataclass(frozen=True)
class Trial:
    """One measured placement, as the log keeps it.

    Attributes:
        index: position in the search, from 0.
        placer: name of the placer that proposed it.
        batch: number of the proposal it came in, from 0 for each placer.
        assignment: device index per group; None is the graph as it came.
        measurement: what running it gave.
        repeats: index of the trial whose measurement this one takes over, because the same
            placement had been measured before; None for a trial that was measured.
        elapsed_secs: time spent searching when it ended. Time between a stop and its resume does
            not count.
        time: when it ended, ISO 8601 in UTC.
    """

    index: int
    placer: str
    batch: int
    assignment: tuple[int, ...] | None
    measurement: Measurement
    repeats: int | None
    elapsed_secs: float
    time: str

    def to_json(self) -> dict[str, Any]:
        """The JSON form: the fields, with those of the measurement among them."""
        return {
            "index": self.index,
            "placer": self.placer,
            "batch": self.batch,
            "assignment": None if self.assignment is None else list(self.assignment),
            **self.measurement.to_json(),
            "repeats": self.repeats,
            "elapsed_secs": self.elapsed_secs,
            "time": self.time,
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Trial:
        """Reads what `to_json` wrote, by this version or an earlier one.

        Raises:
            KeyError, TypeError, ValueError: the value is not a trial.
        """
        assignment, repeats = value["assignment"], value["repeats"]
        return cls(
            index=int(value["index"]),
            placer=str(value["placer"]),
            batch=int(value["batch"]),
            assignment=None if assignment is None else tuple(int(device) for device in assignment),
            measurement=Measurement.from_json(value),
            repeats=None if repeats is None else int(repeats),
            elapsed_secs=float(value["elapsed_secs"]),
            time=str(value["time"]),
        )


class TrialLog:
    """A search log that is open for writing; made by `TrialLog.open`.

    Line 1 is the header, every further line is one trial. A trial that `append` has returned from
    is on disk. The log is locked for as long as it is open, or its process lives.

    Attributes:
        path: the file.
        header: its first line.
    """

    def __init__(
        self, path: str, file: io.FileIO, header: dict[str, Any], trials: list[Trial]
    ) -> None:
        self.path = path
        self.header = header
        self._file = file
        self._trials = trials

    @classmethod
    def open(cls, path: str | os.PathLike[str], header: Mapping[str, Any]) -> TrialLog:
        """Creates a log, or opens an existing one to go on with its search.

        A line that a crash tore off at the end of the file is dropped with a warning. A file
        without even a whole header counts as new.

        Args:
            path: the file; its directory is made where it does not exist.
            header: what the search is for, as JSON values. An existing log must have the same,
                except under "versions", where a difference is a warning.

        Returns:
            The log, locked against a second writer.

        Raises:
            LogLockedError: another search is writing it.
            LogMismatchError: it is the log of another search.
            LogError: it is not a log, or one of its lines is damaged.
            OSError: it cannot be read or written.
        """
        path = os.path.abspath(path)
        # As a reader will see it: tuples become lists, keys become strings.
        given = json.loads(_encode({"format": _FORMAT} | dict(header) | {"format": _FORMAT}))
        os.makedirs(os.path.dirname(path), exist_ok=True)
        file = open(path, "a+b", buffering=0)  # noqa: SIM115 (the log keeps it open)
        try:
            lock(file)
            file.seek(0)
            content = file.readall()
            logged, trials, size = _parse(path, content)
            if logged is None:
                file.truncate(0)
                write_lines(file, _encode(given))
                _sync_directory(os.path.dirname(path))
                return cls(path, file, given, [])
            # Both are read; how steps are measured is a field of its own.
            check_header(path, logged | {"format": _FORMAT}, given)
            file.truncate(size)
            if not content[:size].endswith(b"\n"):
                write_lines(file, b"\n")
            return cls(path, file, logged, trials)
        except BaseException:
            file.close()
            raise

    @property
    def trials(self) -> tuple[Trial, ...]:
        """All trials of the log, in order."""
        return tuple(self._trials)

    def append(self, trial: Trial) -> None:
        """Writes one trial to disk.

        Raises:
            ValueError: its index is not the next one, or a number in it is not finite.
            OSError: it could not be written; the log is as before.
        """
        if trial.index != len(self._trials):
            raise ValueError(f"the next trial of {self.path} is {len(self._trials)}, not {trial}")
        write_lines(self._file, _encode(trial.to_json()))
        self._trials.append(trial)

    def close(self) -> None:
        """Closes and unlocks the file."""
        self._file.close()

    def __enter__(self) -> TrialLog:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def read_log(path: str | os.PathLike[str]) -> tuple[dict[str, Any], tuple[Trial, ...]]:
    """Reads a log without changing it; works while a search writes it.

    Args:
        path: the file.

    Returns:
        The header and the trials. A last line that is not whole is left out with a warning.

    Raises:
        LogError: the file is not a log, or one of its lines is damaged.
        OSError: it cannot be read.
    """
    path = os.fspath(path)
    with open(path, "rb") as file:
        header, trials, _ = _parse(path, file.read())
    if header is None:
        raise LogError(f"{path}:1: not a search log: there is no header")
    return header, tuple(trials)


def _parse(path: str, content: bytes) -> tuple[dict[str, Any] | None, list[Trial], int]:
    """Reads a whole file: header (None in a new file), trials, and how many bytes they take."""
    lines = content.split(b"\n")
    if not lines[-1]:
        lines.pop()
    header: dict[str, Any] | None = None
    trials: list[Trial] = []
    size = 0
    for number, line in enumerate(lines, start=1):
        try:
            value = json.loads(line)
        except ValueError as error:  # bad UTF-8 is one, too
            if number < len(lines) or (number == 1 and not _is_torn_header(line)):
                raise LogError(f"{path}:{number}: not a line of a search log: {error}") from error
            logging.warning("%s:%d: dropping the last line, which is not whole", path, number)
            break
        if number == 1:
            header = _read_header(path, value)
        else:
            trials.append(_read_trial(path, number, value))
        size = min(size + len(line) + 1, len(content))
    return header, trials, size


def _is_torn_header(line: bytes) -> bool:
    # A file system may have given the file its length before its content: zeros.
    start = line.rstrip(b"\0")[: len(_HEADER_START)]
    return _HEADER_START.startswith(start)


def _read_header(path: str, value: Any) -> dict[str, Any]:
    version = value.get("format") if isinstance(value, dict) else None
    if not isinstance(version, int):
        raise LogError(f"{path}:1: not the header of a search log")
    if version > _FORMAT:
        raise LogError(
            f"{path}:1: written by a later version of tf_placer: log format {version}, this one "
            f"reads up to {_FORMAT}"
        )
    return dict(value)


def _read_trial(path: str, number: int, value: Any) -> Trial:
    try:
        trial = Trial.from_json(value)
    except KeyError as error:
        raise LogError(f"{path}:{number}: not a trial: no {error}") from error
    except (TypeError, ValueError) as error:
        raise LogError(f"{path}:{number}: not a trial: {error}") from error
    if trial.index != number - 2:
        raise LogError(f"{path}:{number}: trial {trial.index} where {number - 2} should be")
    if trial.repeats is not None and not 0 <= trial.repeats < trial.index:
        raise LogError(f"{path}:{number}: repeats trial {trial.repeats}, which is not before it")
    return trial


def _encode(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value, allow_nan=False).encode() + b"\n"


def _sync_directory(path: str) -> None:
    """Makes a new file's entry in its directory survive a power failure."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
