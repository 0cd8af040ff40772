"""Optimality of "auto" on small problems: the share in which it finds a fastest placement.

Random problems of 8 to 14 groups on 2 or, more often, 3 devices, up to 4,782,969 placements each.
Every legal placement of each is simulated, and "auto" searches for 2 s. In half
of the problems memory matters; those that nothing fits are drawn again. What is done is kept in
`--out_dir`, so a later run resumes the benchmark.
"""

from __future__ import annotations

import csv
import dataclasses
import io
import pathlib
import time
from collections.abc import Mapping, Sequence
from typing import get_type_hints

import numpy as np

from benchmarks.harness.arguments import run_parser
from benchmarks.harness.table_file import write_table
from benchmarks.problems.small import is_optimal
from benchmarks.search_quality.random_steps import random_step
from tf_placer.files import write_text
from tf_placer.placers.auto.auto_search import auto_search
from tf_placer.problem.placement_problem import PlacementProblem
from tf_placer.problem.problem_groups import group_graph, legal_devices
from tf_placer.simulation.simulator import Simulator
from tf_placer.text.markdown import markdown_table

__all__ = ["SmallRun", "fastest_step_secs", "main", "run_one", "small_problem", "table_of_runs"]

_SEED = 0
_PROBLEMS = 500
_MIN_GROUPS, _MAX_GROUPS = 8, 14
_THREE_DEVICES_SHARE = 0.75
_BATCH = 2**16
# Resident bytes as a share of the memory, where memory matters.
_RESIDENT_SHARES = (0.4, 0.9)
# Rows of the table, by the number of placements.
_ENDS = (20_000, 200_000, 1_000_000, 3**_MAX_GROUPS)


@dataclasses.dataclass(frozen=True)
class SmallRun:
    """The outcome of a search of one problem.

    Attributes:
        number: which problem.
        groups: how many groups it has.
        devices: how many devices.
        operations: how many operations.
        placements: how many legal placements.
        fastest_secs: the fastest step of all that fit.
        ratio: the step that was found by that; infinite if it does not fit.
        simulated: placements that the search simulated.
        search_secs: what it took.
        all_secs: what it took to try all, on all cores.
    """

    number: int
    groups: int
    devices: int
    operations: int
    placements: int
    fastest_secs: float
    ratio: float
    simulated: int
    search_secs: float
    all_secs: float

    @property
    def is_optimal(self) -> bool:
        """True if the search found one of the fastest placements."""
        return bool(is_optimal(np.array(self.ratio), 1.0))


def small_problem(random: np.random.Generator, max_groups: int = _MAX_GROUPS) -> PlacementProblem:
    """Draws a problem that may have no placement that fits.

    Args:
        random: what it depends on.
        max_groups: the most groups.
    """
    num_devices = 3 if random.random() < _THREE_DEVICES_SHARE else 2
    problem = random_step(random, int(random.integers(_MIN_GROUPS, max_groups + 1)), num_devices)
    if random.random() < 0.5:
        return problem
    weights = random.lognormal(0.0, random.choice([0.1, 1.0]), problem.num_operations)
    mean_bytes = max(1.0, float(np.mean(problem.tensor_bytes))) * random.choice([1.0, 10.0])
    resident_bytes = (mean_bytes * weights).astype(np.int64)
    shares = (
        random.uniform(0.5, 1.5, num_devices) if random.random() < 0.5 else np.ones(num_devices)
    )
    memory_bytes = resident_bytes.sum() / random.uniform(*_RESIDENT_SHARES) * shares / shares.sum()
    return dataclasses.replace(
        problem,
        resident_bytes=resident_bytes,
        devices=tuple(
            dataclasses.replace(device, memory_bytes=int(size))
            for device, size in zip(problem.devices, memory_bytes, strict=True)
        ),
    )


def fastest_step_secs(problem: PlacementProblem) -> float:
    """Finds the fastest step of all legal placements that fit; infinite if none does."""
    devices = [np.flatnonzero(row).astype(np.int32) for row in legal_devices(problem)]
    counts = [len(each) for each in devices]
    simulator = Simulator(problem)
    fastest = np.inf
    for first in range(0, int(np.prod(counts)), _BATCH):
        numbers = np.arange(first, min(first + _BATCH, int(np.prod(counts))))
        digits = np.unravel_index(numbers, counts)
        placements = np.stack([each[d] for each, d in zip(devices, digits, strict=True)], axis=1)
        batch = simulator.simulate(placements)
        fastest = min(fastest, batch.step_secs[batch.feasible].min(initial=np.inf))
    return float(fastest)


def run_one(
    number: int,
    max_secs: float = 2.0,
    max_simulated: float = np.inf,
    max_groups: int = _MAX_GROUPS,
) -> SmallRun:
    """Tries all placements of a random problem, and has "auto" search it.

    Args:
        number: which problem.
        max_secs: of the search.
        max_simulated: of the search.
        max_groups: the most groups of the problem.
    """
    random = np.random.default_rng([_SEED, number])
    fastest_secs = np.inf
    while not np.isfinite(fastest_secs):
        problem = small_problem(random, max_groups)
        start_secs = time.monotonic()
        fastest_secs = fastest_step_secs(problem)
        all_secs = time.monotonic() - start_secs
    result = auto_search(
        problem, group_graph(problem), max_secs=max_secs, max_simulated=max_simulated, seed=number
    )
    best = result.best
    return SmallRun(
        number=number,
        groups=problem.num_groups,
        devices=problem.num_devices,
        operations=problem.num_operations,
        placements=int(np.prod(legal_devices(problem).sum(axis=1))),
        fastest_secs=fastest_secs,
        ratio=np.inf if best.excess_bytes else best.step_secs / fastest_secs,
        simulated=result.num_simulated,
        search_secs=round(result.elapsed_secs, 4),
        all_secs=round(all_secs, 4),
    )


def table_of_runs(runs: Sequence[SmallRun]) -> str:
    """Tabulates the runs by the number of placements, and all of them, in Markdown."""
    rows = []
    ranges = [
        (f"up to {end:,}", [run for run in runs if start < run.placements <= end])
        for start, end in zip((0, *_ENDS), _ENDS, strict=False)
    ]
    for name, those in [*ranges, ("all", list(runs))]:
        if not those:
            continue
        optimal = sum(run.is_optimal for run in those)
        rows.append(
            [
                name,
                f"{len(those)}",
                f"{optimal}",
                f"{optimal / len(those):.1%}",
                f"{max(run.ratio for run in those):.4f}",
                f"{np.mean([run.search_secs for run in those]):.2f} s",
                f"{max(run.search_secs for run in those):.2f} s",
            ]
        )
    headers = ("placements", "problems", "optimal", "share", "worst ratio", "search", "longest")
    return markdown_table(headers, rows, "lrrrrrr")


def _page(runs: Sequence[SmallRun]) -> str:
    return (
        f"{table_of_runs(runs)}\n\n"
        "optimal: no placement that fits takes less. worst ratio: the step that was found by the "
        "fastest. search: mean time of a search; longest: of the longest."
    )


def _read(path: pathlib.Path) -> dict[int, SmallRun]:
    """Reads the runs that are kept, by their numbers."""
    if not path.exists():
        return {}
    kinds = get_type_hints(SmallRun)
    with path.open(newline="") as file:
        rows = [{name: kinds[name](row[name]) for name in kinds} for row in csv.DictReader(file)]
    return {row["number"]: SmallRun(**row) for row in rows}


def _write(path: pathlib.Path, runs: Mapping[int, SmallRun]) -> None:
    """Keeps all runs, whole or not at all."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(get_type_hints(SmallRun))
    writer.writerows(dataclasses.astuple(run) for run in runs.values())
    write_text(path, text.getvalue())


def main() -> None:
    """Runs what has not run yet, and writes the table."""
    args = run_parser(__doc__, "auto_small_problems").parse_args()
    out = pathlib.Path(args.out_dir)
    out.mkdir(parents=True, exist_ok=True)
    runs = _read(out / "runs.csv")
    for number in range(0 if args.only_kept else _PROBLEMS):
        if number not in runs:
            runs[number] = run_one(number)
            print(runs[number], flush=True)
            _write(out / "runs.csv", runs)
    write_table(_page(list(runs.values())), out / "table.md")


if __name__ == "__main__":
    main()
