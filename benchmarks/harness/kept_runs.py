"""Runs kept beside the tables made of them, one line each: a comparison takes many hours.

The runs directory holds problems and placements, which are large. This file, compressed by xz,
holds what tables and pictures are made of, and is small enough to be kept with them, so that a
comparison can be resumed on another machine, too.
"""

from __future__ import annotations

import json
import lzma
import os
import pathlib
from collections.abc import Sequence

from benchmarks.harness.placement_runs import Run, RunKey, run_all
from benchmarks.harness.timed_search import SearchBudget
from tf_placer.files import write_bytes

__all__ = ["KeptRuns", "read_or_make_runs"]


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
            lines = lzma.decompress(self.path.read_bytes()).decode().splitlines()
        for number, line in enumerate(lines, 1):
            try:
                run = Run.from_json(json.loads(line))
            except (KeyError, TypeError, ValueError) as error:
                raise ValueError(
                    f"{self.path}, line {number}: no run of this version ({error}); move the file "
                    "away to make its runs again"
                ) from None
            self._runs[run.key], self._lines[run.key] = run, line

    @property
    def runs(self) -> list[Run]:
        """All runs."""
        return list(self._runs.values())

    def get(self, key: RunKey, budget: SearchBudget) -> Run | None:
        """Finds the run, if one with this budget is there."""
        run = self._runs.get(key)
        return run if run is not None and run.budget == budget else None

    def add(self, run: Run) -> None:
        """Keeps a run, unless it failed: such a run is to be made again.

        Raises:
            OSError: the file cannot be written.
        """
        if run.failure is not None:
            return
        value = run.to_json()
        value.pop("assignment", None)
        line = json.dumps(value, allow_nan=False, separators=(",", ":"))
        self._runs[run.key], self._lines[run.key] = run, line
        keys = sorted(self._lines, key=lambda key: key.file_name)
        text = "".join(f"{self._lines[each]}\n" for each in keys)
        write_bytes(self.path, lzma.compress(text.encode(), preset=9))


def read_or_make_runs(
    keys: Sequence[RunKey],
    budget: SearchBudget,
    path: pathlib.Path,
    runs_dir: str | os.PathLike[str],
    *,
    jobs: int,
    only_kept: bool = False,
) -> dict[RunKey, Run]:
    """Collects the runs that are kept, and makes and keeps the others; prints how far it is.

    Args:
        keys: which runs; one that is there twice is made once.
        budget: of each.
        path: of the runs that are kept.
        runs_dir: where problems and placements go.
        jobs: runs at a time.
        only_kept: whether to make no runs.

    Returns:
        All runs, those that failed included; without those that are not kept, if no runs are made.

    Raises:
        MachineError: there is no such machine.
        OSError: a file of runs cannot be read or written.
        ValueError: there is no such model, a line of a file is no run, or no runs are to be made
            and none are kept.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    kept = KeptRuns(path)
    wanted = list(dict.fromkeys(keys))
    runs = {key: run for key in wanted if (run := kept.get(key, budget)) is not None}
    if runs:
        print(f"{len(runs)} of {len(wanted)} runs are in {path}", flush=True)
    missing = [key for key in wanted if key not in runs]
    if missing and not only_kept:
        runs |= run_all(missing, budget, runs_dir, jobs=jobs, ended=kept.add)
    if wanted and not runs:
        raise ValueError(f"--only_kept: no runs are kept in {path}")
    return runs
