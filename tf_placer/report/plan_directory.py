"""The directory of a search on a problem: the problem, the record of the search, the result.

problem.json    a copy of the problem
result.json     the best placement, as in the file of --output
search.json     the record of the search: see `PlanRecord`
"""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
from collections.abc import Callable, Mapping
from typing import Any

from graph_passes.util.json_records import check_format, read_record
from tf_placer.files import name_file_in_errors, read_json, write_json
from tf_placer.report.memory_curve import MemoryPoint, MoreMemory
from tf_placer.report.what_if import WhatIf
from tf_placer.search.log_file import is_being_written
from tf_placer.search.log_header import HeaderFacts, check_header
from tf_placer.search.own_files import check_own_files, check_policy_file, read_log_header
from tf_placer.search.sampled_steps import Sample
from tf_placer.search.training_log import TRAINING

__all__ = ["PlanCandidate", "PlanDirectory", "PlanRecord"]

_FORMAT = 1
# Further files of a search by a learned placer.
_LOGS = (TRAINING, "simulated_trials.jsonl")
_WEIGHTS = ("policy.weights.h5", "controllers.npz")


@dataclasses.dataclass(frozen=True)
class PlanCandidate:
    """The best placement that one stage of a search proposed.

    Attributes:
        label: the name of the stage.
        step_secs: the simulated step time; None if it cannot be simulated.
        fits: whether it fits the memory of the devices.
    """

    label: str
    step_secs: float | None
    fits: bool


@dataclasses.dataclass(frozen=True)
class PlanRecord:
    """The record of a search on a problem.

    Attributes:
        header: problem and settings of the search, made by `search_header`.
        command: the command line; empty if unknown.
        time: the begin of the search, ISO 8601 in UTC; empty if unknown.
        samples: the sampled step times; none if the placer reports only its best.
        num_failed: the number of placements that do not fit or are not legal; None if the placer
            reports only its best.
        best: each improvement of the best step time.
        candidates: the compared placements.
        changes: the steps on other machines.
        memory_curve: the steps within less memory.
        remarks: sentences about other memory.
        needed: the number of accelerators that a comparison found to be enough for a step at most
            2 % longer; None if not searched.
        placer_options: the settings that were given to the placer.
        max_trials: maximum number of simulated placements; None for no limit.
        max_secs: time limit in seconds; None for none.
        least_memory_bytes: see `PlanResult`.
        more_memory: see `PlanResult`; kept without its placement.
        gpus_only_secs: see `PlanResult`.
    """

    header: Mapping[str, Any]
    command: str
    time: str
    samples: tuple[Sample, ...] = ()
    num_failed: int | None = None
    best: tuple[Sample, ...] = ()
    candidates: tuple[PlanCandidate, ...] = ()
    changes: tuple[WhatIf, ...] = ()
    memory_curve: tuple[MemoryPoint, ...] = ()
    remarks: tuple[str, ...] = ()
    needed: int | None = None
    placer_options: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    max_trials: int | None = None
    max_secs: float | None = None
    least_memory_bytes: int | None = None
    more_memory: MoreMemory | None = None
    gpus_only_secs: float | None = None


class PlanDirectory:
    """The files of one search on a problem."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Initializes for a directory, which is created at the first write."""
        self.path = pathlib.Path(path)

    @property
    def problem(self) -> pathlib.Path:
        """The file of the problem."""
        return self.path / "problem.json"

    @property
    def result(self) -> pathlib.Path:
        """The file of the best placement."""
        return self.path / "result.json"

    @property
    def record(self) -> pathlib.Path:
        """The file of the record."""
        return self.path / "search.json"

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all files that a search may write."""
        return (self.problem.name, self.result.name, self.record.name, *_LOGS, *_WEIGHTS)

    @property
    def paths_beside_result(self) -> list[pathlib.Path]:
        """The files that a search may write, except the result, which may be its output."""
        return [self.path / name for name in self.names if name != self.result.name]

    @property
    def is_running(self) -> bool:
        """Returns whether a process searches here now."""
        return is_being_written(self.path)

    def check(self, header: Mapping[str, Any], problem: bytes) -> None:
        """Checks that the directory has no files of another search or of somebody else.

        Args:
            header: problem and settings of the search.
            problem: the content of the file of the problem.

        Raises:
            LogError: it has; the message names the difference or the file.
            OSError, ValueError: a file cannot be read.
        """
        record = self.read_record()
        if record is not None:
            # A round trip through JSON turns tuples into lists, as in the file.
            given = json.loads(json.dumps(header))
            check_header(os.fspath(self.record), record.header, given)
        readers: dict[str, Callable[[pathlib.Path], Any]] = {
            self.record.name: lambda path: record,
            **dict.fromkeys(_LOGS, read_log_header),
            self.result.name: lambda path: read_json(path)["assignment"],
            **dict.fromkeys(_WEIGHTS, check_policy_file),
        }
        if not self.has_problem(problem):
            readers[self.problem.name] = _refuse
        check_own_files(self.path, readers, records=(self.record.name, *_LOGS))

    def has_problem(self, problem: bytes) -> bool:
        """Returns whether the directory has the problem already, so that it need not be written."""
        try:
            return self.problem.read_bytes() == problem
        except OSError:
            return False

    def write_record(self, record: PlanRecord) -> None:
        """Writes the record of the search.

        Raises:
            OSError: the file cannot be written.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        more = record.more_memory
        if more is not None:
            more = dataclasses.replace(more, assignment=())
        write_json(
            self.record,
            {
                "format": _FORMAT,
                "header": record.header,
                "command": record.command,
                "time": record.time,
                "samples": [sample.to_json() for sample in record.samples],
                "num_failed": record.num_failed,
                "best": [sample.to_json() for sample in record.best],
                "candidates": [dataclasses.asdict(each) for each in record.candidates],
                "changes": [dataclasses.asdict(each) for each in record.changes],
                "memory_curve": [dataclasses.asdict(each) for each in record.memory_curve],
                "remarks": list(record.remarks),
                "needed": record.needed,
                "placer_options": record.placer_options,
                "max_trials": record.max_trials,
                "max_secs": record.max_secs,
                "least_memory_bytes": record.least_memory_bytes,
                "more_memory": None if more is None else dataclasses.asdict(more),
                "gpus_only_secs": record.gpus_only_secs,
            },
        )

    def read_record(self) -> PlanRecord | None:
        """Reads the record of the search; None if there is none.

        Raises:
            OSError: the file cannot be read.
            ValueError: the file is no record; the message names it.
        """
        if not self.record.exists():
            return None
        with name_file_in_errors(self.record, "the record of a search"):
            value = read_json(self.record)
            check_format(value, _FORMAT)
            record = read_record(PlanRecord, value)
            read_record(HeaderFacts, record.header, "header")
            return record


def _refuse(path: pathlib.Path) -> None:
    raise ValueError(f"{path} is another problem")
