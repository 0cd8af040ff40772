"""The log of a search: a header, and a line per trial."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from graph_passes.util.json_records import read_record
from tf_placer.environments.environment import Measurement
from tf_placer.placers.former_names import FORMER_PLACERS
from tf_placer.search.log_file import LogFile, LogKind, read_log_file
from tf_placer.search.log_header import LogError, LogMismatchError
from tf_placer.text.units import format_step

__all__ = [
    "ORIGINAL",
    "LogError",
    "LogMismatchError",
    "Trial",
    "TrialLog",
    "Trials",
    "best_trial",
    "read_log",
]

ORIGINAL = "original"
"""The placer of trial 0, the original graph."""

# Format 2 added `reference_secs` and `drift`, for placements that took turns with the original
# graph.
_FORMAT = 2


@dataclasses.dataclass(frozen=True, repr=False)
class Trial:
    """A measured placement, as it is logged.

    Attributes:
        index: position in the search, from 0.
        placer: name of the placer that proposed it.
        batch: number of its batch, from 0 for each placer.
        assignment: device index per group; None for the original graph.
        measurement: the measurement.
        repeats: index of the trial whose measurement this one copies, because the same placement
            had been measured before; None for a trial that was measured.
        elapsed_secs: time spent searching until its end. Time between a stop and its resume does
            not count.
        time: the time of its end, ISO 8601 in UTC.
        position: its position in its batch, if the trials of the batch did not end in the order of
            the batch; None if it follows the previous trials of its batch.
        worker: name of the worker that measured it; None without workers.
        controller: number of the controller that proposed it, from 1, each of which numbers its own
            batches; None without controllers.
        version: version of the weights that its controller sampled it under; None without
            controllers.
    """

    index: int
    placer: str
    batch: int
    assignment: tuple[int, ...] | None
    measurement: Measurement
    repeats: int | None
    elapsed_secs: float
    time: str
    position: int | None = None
    worker: str | None = None
    controller: int | None = None
    version: int | None = None

    def __repr__(self) -> str:
        return f"<Trial {self.index} of {self.placer!r}: {_describe(self.measurement)}>"

    def to_json(self) -> dict[str, Any]:
        """Makes the JSON form: the fields, with those of the measurement among them."""
        value = {
            "index": self.index,
            "placer": self.placer,
            "batch": self.batch,
            "assignment": None if self.assignment is None else list(self.assignment),
            **self.measurement.to_json(),
            "repeats": self.repeats,
            "elapsed_secs": self.elapsed_secs,
            "time": self.time,
        }
        return value | {
            name: number
            for name, number in (
                ("position", self.position),
                ("worker", self.worker),
                ("controller", self.controller),
                ("version", self.version),
            )
            if number is not None
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Trial:
        """Makes a trial from its JSON form, of this version or an earlier one.

        Raises:
            ValueError: the value is not a trial.
        """
        trial = read_record(cls, {**value, "measurement": Measurement.from_json(value)})
        return dataclasses.replace(trial, placer=FORMER_PLACERS.get(trial.placer, trial.placer))


class Trials(tuple[Trial, ...]):
    """A tuple of trials that prints as one line."""

    __slots__ = ()

    def __repr__(self) -> str:
        best = best_trial(self)
        text = "none of which ran" if best is None else f"the fastest {best!r}"
        return f"<{len(self)} trials, {text}>" if self else "()"


def best_trial(trials: Iterable[Trial]) -> Trial | None:
    """Finds the first trial with the lowest median step time; None if all failed."""
    ran = [trial for trial in trials if trial.measurement.median_secs is not None]
    return min(ran, key=_median_secs, default=None)


def _describe(measurement: Measurement) -> str:
    """Describes the step time or the failure in short."""
    if measurement.failure is not None:
        return measurement.failure.kind.value
    assert measurement.median_secs is not None
    return format_step(measurement.median_secs)


def _median_secs(trial: Trial) -> float:
    secs = trial.measurement.median_secs
    assert secs is not None
    return secs


def _read_trial(value: Mapping[str, Any], number: int) -> Trial:
    trial = Trial.from_json(value)
    if trial.index != number:
        raise LogError(f"trial {trial.index} where {number} should be")
    if trial.repeats is not None and not 0 <= trial.repeats < trial.index:
        raise LogError(f"repeats trial {trial.repeats}, which is not before it")
    return trial


_KIND = LogKind("search log", "a trial", _FORMAT, Trial.to_json, _read_trial)


class TrialLog(LogFile[Trial]):
    """A search log open for writing. A trial is on disk when `append` returns."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        header: Mapping[str, Any],
        elsewhere: Callable[[OSError], str | os.PathLike[str]] | None = None,
    ) -> None:
        """Creates a log, or opens an existing one to resume its search.

        Args:
            path: the file; its directory is made if it does not exist.
            header: JSON values that identify the search. An existing log must have the same, except
                under "versions", where a difference is a warning.
            elsewhere: finds a new file for the log when the old one cannot be written; see
                `LogFile`.

        Raises:
            LogError, OSError: see `LogFile`.
        """
        super().__init__(path, _KIND, header, elsewhere)

    @property
    def trials(self) -> tuple[Trial, ...]:
        """All trials of the log, in order."""
        return tuple(self.records)

    def append(self, trial: Trial) -> None:
        """Appends a trial, and returns when it is on disk.

        Raises:
            ValueError: the index of the trial is not the next one, or a number is not finite.
            OSError: the trial could not be written; the log is unchanged.
        """
        if trial.index != len(self.records):
            raise ValueError(f"the next trial of {self.path} is {len(self.records)}, not {trial}")
        self.extend([trial])


def read_log(path: str | os.PathLike[str]) -> tuple[dict[str, Any], tuple[Trial, ...]]:
    """Reads a log without changing it, even while a search writes it.

    Args:
        path: the file.

    Returns:
        The header and the trials. An incomplete last line is left out with a warning.

    Raises:
        LogError: the file is not a log, or one of its lines is damaged.
        OSError: the file cannot be read.
    """
    return read_log_file(path, _KIND)
