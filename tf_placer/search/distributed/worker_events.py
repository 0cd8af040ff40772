"""The log of what the workers of a search did: who came and went, and how each was used."""

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
    """How a worker was used until now.

    Attributes:
        name: of the worker.
        place: name of its computer.
        state: what it does.
        trials: how many it has measured.
        failures: how many of these failed.
        trials_per_minute: since it was ready.
        idle_share: of the time since then in which it measured nothing.
        slowness: how many times as slow as at the start of the search its machine is; None where
            that is not known.
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
    """What happened to workers, or how all of them were used until now.

    Attributes:
        time: ISO 8601 in UTC.
        text: what happened, for people.
        workers: how each was used; none where a single worker came or went.
    """

    time: str
    text: str
    workers: tuple[WorkerUse, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Makes the JSON form: all fields."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, value: Mapping[str, Any], number: int = 0) -> WorkerEvent:
        """Reads what `to_json` wrote.

        Raises:
            ValueError: the value is not an event.
        """
        del number
        return read_record(cls, value)


_KIND = LogKind("log of workers", "an event", _FORMAT, WorkerEvent.to_json, WorkerEvent.from_json)


class WorkerLog(LogFile[WorkerEvent]):
    """A log of workers that is open for writing."""

    def __init__(self, directory: str | os.PathLike[str], header: Mapping[str, Any]) -> None:
        """Creates the log of a run, or opens the one that is there to go on with it.

        Args:
            directory: of the run.
            header: what the run is of, as JSON values.

        Raises:
            LogError, OSError: as `LogFile` raises them.
        """
        super().__init__(os.path.join(directory, WORKER_EVENTS), _KIND, header)


def read_worker_log(directory: str | os.PathLike[str]) -> tuple[WorkerEvent, ...]:
    """Reads the log of workers of a run without changing it; works while it is written.

    Raises:
        LogError: the file is not such a log, or one of its lines is damaged.
        OSError: it cannot be read.
    """
    return read_log_file(os.path.join(directory, WORKER_EVENTS), _KIND)[1]
