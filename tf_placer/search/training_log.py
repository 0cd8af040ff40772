"""The training log of a placer: a header, and a line per update.

The module imports TensorFlow only when it writes an update for TensorBoard.
"""

from __future__ import annotations

import importlib
import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from absl import logging

from graph_passes.util.messages import plain_text
from tf_placer.placers.update_record import UpdateRecord
from tf_placer.search.log_file import LogFile, LogKind, read_log_file
from tf_placer.search.log_header import LogError

__all__ = ["TENSORBOARD", "TRAINING", "TrainingLog", "read_training_log"]

#: Names of the log and of TensorBoard's folder in the directory of a run.
TRAINING = "training.jsonl"
TENSORBOARD = "tensorboard"

_FORMAT = 1


def _read_update(value: Mapping[str, Any], number: int) -> UpdateRecord:
    update = UpdateRecord.from_json(value)
    if update.update != number:
        raise LogError(f"update {update.update} where {number} should be")
    return update


_KIND = LogKind(
    "training log", "an update of a placer", _FORMAT, UpdateRecord.to_json, _read_update
)


class TrainingLog:
    """A training log open for writing, and the same curves for TensorBoard.

    Each process with new updates writes one event file. If it is killed, at most the update that it
    was writing is lost; the resumed search learns it again.
    """

    def __init__(self, directory: str | os.PathLike[str], header: Mapping[str, Any]) -> None:
        """Creates the log of a run, or opens an existing one to append to it.

        Args:
            directory: directory of the run, made if it does not exist.
            header: JSON values that identify the run. An existing log must have the same, except
                under "versions", where a difference is a warning.

        Raises:
            LogError, OSError: see `LogFile`.
        """
        self._directory = pathlib.Path(directory).absolute()
        self._scalars: Any = None
        self._log = LogFile(self._directory / TRAINING, _KIND, header)

    @property
    def updates(self) -> tuple[UpdateRecord, ...]:
        """All updates of the log, in order."""
        return tuple(self._log.records)

    @property
    def num_updates(self) -> int:
        """The number of updates in the log."""
        return len(self._log.records)

    def restart(self) -> None:
        """Drops all updates, to start training anew. TensorBoard's files stay."""
        self._log.restart()

    def extend(self, updates: Sequence[UpdateRecord]) -> None:
        """Appends the updates that the log does not have yet.

        Args:
            updates: all updates of a placer so far, including those in the log.

        Raises:
            OSError: the updates could not be written.
        """
        new = updates[self.num_updates :]
        if not new:
            return
        self._log.extend(new)
        if self._scalars is None:
            # A placer with updates has imported TensorFlow already.
            module = importlib.import_module("tf_placer.search.training_scalars")
            self._scalars = module.TrainingScalars(self._directory / TENSORBOARD)
        self._scalars.write(new)

    def close(self) -> None:
        """Closes and unlocks the file."""
        if self._scalars is not None:
            try:
                self._scalars.close()
            except OSError as error:  # Nothing is lost: the log has all updates.
                logging.warning("%s", plain_text(str(error)))
        self._log.close()

    def __enter__(self) -> TrainingLog:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def read_training_log(
    directory: str | os.PathLike[str],
) -> tuple[dict[str, Any], tuple[UpdateRecord, ...]]:
    """Reads the training log of a run without changing it, even while a search writes it.

    Args:
        directory: directory of the run.

    Returns:
        The header and the updates. An incomplete last line is left out with a warning.

    Raises:
        LogError: the file is not such a log, or one of its lines is damaged.
        OSError: the file cannot be read.
    """
    return read_log_file(os.path.join(directory, TRAINING), _KIND)
