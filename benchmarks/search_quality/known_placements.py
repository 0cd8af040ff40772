"""How good the placements are that placers find where a good one is known, by size and by time.

Every problem of `benchmarks.problems.known` is searched by every placer, for each number of
seconds on the clock, with all cores. What is done is kept in `--out_dir`, so the benchmark goes on
where it stopped.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import itertools
import math
import os
import pathlib
import sys
import time
from collections.abc import Iterable, Sequence
from statistics import geometric_mean

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

from benchmarks.harness.numbered_runs import read_runs, write_runs
from benchmarks.harness.pictures import save_picture
from benchmarks.harness.provenance import provenance
from benchmarks.harness.run_placers import check_placer, make_run_placer
from benchmarks.harness.timed_auto import timed_auto
from benchmarks.harness.timed_search import Found, SearchBudget, timed_search
from benchmarks.problems.known import FAMILIES, KnownProblem, known_problem
from benchmarks.problems.paper import PaperProblem
from tf_placer.placers import AUTO, PLACERS, is_learned
from tf_placer.problem.problem_groups import group_graph, legal_devices
from tf_placer.simulation.lower_bounds import lower_bounds
from tf_placer.simulation.simulator import Simulator
from tf_placer.text.markdown import markdown_table

__all__ = [
    "KnownRun",
    "draw_growth",
    "known_secs",
    "main",
    "quality_table",
    "run_one",
    "size_table",
]

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
    def key(self) -> tuple[str, int, str, float, int]:
        """Which run it is."""
        return self.family, self.size, self.placer, self.max_secs, self.seed


def known_secs(known: KnownProblem) -> float:
    """Simulates the known placement of a problem."""
    simulator = Simulator(known.problem, threads=1)
    return float(simulator.simulate(known.placement[None]).step_secs[0])


def run_one(family: str, size: int, placer: str, max_secs: float, seed: int) -> KnownRun:
    """Has a placer search a problem, on all cores.

    Args:
        family: of the problem.
        size: about how many operations.
        placer: its name.
        max_secs: seconds on the clock.
        seed: of the problem and of the placer.

    Raises:
        ImportError, OSError: something that the placer needs is not installed.
        ValueError: there is no such family or placer, or a number is out of range.
    """
    check_placer(placer, {})
    known = known_problem(family, size, seed)
    fastest_secs = known_secs(known)
    start_secs = time.monotonic()
    problem = PaperProblem(
        groups=group_graph(known.problem),
        legal=legal_devices(known.problem),
        problem=known.problem,
        digest="",
        num_graph_operations=known.problem.num_operations,
    )
    preparing_secs = time.monotonic() - start_secs
    budget = SearchBudget(max_secs, is_wall=True)
    if placer == AUTO:
        found = timed_auto(problem, budget, seed=seed)
    else:
        make = functools.partial(make_run_placer, placer, {}, family, problem, seed=seed)
        found = timed_search(known.problem, make, budget)
    took_secs = time.monotonic() - start_secs
    return KnownRun(
        family=family,
        size=size,
        placer=placer,
        max_secs=max_secs,
        seed=seed,
        operations=known.problem.num_operations,
        bound_secs=float(lower_bounds(known.problem).step_secs),
        known_secs=fastest_secs,
        ratio=(found.best_secs or math.inf) / fastest_secs,
        within_secs=preparing_secs + _secs_until(found, _WITHIN * fastest_secs),
        took_secs=round(took_secs, 2),
        simulated=found.samples,
    )


def _secs_until(found: Found, step_secs: float) -> float:
    """Finds when a step that is short enough was found."""
    return next((secs for _, secs, best in found.curve if best <= step_secs), math.inf)


def quality_table(runs: Sequence[KnownRun]) -> str:
    """Tabulates the steps that were found by the known ones, in Markdown.

    There is a row for each family and size, and a column for each placer and time.
    """
    columns = sorted({(run.placer != AUTO, run.placer, run.max_secs) for run in runs})
    rows = []
    for family, size in _in_order((run.family, run.size) for run in runs):
        some = [run for run in runs if (run.family, run.size) == (family, size)]
        cells = [_cell(some, placer, secs) for _, placer, secs in columns]
        bound = geometric_mean([run.known_secs / run.bound_secs for run in some])
        rows.append([family, f"{some[0].operations:,}", f"{bound:.3f}", *cells])
    every = [_cell(runs, placer, secs) for _, placer, secs in columns]
    worst = [
        f"{max(run.ratio for run in runs if (run.placer, run.max_secs) == (placer, secs)):.3f}"
        for _, placer, secs in columns
    ]
    rows += [["all", "", "", *every], ["worst", "", "", *worst]]
    headers = [f"{placer} {secs:g} s" for _, placer, secs in columns]
    return markdown_table(
        ["family", "operations", "known / bound", *headers], rows, "lrr" + "r" * len(columns)
    )


def size_table(runs: Sequence[KnownRun]) -> str:
    """Tabulates what "auto" found, by size and time, over all families, in Markdown.

    The steps by the known ones (geometric mean and longest) and by the lower bound, on how many
    problems, and after which seconds, one was at most 2 % longer than the known one, and how long
    the longest search took.
    """
    rows = []
    for size, max_secs, some in _searches_of_auto(runs):
        secs = [run.within_secs for run in some]
        reached = sum(map(math.isfinite, secs))
        rows.append(
            [
                f"{size:,}",
                f"{max_secs:g} s",
                f"{geometric_mean([run.ratio for run in some]):.3f}",
                f"{max(run.ratio for run in some):.3f}",
                f"{geometric_mean([r.ratio * r.known_secs / r.bound_secs for r in some]):.3f}",
                f"{reached} of {len(some)}",
                *(f"{each:.1f} s" if math.isfinite(each) else "-" for each in _typical(secs)),
                f"{max(run.took_secs for run in some):.1f} s",
            ]
        )
    headers = ["operations", "time", "mean", "worst", "found / bound"]
    headers += ["within 2 %", "median", "last", "longest search"]
    return markdown_table(headers, rows, "r" * len(headers))


def draw_growth(runs: Sequence[KnownRun], path: str | os.PathLike[str]) -> None:
    """Draws after how many seconds "auto" was within 2 % of the known steps, by size.

    A line for each time that searches had: the median over all problems, and dashed the last.
    Without matplotlib, there is no picture.

    Raises:
        OSError: the file cannot be written.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError:
        print("no picture: pip install 'tf_placer[report]'")
        return
    figure = Figure(figsize=(7.0, 4.5), layout="constrained")
    axes = figure.add_subplot()
    every = _searches_of_auto(runs)
    for number, max_secs in enumerate(sorted({max_secs for _, max_secs, _ in every})):
        searches = [(size, some) for size, secs, some in every if secs == max_secs]
        sizes = [size for size, _ in searches]
        typical = [_typical([run.within_secs for run in some]) for _, some in searches]
        medians, lasts = zip(*typical, strict=True)
        color, of_searches = f"C{number}", f"searches of {max_secs:g} s"
        axes.plot(sizes, medians, ".-", color=color, label=f"median, {of_searches}")
        axes.plot(sizes, lasts, ".--", color=color, label=f"last, {of_searches}")
    axes.set(xscale="log", yscale="log", xlabel="operations")
    axes.set_ylabel(f"seconds until at most {_WITHIN - 1.0:.0%} above the known step")
    axes.legend()
    save_picture(figure, path)


def _searches_of_auto(runs: Sequence[KnownRun]) -> list[tuple[int, float, list[KnownRun]]]:
    """Lists sizes and times in order, each with the runs of "auto"."""
    own = [run for run in runs if run.placer == AUTO]
    return [
        (size, secs, [run for run in own if (run.size, run.max_secs) == (size, secs)])
        for size, secs in sorted({(run.size, run.max_secs) for run in own})
    ]


def _typical(secs: Sequence[float]) -> tuple[float, float]:
    """Picks the median and the last."""
    ordered = sorted(secs)
    return ordered[len(ordered) // 2], ordered[-1]


def _cell(runs: Sequence[KnownRun], placer: str, max_secs: float) -> str:
    ratios = [run.ratio for run in runs if (run.placer, run.max_secs) == (placer, max_secs)]
    return f"{geometric_mean(ratios):.3f}" if ratios else ""


def _in_order(pairs: Iterable[tuple[str, int]]) -> list[tuple[str, int]]:
    names = list(FAMILIES)
    return sorted(set(pairs), key=lambda pair: (pair[1], names.index(pair[0])))


def main() -> None:
    """Makes the runs that are missing, and writes the tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    simple = [name for name in PLACERS if not is_learned(name)]
    parser.add_argument("--families", default=",".join(FAMILIES), help="by comma (default: all)")
    parser.add_argument("--sizes", default="1000,4000,20000,96000", help="operations, by comma")
    parser.add_argument(
        "--placers", default=",".join(simple), help="by comma (default: all that do not learn)"
    )
    parser.add_argument("--max_secs", default="15", help="of a search, by comma (default 15)")
    parser.add_argument("--seeds", type=int, default=1, help="how many (default 1)")
    parser.add_argument("--out_dir", default="benchmarks/results/known_placements")
    args = parser.parse_args()
    out = pathlib.Path(args.out_dir)
    out.mkdir(parents=True, exist_ok=True)
    kept = {run.key: run for run in read_runs(KnownRun, out / "runs.csv")}
    wanted = [
        (family, int(size), placer, float(secs), seed)
        for seed, secs, placer, size, family in itertools.product(
            range(args.seeds),
            args.max_secs.split(","),
            args.placers.split(","),
            args.sizes.split(","),
            args.families.split(","),
        )
    ]
    missing = [key for key in wanted if key not in kept]
    for number, key in enumerate(missing, 1):
        try:
            kept[key] = run = run_one(*key)
        except (ImportError, OSError, ValueError) as error:
            parser.error(f"{key[2]} on {key[0]}: {error}")
        write_runs(KnownRun, out / "runs.csv", list(kept.values()))
        line = f"{number}/{len(missing)}: {run.placer} on {run.family} of {run.operations:,}"
        print(f"{line}: {run.ratio:.4f}", file=sys.stderr, flush=True)
    runs = [kept[key] for key in wanted]
    made_by = provenance()
    text = (
        f"# Placements found beside known ones\n\n{quality_table(runs)}\n\nThe fastest simulated "
        "step that was found by that of the known placement; geometric means. Known / bound: the "
        f"known step by the lower bound.\n\n{size_table(runs)}\n\nThe steps that `auto` found by "
        "the known ones and by the lower bound, all families together; on how many problems, and "
        "after which time, it found one that is at most 2 % longer than the known one; longest "
        f"search: everything included. Made by `{made_by['command']}` at commit "
        f"{made_by['commit'] or 'unknown'} on {made_by['processor']}, {made_by['cores']} cores."
    )
    print(text)
    (out / "table.md").write_text(text + "\n")
    if any(run.placer == AUTO for run in runs):
        draw_growth(runs, out / "growth.png")


if __name__ == "__main__":
    main()
