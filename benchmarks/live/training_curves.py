"""Loss against time of models that are trained: what is kept of a run, and what is read off it."""

from __future__ import annotations

import csv
import dataclasses
import gzip
import io
import os
from collections import defaultdict
from collections.abc import Mapping, Sequence

import numpy as np

from tf_placer.files import write_bytes

__all__ = [
    "ASYNCHRONOUS",
    "EXPERT",
    "FOUND",
    "ORIGINAL",
    "SYNCHRONOUS",
    "VARIANTS",
    "Curve",
    "Curves",
    "Found",
    "read_curves",
    "write_curves",
]

#: Variants of a training: the original, placements by people and by a search, and towers.
ORIGINAL, EXPERT, FOUND = "original", "expert", "found"
SYNCHRONOUS, ASYNCHRONOUS = "synchronous", "asynchronous"
VARIANTS = (ORIGINAL, EXPERT, FOUND, SYNCHRONOUS, ASYNCHRONOUS)

_COLUMNS = ("model", "variant", "run", "secs", "loss")


@dataclasses.dataclass(frozen=True)
class Curve:
    """A run of training.

    Attributes:
        secs: when each update ended, from the end of the first update on.
        losses: the loss before each update.
    """

    secs: tuple[float, ...]
    losses: tuple[float, ...]

    def smooth(self, updates: int) -> np.ndarray:
        """Averages the loss over the last updates, over fewer at the start: float64 [updates]."""
        sums = np.cumsum([0.0, *self.losses])
        ends = np.arange(1, len(self.losses) + 1)
        starts = np.maximum(ends - updates, 0)
        return np.asarray((sums[ends] - sums[starts]) / (ends - starts))

    def secs_to(self, loss: float, updates: int) -> float | None:
        """Finds when the smoothed loss is that low for the first time; None if it never is."""
        reached = np.flatnonzero(self.smooth(updates) <= loss)
        return self.secs[reached[0]] if len(reached) else None


@dataclasses.dataclass(frozen=True)
class Found:
    """The placement that a search found for a model.

    Attributes:
        devices: of operations, by name; empty if the original is kept.
        reason: why it was changed or not.
        speedup: the confirmed ratio of step times, original by found; None if unchanged.
        interval: its 95 % interval.
    """

    devices: Mapping[str, str]
    reason: str
    speedup: float | None
    interval: Sequence[float] | None


#: Runs by model, variant and number.
Curves = Mapping[tuple[str, str, int], Curve]


def write_curves(path: str | os.PathLike[str], curves: Curves) -> None:
    """Writes all runs into one compressed table, a row for each update."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(_COLUMNS)
    for key, curve in curves.items():
        for secs, loss in zip(curve.secs, curve.losses, strict=True):
            # Nine digits tell any two float32 apart.
            writer.writerow([*key, f"{secs:.4f}", f"{loss:.9g}"])
    # Without the time of writing, so that the same runs are the same bytes.
    write_bytes(path, gzip.compress(text.getvalue().encode(), mtime=0))


def read_curves(path: str | os.PathLike[str]) -> dict[tuple[str, str, int], Curve]:
    """Reads what `write_curves` wrote."""
    rows: dict[tuple[str, str, int], list[tuple[float, float]]] = defaultdict(list)
    with gzip.open(path, "rt", newline="") as file:
        for row in csv.DictReader(file):
            key = (row["model"], row["variant"], int(row["run"]))
            rows[key].append((float(row["secs"]), float(row["loss"])))
    return {
        key: Curve(tuple(secs for secs, _ in updates), tuple(loss for _, loss in updates))
        for key, updates in rows.items()
    }
