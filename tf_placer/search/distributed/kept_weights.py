"""The file that a search with several controllers goes on with: their weights and what they do."""

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

from tf_placer.errors import SearchError, error_text
from tf_placer.files import write_bytes
from tf_placer.placers.learned.training_values import Parameters

__all__ = [
    "CONTROLLERS_FILE",
    "KeptBatch",
    "KeptWeights",
    "WeightsKeeper",
    "read_kept",
]

#: Name of the file in the directory of a run.
CONTROLLERS_FILE = "controllers.npz"
_FORMAT = 1
# Weights are written so seldom that it takes at most this share of the time.
_SAVE_SHARE = 0.05


@dataclasses.dataclass(frozen=True, eq=False)
class KeptBatch:
    """A batch that was being measured.

    Attributes:
        number: of the batch.
        version: how many updates the weights had that it was sampled under.
        placements: int32 [num_placements, num_groups].
        actions: what was decided, int32 [num_placements, num_decisions] for each set of decisions.
    """

    number: int
    version: int
    placements: np.ndarray
    actions: tuple[np.ndarray, ...]


@dataclasses.dataclass(frozen=True, eq=False)
class KeptWeights:
    """The weights, and where each controller stands.

    Attributes:
        version: how many updates the weights have had.
        num_records: how many lines of the training log that is.
        parameters: the weights.
        states: what each controller remembers of its earlier batches, from the first on.
        batches: what each has under way; None for nothing.
    """

    version: int
    num_records: int
    parameters: Parameters
    states: tuple[Mapping[str, np.ndarray], ...]
    batches: tuple[KeptBatch | None, ...]


class WeightsKeeper:
    """Writes the weights now and then, as long as the directory takes them."""

    def __init__(
        self,
        directory: str | os.PathLike[str] | None,
        say: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Writes nothing yet.

        Args:
            directory: of the run; None to keep nothing.
            say: called with a line for people when the weights cannot be written.
            clock: gives the time in seconds.
        """
        self._path = None if directory is None else pathlib.Path(directory, CONTROLLERS_FILE)
        self._say = say
        self._clock = clock
        self._next_secs = -math.inf

    def read(self) -> KeptWeights | None:
        """Reads what is kept; None for nothing. See `read_kept`."""
        return None if self._path is None else read_kept(self._path)

    def is_due(self, *, at_once: bool = False) -> bool:
        """Says whether weights that have changed are to be written now.

        Args:
            at_once: whether they are to be written however short ago that was done.
        """
        return self._path is not None and (at_once or self._clock() >= self._next_secs)

    def write(self, kept: KeptWeights) -> None:
        """Writes the weights; where that is not possible, it says so and writes no more."""
        assert self._path is not None
        began_secs = self._clock()
        try:
            _write_kept(self._path, kept)
        except OSError as error:
            self._path = None
            self._say(f"{error_text(error)}: the weights of the controllers are not kept")
            return
        now_secs = self._clock()
        self._next_secs = now_secs + (now_secs - began_secs) / _SAVE_SHARE


def _write_kept(path: str | os.PathLike[str], kept: KeptWeights) -> None:
    """Writes the file, whole or not at all.

    Raises:
        OSError: it cannot be written.
    """
    arrays: dict[str, np.ndarray] = {
        "format": np.array(_FORMAT),
        "version": np.array(kept.version),
        "num_records": np.array(kept.num_records),
        "controllers": np.array(len(kept.states)),
    }
    for name in ("weights", "optimizer"):
        values = getattr(kept.parameters, name)
        arrays |= {f"{name}/{number}": value for number, value in enumerate(values)}
    for number, (state, batch) in enumerate(zip(kept.states, kept.batches, strict=True)):
        arrays |= {f"{number}/state/{name}": value for name, value in state.items()}
        if batch is not None:
            arrays[f"{number}/numbers"] = np.array([batch.number, batch.version])
            arrays[f"{number}/placements"] = batch.placements
            each = enumerate(batch.actions)
            arrays |= {f"{number}/actions/{part}": actions for part, actions in each}
    content = io.BytesIO()
    np.savez(content, **arrays)  # type: ignore[arg-type]
    write_bytes(path, content.getvalue())


def read_kept(path: str | os.PathLike[str]) -> KeptWeights | None:
    """Reads what is kept; None where there is no file.

    Raises:
        SearchError: it is not such a file.
        OSError: it cannot be read.
    """
    if not pathlib.Path(path).exists():
        return None
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        return _kept(arrays)
    except (KeyError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise SearchError(
            f"{os.fspath(path)!r} does not hold weights of controllers ({error}): delete it to go "
            "on with new ones"
        ) from None


def _kept(arrays: Mapping[str, np.ndarray]) -> KeptWeights:
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
            which, version = arrays[f"{number}/numbers"].tolist()
            placements = arrays[f"{number}/placements"]
            batch = KeptBatch(which, version, placements, _list(arrays, f"{number}/actions"))
        batches.append(batch)
    parameters = Parameters(_list(arrays, "weights"), _list(arrays, "optimizer"))
    counts = int(arrays["version"]), int(arrays["num_records"])
    return KeptWeights(*counts, parameters, tuple(states), tuple(batches))


def _list(arrays: Mapping[str, np.ndarray], name: str) -> tuple[np.ndarray, ...]:
    found: list[np.ndarray] = []
    while f"{name}/{len(found)}" in arrays:
        found.append(arrays[f"{name}/{len(found)}"])
    return tuple(found)
