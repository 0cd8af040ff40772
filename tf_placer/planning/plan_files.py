"""The files of a plan: the best placement so far, and the record of the search."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import hashlib
import json
import math
import os
import pathlib
import sys
import time
from typing import Any

import numpy as np

from graph_passes.util.atomic_write import remove_unfinished_files
from tf_placer.errors import describe_error
from tf_placer.files import (
    is_stream,
    make_persistent_directory,
    write_bytes,
    write_json,
)
from tf_placer.interpreter import format_command_line
from tf_placer.planning.plan_result import PlanResult
from tf_placer.planning.planned_placement import outcome_values
from tf_placer.problem.assignment_file import read_assignment
from tf_placer.problem.placement_problem import PlacementProblem
from tf_placer.problem.problem_file import problem_to_json
from tf_placer.report.plan_directory import PlanDirectory, PlanRecord
from tf_placer.search.config import SearchConfig
from tf_placer.search.log_file import lock_log
from tf_placer.search.log_header import search_header
from tf_placer.search.sampled_steps import SampledSteps
from tf_placer.search.simulated_search import SearchOutcome
from tf_placer.simulation.simulator import Simulator

__all__ = ["PlanLog", "ResultFile"]

_SAVE_SECS = 1.0


class PlanLog:
    """The directory of a plan, without the files of training; writes nothing without a directory.

    Attributes:
        sampled: simulated step times over the search.
        directory: the files; None if nothing is kept.
        header: the header of the search; see `search_header`.
    """

    def __init__(
        self, problem: PlacementProblem | str | os.PathLike[str], config: SearchConfig
    ) -> None:
        """Checks that the directory belongs to this search; writes nothing.

        Args:
            problem: the placement problem, or its file.
            config: the settings; its `log_dir` is the directory.

        Raises:
            LogError: the directory belongs to another search.
            OSError, ValueError: the problem, or a file in the directory, cannot be read.
        """
        self.sampled = SampledSteps()
        self.directory = None if config.log_dir is None else PlanDirectory(config.log_dir)
        self.header: dict[str, Any] = {}
        self._config = config
        self._problem = b""
        self._lock: int | None = None
        self._time = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        if self.directory is None:
            return
        if isinstance(problem, PlacementProblem):
            self._problem = f"{json.dumps(problem_to_json(problem))}\n".encode()
        else:
            self._problem = pathlib.Path(problem).read_bytes()
        digest = hashlib.sha256(self._problem).hexdigest()
        subject = {"problem": digest}
        self.header = search_header(subject, config.placer, config.placer_options, config.seed)
        if (config.controllers or 1) > 1:
            self.header["controllers"] = config.controllers
        self.directory.check(self.header, self._problem)

    def begin(self) -> None:
        """Locks the directory until `close`, and writes the record and the problem into it.

        The record comes first, because it alone identifies the files of a killed search.

        Raises:
            LogLockedError: another search is writing there.
            OSError: a file cannot be written.
        """
        if self.directory is None:
            return
        self.directory.path.mkdir(parents=True, exist_ok=True)
        self._lock = os.open(self.directory.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        lock_log(self._lock, self.directory.path)
        remove_unfinished_files(self.directory.path)
        # The record of an earlier search stays until this one has ended.
        self._write(self.directory.read_record() or PlanRecord({}, "", ""))
        if not self.directory.has_problem(self._problem):
            write_bytes(self.directory.problem, self._problem)

    def close(self) -> None:
        """Unlocks the directory."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def write(self, result: PlanResult, needed: int | None = None) -> None:
        """Writes the record of the search that has ended; see `PlanRecord`."""
        self._write(
            dataclasses.replace(
                result.to_record(),
                samples=self.sampled.samples,
                num_failed=self.sampled.num_failed if self.sampled.samples else None,
                best=self.sampled.best,
                needed=needed,
            )
        )

    def _write(self, record: PlanRecord) -> None:
        """Writes a record with what is known of the search from its begin."""
        if self.directory is None:
            return
        config = self._config
        self.directory.write_record(
            dataclasses.replace(
                record,
                header=self.header,
                command=format_command_line(),
                time=self._time,
                placer_options=dict(config.placer_options),
                max_trials=None if config.max_trials == sys.maxsize else config.max_trials,
                max_secs=config.max_secs if math.isfinite(config.max_secs) else None,
            )
        )


class ResultFile:
    """The file of the best placement so far; a stream gets only the final placement.

    A copy is in the directory of the plan, where a faster placement of an earlier search with the
    same settings stays.

    Attributes:
        kept: the placement that an earlier search left in the directory, int32 [num_groups]; None
            if there is none that fits.
        kept_secs: its step; None without it.
    """

    def __init__(
        self, path: str | os.PathLike[str] | None, log: PlanLog, problem: PlacementProblem
    ) -> None:
        """Stores the paths without writing.

        Args:
            path: the file; None for none.
            log: the log with the directory of the copy.
            problem: the problem that is searched.

        Raises:
            OSError, ValueError: the result of an earlier search cannot be read.
        """
        self._path = path
        self._problem = problem
        self._copy = None if log.directory is None else log.directory.result
        self.kept: np.ndarray | None = None
        self.kept_secs: float | None = None
        if self._copy is not None and self._copy.exists():
            self._read_kept(self._copy)
        self._written: list[pathlib.Path] = []
        self._saved: tuple[int, ...] | None = None
        self._saved_secs = 0.0

    def _read_kept(self, path: pathlib.Path) -> None:
        """Reads what an earlier search left; an earlier version may have had other rules.

        Raises:
            OSError, ValueError: the file cannot be read.
        """
        placement = read_assignment(os.fspath(path), self._problem, "the problem")
        batch = Simulator(self._problem, threads=1).simulate(placement[np.newaxis])
        if batch.feasible[0]:
            self.kept, self.kept_secs = placement, float(batch.step_secs[0])

    def update(self, outcome: SearchOutcome, *, at_once: bool = False) -> None:
        """Writes the outcome if its placement is new, at most once per second.

        Args:
            outcome: the best so far.
            at_once: whether to write even within a second after the last time.
        """
        if self._copy is None and (self._path is None or is_stream(self._path)):
            return
        now_secs = time.monotonic()
        is_due = at_once or self._saved is None or now_secs - self._saved_secs >= _SAVE_SECS
        if is_due and outcome.assignment != self._saved:
            # Ignore a full disk here: `finish` writes again, and reports errors.
            with contextlib.suppress(OSError):
                self._write(outcome, has_ended=False)
            self._saved, self._saved_secs = outcome.assignment, now_secs

    def finish(self, outcome: SearchOutcome) -> None:
        """Writes the outcome, to a temporary file if no other file can be written.

        Raises:
            OSError: a file cannot be written; the message names the file with the outcome.
        """
        try:
            self._write(outcome, has_ended=True)
        except OSError as error:
            if not self._written:
                self._written = [make_persistent_directory() / "result.json"]
                write_json(self._written[0], outcome_values(self._problem, outcome))
            text = f"{describe_error(error)}: the result is in '{self._written[0]}'"
            raise OSError(text) from error

    def _write(self, outcome: SearchOutcome, *, has_ended: bool) -> None:
        """Writes the outcome to all files that can be written.

        Raises:
            OSError: a file cannot be written.
        """
        problem: OSError | None = None
        values = outcome_values(self._problem, outcome, has_ended=has_ended)
        self._written = []
        for path in (self._path, self._copy):
            try:
                if path is None or (is_stream(path) and not has_ended):
                    continue
                if not self._keeps_earlier(path, outcome):
                    write_json(path, values)
                    self._written.append(pathlib.Path(path))
            except OSError as error:
                problem = problem or error
        if problem is not None:
            raise problem

    def _keeps_earlier(self, path: str | os.PathLike[str], outcome: SearchOutcome) -> bool:
        """Tells whether a file has a faster placement of an earlier search."""
        if self._copy is None or self.kept_secs is None or pathlib.Path(path) != self._copy:
            return False
        found_secs = outcome.step_secs if outcome.feasible else None
        return found_secs is None or found_secs > self.kept_secs
