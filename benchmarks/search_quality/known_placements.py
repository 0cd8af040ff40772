"""How good the placements are that "auto" finds where a good one is known, by size and by time.

Every problem of `benchmarks.problems.known` is searched for each number of seconds on the clock,
with all cores. What is done is kept in `--out_dir`, so the benchmark goes on where it stopped.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import os
import pathlib
import time
from collections.abc import Callable, Sequence
from statistics import geometric_mean

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

from benchmarks.harness.arguments import run_parser
from benchmarks.harness.csv_runs import kept_or_run
from benchmarks.harness.table_file import write_table
from benchmarks.harness.timed_search import SearchBudget, timed_auto
from benchmarks.problems.known import FAMILIES, KnownProblem, known_problem
from tf_placer.placers import AUTO
from tf_placer.problem.problem_groups import group_graph
from tf_placer.simulation.lower_bounds import lower_bounds
from tf_placer.simulation.simulator import Simulator
from tf_placer.text.markdown import markdown_table

__all__ = ["KnownRun", "known_secs", "main", "quality_table", "run_one", "size_table"]

_SIZES = (1000, 4000, 20_000, 96_000)
_TIMES, _SEEDS = (5.0, 15.0, 60.0), (0,)
_WITHIN = 1.02


@dataclasses.dataclass(frozen=True)
class KnownRun:
    """What a search of a problem with a known placement came to.

    Attributes:
        family: of the problem.
        size: how many operations were asked for.
        placer: its name.
        max_secs: seconds on the clock that it might take.
        seed: of the problem and of the placer.
        operations: how many the problem has.
        bound_secs: the lower bound.
        known_secs: the step of the known placement.
        ratio: the fastest step that was found by that; infinite if there is none.
        within_secs: seconds until a step was found that takes at most 2 % longer than the known
            one; infinite if there is none.
        took_secs: seconds of the whole search, what prepared it included.
        simulated: placements simulated.
    """

    family: str
    size: int
    placer: str
    max_secs: float
    seed: int
    operations: int
    bound_secs: float
    known_secs: float
    ratio: float
    within_secs: float
    took_secs: float
    simulated: int

    @property
    def key(self) -> tuple[int, float, int, str]:
        """The identity of the run."""
        return self.seed, self.max_secs, self.size, self.family


def known_secs(known: KnownProblem) -> float:
    """Simulates the known placement of a problem."""
    simulator = Simulator(known.problem, threads=1)
    return float(simulator.simulate(known.placement[None]).step_secs[0])


def run_one(key: tuple[int, float, int, str]) -> KnownRun:
    """Has "auto" search a problem, on all cores.

    Args:
        key: the seed of problem and search, its seconds on the clock, about how many operations,
            and the family.

    Raises:
        ValueError: there is no such family, or a number is out of range.
    """
    seed, max_secs, size, family = key
    known = known_problem(family, size, seed)
    fastest_secs = known_secs(known)
    start_secs = time.monotonic()
    groups = group_graph(known.problem)
    preparing_secs = time.monotonic() - start_secs
    found = timed_auto(known.problem, groups, SearchBudget(max_secs, is_wall=True), seed=seed)
    took_secs = time.monotonic() - start_secs
    reached = (secs for _, secs, best in found.curve if best <= _WITHIN * fastest_secs)
    return KnownRun(
        family=family,
        size=size,
        placer=AUTO,
        max_secs=max_secs,
        seed=seed,
        operations=known.problem.num_operations,
        bound_secs=float(lower_bounds(known.problem).step_secs),
        known_secs=fastest_secs,
        ratio=(found.best_secs or math.inf) / fastest_secs,
        within_secs=preparing_secs + next(reached, math.inf),
        took_secs=round(took_secs, 2),
        simulated=found.samples,
    )


def quality_table(runs: Sequence[KnownRun]) -> str:
    """Tabulates the steps that were found by the known ones, in Markdown.

    There is a row for each family and size, and a column for each time.
    """
    times = sorted({run.max_secs for run in runs})

    def cells(some: Sequence[KnownRun], mean_of: Callable[[list[float]], float]) -> list[str]:
        of_times = [[run.ratio for run in some if run.max_secs == secs] for secs in times]
        return [f"{mean_of(ratios):.3f}" if ratios else "" for ratios in of_times]

    rows = []
    for size, family in itertools.product(sorted({run.size for run in runs}), FAMILIES):
        some = [run for run in runs if (run.family, run.size) == (family, size)]
        if some:
            bound = geometric_mean([run.known_secs / run.bound_secs for run in some])
            about = [family, f"{some[0].operations:,}", f"{bound:.3f}"]
            rows.append([*about, *cells(some, geometric_mean)])
    rows += [["all", "", "", *cells(runs, geometric_mean)], ["worst", "", "", *cells(runs, max)]]
    headers = ["family", "operations", "known / bound", *(f"{AUTO} {secs:g} s" for secs in times)]
    return markdown_table(headers, rows, "lrr" + "r" * len(times))


def size_table(runs: Sequence[KnownRun]) -> str:
    """Tabulates what was found by size and time, over all families, in Markdown.

    The steps by the known ones (geometric mean and longest) and by the lower bound, on how many
    problems, and after which seconds, one was at most 2 % longer than the known one, and how long
    the longest search took.
    """
    rows = []
    for size, max_secs in sorted({(run.size, run.max_secs) for run in runs}):
        some = [run for run in runs if (run.size, run.max_secs) == (size, max_secs)]
        secs = sorted(run.within_secs for run in some)
        rows.append(
            [
                f"{size:,}",
                f"{max_secs:g} s",
                f"{geometric_mean([run.ratio for run in some]):.3f}",
                f"{max(run.ratio for run in some):.3f}",
                f"{geometric_mean([r.ratio * r.known_secs / r.bound_secs for r in some]):.3f}",
                f"{sum(map(math.isfinite, secs))} of {len(some)}",
                *(
                    f"{each:.1f} s" if math.isfinite(each) else "-"
                    for each in (secs[len(secs) // 2], secs[-1])
                ),
                f"{max(run.took_secs for run in some):.1f} s",
            ]
        )
    headers = ["operations", "time", "mean", "worst", "found / bound"]
    headers += ["within 2 %", "median", "last", "longest search"]
    return markdown_table(headers, rows, "r" * len(headers))


def main() -> None:
    """Makes the runs that are missing, and writes the tables."""
    parser = run_parser(__doc__, "known_placements")
    args = parser.parse_args()
    keys = list(itertools.product(_SEEDS, _TIMES, _SIZES, FAMILIES))
    out = pathlib.Path(args.out_dir)
    runs = kept_or_run(KnownRun, out / "runs.csv", keys, run_one, only_kept=args.only_kept)
    text = (
        f"# Placements found beside known ones\n\n{quality_table(runs)}\n\nThe fastest simulated "
        "step that was found by that of the known placement; geometric means. Known / bound: the "
        f"known step by the lower bound.\n\n{size_table(runs)}\n\nThe steps that `auto` found by "
        "the known ones and by the lower bound, all families together; on how many problems, and "
        "after which time, it found one that is at most 2 % longer than the known one; longest "
        "search: everything included."
    )
    write_table(text, out / "table.md")


if __name__ == "__main__":
    main()
