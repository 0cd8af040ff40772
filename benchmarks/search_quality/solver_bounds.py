"""Tightness of lower bounds of small problems, with and without the solver CP-SAT.

Random problems of 8 to 40 groups on 3 or 4 devices. `auto` searches each for some seconds, and the
step that it finds is compared with the bounds. What is done is kept in `--out_dir`, so a later run
resumes the benchmark.
"""

from __future__ import annotations

import csv
import dataclasses
import io
import pathlib
import time
from collections.abc import Sequence
from typing import get_type_hints

import numpy as np

from benchmarks.harness.arguments import run_parser
from benchmarks.harness.table_file import write_table
from benchmarks.search_quality.optimality_proofs import require_solver
from benchmarks.search_quality.random_steps import random_step
from tf_placer.files import write_text
from tf_placer.placers.auto.auto_search import auto_search
from tf_placer.problem.problem_groups import group_graph
from tf_placer.simulation.lower_bounds import lower_bounds
from tf_placer.simulation.solver_bounds import solve_relaxed_schedule
from tf_placer.text.markdown import markdown_table

__all__ = ["BoundRun", "main", "run_one", "table_of_runs"]

_SEED = 1
_PROBLEMS = 30
# Numbers of groups, and of devices.
_SIZES = ((8, 3), (12, 3), (20, 4), (40, 4))
_NEAR = 1.01


@dataclasses.dataclass(frozen=True)
class BoundRun:
    """The bounds of a problem.

    Attributes:
        groups: how many groups it has.
        number: which problem of this size.
        operations: how many operations.
        step_secs: the step that `auto` found.
        known_secs: the lower bound without the solver.
        bound_secs: the lower bound with the solver.
        solver_secs: processor time for the solver.
    """

    groups: int
    number: int
    operations: int
    step_secs: float
    known_secs: float
    bound_secs: float
    solver_secs: float


def run_one(groups: int, devices: int, number: int, max_secs: float = 2.0) -> BoundRun:
    """Searches a random problem and computes its bounds.

    Args:
        groups: the number of groups.
        devices: the number of devices.
        number: which problem of this size.
        max_secs: of the search.
    """
    problem = random_step(np.random.default_rng([_SEED, groups, number]), groups, devices)
    bounds = lower_bounds(problem)
    known_secs = max(secs for part, secs in bounds.by_part.items() if part != "schedule")
    start_secs = time.process_time()
    solve_relaxed_schedule(problem, known_secs)
    solver_secs = time.process_time() - start_secs
    found = auto_search(problem, group_graph(problem), max_secs=max_secs, seed=number).best
    return BoundRun(
        groups=groups,
        number=number,
        operations=problem.num_operations,
        step_secs=found.step_secs,
        known_secs=float(known_secs),
        bound_secs=float(bounds.step_secs),
        solver_secs=round(solver_secs, 4),
    )


def table_of_runs(runs: Sequence[BoundRun]) -> str:
    """Tabulates the runs by the number of groups, in Markdown."""
    rows = []
    for groups in sorted({run.groups for run in runs}):
        those = [run for run in runs if run.groups == groups]
        rows.append([f"{groups}", f"{len(those)}"])
        for name in ("known_secs", "bound_secs"):
            shares = np.array([getattr(run, name) / run.step_secs for run in those])
            rows[-1] += [f"{shares.mean():.3f}", f"{np.mean(shares * _NEAR >= 1.0):.0%}"]
        secs = [run.solver_secs for run in those]
        rows[-1] += [f"{np.median(secs):.2f} s", f"{max(secs):.2f} s"]
    headers = (
        *("groups", "problems", "bound", "within 1 %", "with CP-SAT", "within 1 %"),
        *("median time", "longest"),
    )
    return markdown_table(headers, rows, "rrrrrrrr")


def _page(runs: Sequence[BoundRun]) -> str:
    return (
        f"{table_of_runs(runs)}\n\n"
        "bound, with CP-SAT: the mean of the lower bound by the step that `auto` found in 2 s. "
        "within 1 %: the share of problems whose step is certainly optimal within 1 %. times: "
        "of the solver, on one core."
    )


def _read(path: pathlib.Path) -> list[BoundRun]:
    """Reads the runs that are kept."""
    if not path.exists():
        return []
    kinds = get_type_hints(BoundRun)
    with path.open(newline="") as file:
        return [
            BoundRun(**{name: kinds[name](row[name]) for name in kinds})
            for row in csv.DictReader(file)
        ]


def _write(path: pathlib.Path, runs: Sequence[BoundRun]) -> None:
    """Keeps all runs, whole or not at all."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(get_type_hints(BoundRun))
    writer.writerows(dataclasses.astuple(run) for run in runs)
    write_text(path, text.getvalue())


def main() -> None:
    """Runs what has not run yet, and writes the table."""
    args = run_parser(__doc__, "solver_bounds").parse_args()
    out = pathlib.Path(args.out_dir)
    out.mkdir(parents=True, exist_ok=True)
    runs = _read(out / "runs.csv")
    if not args.only_kept:
        require_solver()
        done = {(run.groups, run.number) for run in runs}
        for groups, devices in _SIZES:
            for number in range(_PROBLEMS):
                if (groups, number) not in done:
                    runs.append(run_one(groups, devices, number))
                    print(runs[-1], flush=True)
                    _write(out / "runs.csv", runs)
    write_table(_page(runs), out / "table.md")


if __name__ == "__main__":
    main()
