"""The directory of a search on a problem: what was placed, how it was searched, what came out.

problem.json    a copy of the problem
result.json     the best placement, as in the file of --output
search.json     how it was searched: see `PlanRecord`
"""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
from collections.abc import Callable, Mapping
from typing import Any

from graph_passes.util.json_records import check_format, read_record
from tf_placer.files import read_json, reading, write_json
from tf_placer.report.what_if import WhatIf
from tf_placer.search.log_header import HeaderFacts, check_header
from tf_placer.search.own_files import check_own_files, check_policy_file, read_log_header
from tf_placer.search.sampled_steps import Sample
from tf_placer.search.training_log import TRAINING

__all__ = ["PlanCandidate", "PlanDirectory", "PlanRecord"]

_FORMAT = 1
# What a search writes beside, if the placer learns.
_LOGS = (TRAINING, "simulated_trials.jsonl")
_WEIGHTS = ("policy.weights.h5", "controllers.npz")


@dataclasses.dataclass(frozen=True)
class PlanCandidate:
    """The best placement that one part of a search proposed.

    Attributes:
        label: which part.
        step_secs: its simulated step; None if it cannot be simulated.
        fits: whether it fits the memory of the devices.
    """

    label: str
    step_secs: float | None
    fits: bool


@dataclasses.dataclass(frozen=True)
class PlanRecord:
    """How a problem was searched.

    Attributes:
        header: what the search is of, as `search_header` says it.
        command: the command line.
        time: when the search began, ISO 8601 in UTC.
        samples: what was sampled when; none if the placer shows only the best.
        best: the best so far, whenever there was a better one.
        candidates: what was compared.
        changes: what other machines would bring.
    """

    header: Mapping[str, Any]
    command: str
    time: str
    samples: tuple[Sample, ...] = ()
    best: tuple[Sample, ...] = ()
    candidates: tuple[PlanCandidate, ...] = ()
    changes: tuple[WhatIf, ...] = ()


class PlanDirectory:
    """Names and contents of the files of one search on a problem."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Uses a directory, which is made when something is written to it."""
        self.path = pathlib.Path(path)

    @property
    def problem(self) -> pathlib.Path:
        """The problem."""
        return self.path / "problem.json"

    @property
    def result(self) -> pathlib.Path:
        """The best placement."""
        return self.path / "result.json"

    @property
    def record(self) -> pathlib.Path:
        """How it was searched."""
        return self.path / "search.json"

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all files that a search writes."""
        return (self.problem.name, self.result.name, self.record.name, *_LOGS, *_WEIGHTS)

    @property
    def paths_beside_result(self) -> list[pathlib.Path]:
        """The files that a search writes, but for the result, which may be its output."""
        return [self.path / name for name in self.names if name != self.result.name]

    def check(self, header: Mapping[str, Any], problem: bytes) -> None:
        """Makes sure that the directory is neither that of another search nor somebody else's.

        Args:
            header: what the search is of.
            problem: the content of the file of the problem.

        Raises:
            LogError: it is; the message names the difference or the file.
            OSError, ValueError: what is there cannot be read.
        """
        record = self.read_record()
        if record is not None:
            # As it would be read: without tuples.
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
        """Says whether the directory has a problem already, so that it need not be written."""
        try:
            return self.problem.read_bytes() == problem
        except OSError:
            return False

    def write_record(self, record: PlanRecord) -> None:
        """Writes how the problem was searched.

        Raises:
            OSError: it cannot be written.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        write_json(
            self.record,
            {
                "format": _FORMAT,
                "header": record.header,
                "command": record.command,
                "time": record.time,
                "samples": [sample.to_json() for sample in record.samples],
                "best": [sample.to_json() for sample in record.best],
                "candidates": [dataclasses.asdict(each) for each in record.candidates],
                "changes": [dataclasses.asdict(each) for each in record.changes],
            },
        )

    def read_record(self) -> PlanRecord | None:
        """Reads what `write_record` wrote; None if nothing is there.

        Raises:
            OSError: it cannot be read.
            ValueError: it is no record; the message names the file.
        """
        if not self.record.exists():
            return None
        with reading(self.record, "the record of a search"):
            value = read_json(self.record)
            check_format(value, _FORMAT)
            record = read_record(PlanRecord, value)
            read_record(HeaderFacts, record.header, "header")
            return record


def _refuse(path: pathlib.Path) -> None:
    raise ValueError(f"{path} is another problem")
