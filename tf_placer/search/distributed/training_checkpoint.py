"""The checkpoint of a search with several controllers: the weights and the controllers' states."""

from __future__ import annotations

import dataclasses
import io
import math
import os
import pathlib
import time
import zipfile
from collections.abc import Callable, Mapping

import numpy as np

from tf_placer.errors import SearchError, describe_error
from tf_placer.files import write_bytes
from tf_placer.placers.learned.training_values import Parameters

__all__ = [
    "CONTROLLERS_FILE",
    "PendingBatch",
    "TrainingCheckpoint",
    "TrainingCheckpointer",
    "read_checkpoint",
]

#: Name of the file in the directory of a run.
CONTROLLERS_FILE = "controllers.npz"
_FORMAT = 1
_MAX_SHARE_OF_TIME_WRITING = 0.05


@dataclasses.dataclass(frozen=True, eq=False)
class PendingBatch:
    """A batch that is being measured.

    Attributes:
        number: number of the batch.
        version: version of the weights that it was sampled under.
        placements: int32 [num_placements, num_groups].
        actions: the sampled actions, int32 [num_placements, num_decisions] for each policy head.
    """

    number: int
    version: int
    placements: np.ndarray
    actions: tuple[np.ndarray, ...]


@dataclasses.dataclass(frozen=True, eq=False)
class TrainingCheckpoint:
    """The weights, and the state of each controller.

    Attributes:
        version: version of the weights.
        num_records: the number of records in the training log for these updates.
        parameters: the weights.
        states: the training state of each controller, from controller 1 on.
        batches: the batch that each controller has under way; None for none.
    """

    version: int
    num_records: int
    parameters: Parameters
    states: tuple[Mapping[str, np.ndarray], ...]
    batches: tuple[PendingBatch | None, ...]


class TrainingCheckpointer:
    """Writes checkpoints at intervals, until one cannot be written."""

    def __init__(
        self,
        directory: str | os.PathLike[str] | None,
        say: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Writes nothing yet.

        Args:
            directory: directory of the run; None to write nothing.
            say: called with a message for people if a checkpoint cannot be written.
            clock: returns the time in seconds.
        """
        self._path = None if directory is None else pathlib.Path(directory, CONTROLLERS_FILE)
        self._say = say
        self._clock = clock
        self._next_secs = -math.inf

    def read(self) -> TrainingCheckpoint | None:
        """Reads the checkpoint; None if there is none. See `read_checkpoint`."""
        return None if self._path is None else read_checkpoint(self._path)

    def is_due(self, *, at_once: bool = False) -> bool:
        """Returns whether changed weights should be written now.

        Args:
            at_once: whether to ignore the time since the last checkpoint.
        """
        return self._path is not None and (at_once or self._clock() >= self._next_secs)

    def write(self, checkpoint: TrainingCheckpoint) -> None:
        """Writes a checkpoint, or reports an error and writes no more."""
        assert self._path is not None
        began_secs = self._clock()
        try:
            _write_checkpoint(self._path, checkpoint)
        except OSError as error:
            self._path = None
            self._say(f"{describe_error(error)}: the weights of the controllers are not saved")
            return
        now_secs = self._clock()
        self._next_secs = now_secs + (now_secs - began_secs) / _MAX_SHARE_OF_TIME_WRITING


def _write_checkpoint(path: str | os.PathLike[str], checkpoint: TrainingCheckpoint) -> None:
    """Writes a checkpoint atomically.

    Raises:
        OSError: the file cannot be written.
    """
    arrays: dict[str, np.ndarray] = {
        "format": np.array(_FORMAT),
        "version": np.array(checkpoint.version),
        "num_records": np.array(checkpoint.num_records),
        "controllers": np.array(len(checkpoint.states)),
    }
    for name in ("weights", "optimizer"):
        values = getattr(checkpoint.parameters, name)
        arrays |= {f"{name}/{number}": value for number, value in enumerate(values)}
    for number, (state, batch) in enumerate(
        zip(checkpoint.states, checkpoint.batches, strict=True)
    ):
        arrays |= {f"{number}/state/{name}": value for name, value in state.items()}
        if batch is not None:
            arrays[f"{number}/numbers"] = np.array([batch.number, batch.version])
            arrays[f"{number}/placements"] = batch.placements
            each = enumerate(batch.actions)
            arrays |= {f"{number}/actions/{part}": actions for part, actions in each}
    content = io.BytesIO()
    np.savez(content, **arrays)  # type: ignore[arg-type]
    write_bytes(path, content.getvalue())


def read_checkpoint(path: str | os.PathLike[str]) -> TrainingCheckpoint | None:
    """Reads a checkpoint; None if there is no file.

    Raises:
        SearchError: the file is not a checkpoint.
        OSError: the file cannot be read.
    """
    if not pathlib.Path(path).exists():
        return None
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        return _parse_checkpoint(arrays)
    except (KeyError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise SearchError(
            f"{os.fspath(path)!r} is no checkpoint of controllers ({error}): delete it to resume "
            "with new weights"
        ) from None


def _parse_checkpoint(arrays: Mapping[str, np.ndarray]) -> TrainingCheckpoint:
    if int(arrays["format"]) != _FORMAT:
        raise ValueError(f"format {int(arrays['format'])}")
    states, batches = [], []
    for number in range(int(arrays["controllers"])):
        start = f"{number}/state/"
        states.append(
            {name.removeprefix(start): a for name, a in arrays.items() if name.startswith(start)}
        )
        batch = None
        if f"{number}/numbers" in arrays:
            batch_number, version = arrays[f"{number}/numbers"].tolist()
            placements = arrays[f"{number}/placements"]
            actions = _collect(arrays, f"{number}/actions")
            batch = PendingBatch(batch_number, version, placements, actions)
        batches.append(batch)
    parameters = Parameters(_collect(arrays, "weights"), _collect(arrays, "optimizer"))
    counts = int(arrays["version"]), int(arrays["num_records"])
    return TrainingCheckpoint(*counts, parameters, tuple(states), tuple(batches))


def _collect(arrays: Mapping[str, np.ndarray], name: str) -> tuple[np.ndarray, ...]:
    """Collects the numbered arrays of a name, in order."""
    collected: list[np.ndarray] = []
    while f"{name}/{len(collected)}" in arrays:
        collected.append(arrays[f"{name}/{len(collected)}"])
    return tuple(collected)
