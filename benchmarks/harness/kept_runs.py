"""Runs kept beside the tables made of them, one line each: a comparison takes many hours.

The runs directory holds problems and placements, which are large. This file, compressed by gzip,
holds what tables and pictures are made of, and is small enough to be kept with them, so that a
comparison goes on where it was stopped on another machine, too.
"""

from __future__ import annotations

import dataclasses
import functools
import gzip
import json
import math
import os
import pathlib
from collections.abc import Sequence

from benchmarks.harness.placement_runs import Run, RunKey, run_all
from benchmarks.harness.timed_search import SearchBudget
from tf_placer.files import write_bytes
from tf_placer.placers import AUTO

__all__ = ["KeptRuns", "kept_or_made"]


class KeptRuns:
    """The runs of a file, without their placements.

    Attributes:
        path: the file.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Reads the runs; none if there is no file.

        Raises:
            OSError: the file cannot be read, or is not compressed.
            ValueError: a line of it is no run of this format; the message names it.
        """
        self.path = pathlib.Path(path)
        self._lines: dict[RunKey, str] = {}
        self._runs: dict[RunKey, Run] = {}
        lines: list[str] = []
        if self.path.exists():
            lines = gzip.decompress(self.path.read_bytes()).decode().splitlines()
        for number, line in enumerate(lines, 1):
            try:
                run = Run.from_json(json.loads(line))
            except (KeyError, TypeError, ValueError) as error:
                raise ValueError(
                    f"{self.path}, line {number}: no run of this version ({error}); move the file "
                    "away to make its runs again"
                ) from None
            self._runs[run.key], self._lines[run.key] = run, line

    def get(self, key: RunKey, budget: SearchBudget) -> Run | None:
        """Finds the run, if one with this budget is there, or one that would be the same with it.

        That is one which was ended by what both budgets have, or by neither: its placer had nothing
        more to propose. Only "auto" knows its budget, and shares it out.
        """
        run = self._runs.get(key)
        if run is None or run.budget == budget:
            return run
        found, before = run.found, run.budget
        if found is None or before.is_wall != budget.is_wall:
            return None
        max_samples = math.inf if budget.max_samples is None else budget.max_samples
        match found.ended:
            case "nothing more":
                is_same = found.search_secs <= budget.max_secs and found.samples <= max_samples
            case "secs":
                is_same = before.max_secs == budget.max_secs and found.samples < max_samples
            case "samples":
                is_same = before.max_samples == max_samples and found.search_secs <= budget.max_secs
        if not is_same or (key.placer == AUTO and found.ended != "nothing more"):
            return None
        return dataclasses.replace(run, budget=budget)

    def add(self, *runs: Run) -> None:
        """Keeps runs, but for those that failed: they are to be made again.

        Raises:
            OSError: the file cannot be written.
        """
        new = [run for run in runs if run.failure is None and run != self._runs.get(run.key)]
        if not new:
            return
        for run in new:
            value = run.to_json()
            value.pop("assignment", None)
            line = json.dumps(value, allow_nan=False, separators=(",", ":"))
            self._runs[run.key], self._lines[run.key] = run, line
        keys = sorted(self._lines, key=lambda key: key.file_name)
        text = "".join(f"{self._lines[each]}\n" for each in keys)
        # Without a time, the same runs make the same file.
        write_bytes(self.path, gzip.compress(text.encode(), mtime=0))


def kept_or_made(
    keys: Sequence[RunKey],
    budget: SearchBudget,
    path: pathlib.Path,
    runs_dir: str | os.PathLike[str],
    *,
    jobs: int,
    model_jobs: int = 1,
    only_kept: bool = False,
) -> dict[RunKey, Run]:
    """Collects the runs that are kept, and makes and keeps the others; prints how far it is.

    Args:
        keys: which runs; one that is there twice is made once.
        budget: of each.
        path: of the runs that are kept. Other files of runs in its folder are read, too: under
            another budget a run may have ended alike, and most baselines take seconds under any.
        runs_dir: where problems and placements go.
        jobs: runs at a time; 1 where the budget is one of time on the clock.
        model_jobs: models whose costs to compute at a time.
        only_kept: whether to make no runs.

    Returns:
        All runs, those that failed included; without those that are not kept, if no runs are made.

    Raises:
        MachineError: there is no such machine.
        OSError: a file of runs cannot be read or written.
        ValueError: there is no such model, a line of a file is no run, or no runs are to be made
            and none are kept.
    """
    kept = KeptRuns(path)
    others = [
        KeptRuns(each) for each in sorted(path.parent.glob("*_runs.jsonl.gz")) if each != path
    ]
    wanted = list(dict.fromkeys(keys))
    runs: dict[RunKey, Run] = {}
    for key in wanted:
        known = (run for each in (kept, *others) if (run := each.get(key, budget)) is not None)
        if (run := next(known, None)) is not None:
            runs[key] = run
    kept.add(*runs.values())
    if runs:
        print(f"{len(runs)} of {len(wanted)} runs are in {path}", flush=True)
    missing = [key for key in wanted if key not in runs]
    if missing and not only_kept:
        runs |= run_all(
            missing,
            budget,
            runs_dir,
            jobs=jobs,
            model_jobs=model_jobs,
            report=functools.partial(print, flush=True),
            ended=kept.add,
        )
    if wanted and not runs:
        raise ValueError(f"--only_kept: no runs are kept in {path}")
    return runs
