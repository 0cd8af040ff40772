"""The log of what a placer learns: one JSON Lines file, a header and then a line per update.

Free of TensorFlow until there is an update to write for TensorBoard.
"""

from __future__ import annotations

import importlib
import json
import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from absl import logging

from tf_placer.placers.update_record import UpdateRecord
from tf_placer.search.log_file import lock, write_lines
from tf_placer.search.log_header import LogError, check_header

__all__ = ["TENSORBOARD", "TRAINING", "TrainingLog", "read_training_log"]

#: Names of the log and of TensorBoard's folder in the directory of a run.
TRAINING = "training.jsonl"
TENSORBOARD = "tensorboard"

_FORMAT = 1

# How every log begins: tells a torn header from a file that is something else.
_START = b'{"format": '


class TrainingLog:
    """A training log that is open for writing, and the same curves for TensorBoard.

    Each process that has a new update writes one event file. A kill loses at most the update that
    was being written, which a search that goes on learns again.

    Attributes:
        path: the file.
        num_updates: how many updates it has.
    """

    def __init__(self, directory: str | os.PathLike[str], header: Mapping[str, Any]) -> None:
        """Creates the log of a run, or opens the one that is there to go on with it.

        A line that a kill tore off at the end of the file is dropped with a warning.

        Args:
            directory: of the run; made where it does not exist.
            header: what the run is, as JSON values. A log that is there must have the same, except
                under "versions", where a difference is a warning.

        Raises:
            LogLockedError: another run is writing it.
            LogMismatchError: it is the log of another run.
            LogError: it is not a log, or one of its lines is damaged.
            OSError: it cannot be read or written.
        """
        self._directory = pathlib.Path(directory).absolute()
        self.path = str(self._directory / TRAINING)
        self._scalars: Any = None
        given = json.loads(_encode({"format": _FORMAT} | dict(header)))
        self._directory.mkdir(parents=True, exist_ok=True)
        self._file = open(self.path, "a+b", buffering=0)  # noqa: SIM115 (the log keeps it open)
        try:
            lock(self._file)
            self._file.seek(0)
            logged, records, size = _parse(self.path, self._file.readall())
            if logged is not None:
                check_header(self.path, logged, given)
            self._file.truncate(size)
            if logged is None:
                write_lines(self._file, _encode(given))
            self.num_updates = len(records)
        except BaseException:
            self._file.close()
            raise

    def restart(self) -> None:
        """Drops all updates: what follows is learned anew. TensorBoard's files stay."""
        self._file.seek(0)
        header = self._file.readall().partition(b"\n")[0]
        self._file.truncate(len(header) + 1)
        self.num_updates = 0

    def extend(self, updates: Sequence[UpdateRecord]) -> None:
        """Writes the updates that the log does not have yet.

        Args:
            updates: all updates of a placer so far; those that are in the log, too.

        Raises:
            OSError: they could not be written.
        """
        new = updates[self.num_updates :]
        if not new:
            return
        write_lines(self._file, b"".join(_encode(update.to_json()) for update in new))
        self.num_updates += len(new)
        if self._scalars is None:
            # Only what learns has updates, and it has imported TensorFlow already.
            module = importlib.import_module("tf_placer.search.training_scalars")
            self._scalars = module.TrainingScalars(self._directory / TENSORBOARD)
        self._scalars.write(new)

    def close(self) -> None:
        """Closes and unlocks the file."""
        if self._scalars is not None:
            self._scalars.close()
        self._file.close()

    def __enter__(self) -> TrainingLog:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def read_training_log(
    directory: str | os.PathLike[str],
) -> tuple[dict[str, Any], tuple[UpdateRecord, ...]]:
    """Reads the training log of a run without changing it; works while it is written.

    Args:
        directory: of the run.

    Returns:
        The header and the updates. A last line that is not whole is left out with a warning.

    Raises:
        LogError: the file is not such a log, or one of its lines is damaged.
        OSError: it cannot be read.
    """
    path = os.path.join(directory, TRAINING)
    with open(path, "rb") as file:
        header, records, _ = _parse(path, file.read())
    if header is None:
        raise LogError(f"{path}:1: not a training log: there is no header")
    return header, tuple(records)


def _parse(path: str, content: bytes) -> tuple[dict[str, Any] | None, list[UpdateRecord], int]:
    """Reads a whole file: header (None in a new file), updates, and how many bytes they take."""
    *lines, rest = content.split(b"\n")
    if not lines and not _START.startswith(rest[: len(_START)].rstrip(b"\0")):
        raise LogError(f"{path}:1: not a training log")
    if rest:
        # Lines are written with their end: what follows the last end is not whole.
        logging.warning("%s:%d: dropping the last line, which is not whole", path, len(lines) + 1)
    header: dict[str, Any] | None = None
    records: list[UpdateRecord] = []
    for number, line in enumerate(lines, start=1):
        try:
            value = json.loads(line)
            if number == 1:
                header = _checked_header(value)
            else:
                records.append(UpdateRecord.from_json(value))
        except KeyError as error:
            raise LogError(f"{path}:{number}: not an update of a placer: no {error}") from error
        except (TypeError, ValueError) as error:
            raise LogError(f"{path}:{number}: not a line of a training log: {error}") from error
        if number > 1 and records[-1].update != number - 2:
            raise LogError(
                f"{path}:{number}: update {records[-1].update} where {number - 2} should be"
            )
    return header, records, sum(len(line) + 1 for line in lines)


def _checked_header(value: Any) -> dict[str, Any]:
    version = value.get("format") if isinstance(value, dict) else None
    if not isinstance(version, int):
        raise ValueError("no header")
    if version > _FORMAT:
        raise ValueError(
            f"written by a later version of tf_placer: format {version}, this one reads up to "
            f"{_FORMAT}"
        )
    return dict(value)


def _encode(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value, allow_nan=False).encode() + b"\n"
