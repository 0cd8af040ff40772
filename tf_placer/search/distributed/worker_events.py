"""The log of the workers of a search: workers gained and lost, and their statistics."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from typing import Any

from graph_passes.util.json_records import read_record
from tf_placer.search.log_file import LogFile, LogKind, read_log_file

__all__ = ["WORKER_EVENTS", "WorkerEvent", "WorkerLog", "WorkerUse", "read_worker_log"]

#: Name of the log in the directory of a run.
WORKER_EVENTS = "workers.jsonl"
_FORMAT = 1


@dataclasses.dataclass(frozen=True)
class WorkerUse:
    """The logged statistics of a worker.

    Attributes:
        name: name of the worker.
        place: name of its computer.
        state: its state, in words.
        trials: the number of trials that it has measured.
        failures: the number of them that failed.
        trials_per_minute: trials per minute since it was ready.
        idle_share: the share of the time since then in which it measured nothing.
        slowness: step time of the original graph on its machine, relative to that in trial 0; None
            if unknown.
    """

    name: str
    place: str
    state: str
    trials: int
    failures: int
    trials_per_minute: float
    idle_share: float
    slowness: float | None


@dataclasses.dataclass(frozen=True)
class WorkerEvent:
    """An event of one worker, or the statistics of all workers.

    Attributes:
        time: time of the event, ISO 8601 in UTC.
        text: description for people.
        workers: statistics of all workers; empty for an event of one worker.
    """

    time: str
    text: str
    workers: tuple[WorkerUse, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Makes the JSON form: all fields."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, value: Mapping[str, Any], number: int = 0) -> WorkerEvent:
        """Makes an event from its JSON form.

        Raises:
            ValueError: the value is not an event.
        """
        del number
        return read_record(cls, value)


_KIND = LogKind("log of workers", "an event", _FORMAT, WorkerEvent.to_json, WorkerEvent.from_json)


class WorkerLog(LogFile[WorkerEvent]):
    """A log of workers open for writing."""

    def __init__(self, directory: str | os.PathLike[str], header: Mapping[str, Any]) -> None:
        """Creates the log of a run, or opens an existing one to append to it.

        Args:
            directory: directory of the run.
            header: JSON values that identify the run.

        Raises:
            LogError, OSError: see `LogFile`.
        """
        super().__init__(os.path.join(directory, WORKER_EVENTS), _KIND, header)


def read_worker_log(directory: str | os.PathLike[str]) -> tuple[WorkerEvent, ...]:
    """Reads the log of workers of a run without changing it, even while a search writes it.

    Raises:
        LogError: the file is not such a log, or one of its lines is damaged.
        OSError: the file cannot be read.
    """
    return read_log_file(os.path.join(directory, WORKER_EVENTS), _KIND)[1]
