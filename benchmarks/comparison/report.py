"""Every placer against every other on every problem: tables in Markdown and CSV."""

from __future__ import annotations

import csv
import pathlib
from collections.abc import Callable, Mapping, Sequence
from statistics import geometric_mean

import numpy as np

from benchmarks.harness.placement_runs import Run
from benchmarks.paper_tables.report import Cell, seconds
from tf_placer.placers import AUTO, is_learned
from tf_placer.text.markdown import markdown_table
from tf_placer.text.units import format_duration

__all__ = ["comparison_markdown", "write_comparison_csv"]

# Steps that differ by less are as fast: they differ by the rounding of sums in another order.
_TIE = 1e-9
# What a step loses is told from this share of the lower bound on.
_LEAST_LOSS = 0.01

Comparison = Mapping[str, Mapping[str, Cell]]
"""By problem ("nmt_2 on 4xK80"), the cell by placer; the placers are the same for all problems."""


def comparison_markdown(title: str, comparison: Comparison, footer: str) -> str:
    """Formats a page with the winner on each problem, and how far every placer is from it.

    Args:
        title: of the page.
        comparison: see `Comparison`.
        footer: what made it.
    """
    parts = [
        f"# {title}",
        "## Who wins",
        "The fastest step of each problem, who found it, and the fastest of the placers that learn "
        f"and of those that do not, {AUTO} aside. Placers that found the same step share the win.",
        _winners(comparison),
        "## Every placer on every problem",
        "The step that a placer found by the fastest that any found; of several seeds the best. "
        "OOM: nothing that it tried fitted into memory; none: no run. The last two columns are "
        "over the problems that it found a placement of: geometric mean, and how many it won.",
        _ratios(comparison),
    ]
    if all(AUTO in cells for cells in comparison.values()):
        parts += [
            f"## {AUTO} against the fastest of all others",
            "Each seed by itself, the worst first. Above it: what the step loses to what, in parts "
            "of the lower bound. Transfers: gone if they took no time; turns: devices wait for "
            "each other; imbalance: the busiest device; chain: of operations where they are.",
            _auto_ratios(comparison),
        ]
    if any(len(cell.runs) > 1 for cells in comparison.values() for cell in cells.values()):
        parts += [
            "## The median seed",
            "Seconds that a step takes. Mean and wins are as above, but of these steps. Times are "
            "those of the shortest and the longest run.",
            _medians(comparison),
            "## Over the seeds",
            "The fastest step of the best, the median and the worst seed. Within 2 %: samples "
            "until a step that is at most 2 % slower than the fastest of the run. Failed: share of "
            "the samples that did not fit. The time of a run, and its shares for proposing, "
            "learning and simulating. The last four are medians.",
            _spreads(comparison),
        ]
    mixed = [
        f"- {problem}: runs are of different versions of their problem"
        for problem, cells in comparison.items()
        if _has_versions([run for cell in cells.values() for run in cell.runs])
    ]
    if mixed:
        parts += ["## Not to be compared", "\n".join(mixed)]
    failures = [
        f"- {placer} on {problem}: {run.failure}"
        for problem, cells in comparison.items()
        for placer, cell in cells.items()
        for run in cell.runs
        if run.failure
    ]
    if failures:
        parts += ["## Failed", "\n".join(failures)]
    return "\n\n".join([*parts, footer]) + "\n"


def _has_versions(runs: Sequence[Run]) -> bool:
    """Says whether runs with one kind of groups, of one model and machine, placed two problems."""
    digests = {(run.key.problem, run.problem_digest) for run in runs if run.failure is None}
    return len(digests) > len({problem for problem, _ in digests})


def write_comparison_csv(path: pathlib.Path, comparison: Comparison) -> None:
    """Writes a line for each run.

    Args:
        path: where to.
        comparison: see `Comparison`.

    Raises:
        OSError: it cannot be written.
    """
    lines = [
        _csv_line(run, fastest_secs, cell)
        for cells in comparison.values()
        for fastest_secs in [_fastest_secs(cells)]
        for cell in cells.values()
        for run in cell.runs
    ]
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(lines[0]))
        writer.writeheader()
        writer.writerows(lines)


def _csv_line(run: Run, fastest_secs: float | None, cell: Cell) -> dict[str, object]:
    found, key = run.found, run.key
    best_secs = None if found is None else found.best_secs
    return {
        "model": key.model,
        "machine": key.machine,
        "placer": key.label,
        "seed": key.seed,
        "state": Cell(None, (run,)).state,
        "step_secs": best_secs,
        "to_fastest": best_secs / fastest_secs if best_secs and fastest_secs else None,
        "wins": _is_fastest(best_secs, fastest_secs),
        "lower_bound_secs": run.lower_bound_secs,
        "samples": found and found.samples,
        "failures": found and found.failures,
        "samples_to_best": found and found.samples_to_best,
        "ended_by": found and found.ended,
        "search_secs": found and found.search_secs,
        "make_secs": found and found.make_secs,
        "propose_secs": found and found.propose_secs,
        "observe_secs": found and found.observe_secs,
        "simulate_secs": found and found.simulate_secs,
        "problem_digest": run.problem_digest[:12],
        "message": run.failure,
    }


def _winners(comparison: Comparison) -> str:
    rows = []
    for problem, cells in comparison.items():
        fastest_secs = _fastest_secs(cells)
        winners = [
            name for name, cell in cells.items() if _is_fastest(cell.best_secs, fastest_secs)
        ]
        # Bounds get better, too: those of older runs may be lower.
        bound_secs = max(
            (
                run.lower_bound_secs
                for name in winners or cells
                for run in cells[name].runs
                if run.lower_bound_secs is not None
            ),
            default=None,
        )
        to_bound = fastest_secs / bound_secs if fastest_secs and bound_secs else None
        rows.append(
            [
                problem,
                ", ".join(winners) or "nobody",
                "" if fastest_secs is None else seconds(fastest_secs),
                _best_of(cells, is_learned),
                _best_of(cells, lambda name: not is_learned(name) and name != AUTO),
                "" if bound_secs is None else seconds(bound_secs),
                "" if to_bound is None else f"{to_bound:.2f}",
            ]
        )
    headers = ["problem", "winner", "s per step", "fastest that learns", "fastest that does not"]
    return markdown_table([*headers, "lower bound", "winner / bound"], rows, "llrllrr")


def _best_of(cells: Mapping[str, Cell], wanted: Callable[[str], bool]) -> str:
    of_placers = {
        name: cell for name, cell in cells.items() if cell.runs and wanted(cell.runs[0].key.placer)
    }
    if not of_placers:
        return "none"
    found = [
        (secs, name) for name, cell in of_placers.items() if (secs := cell.best_secs) is not None
    ]
    return f"{min(found)[1]} {seconds(min(found)[0])}" if found else "none fits"


def _ratios(comparison: Comparison) -> str:
    fastest = [_fastest_secs(cells) for cells in comparison.values()]
    lines: list[tuple[tuple[float, ...], list[str]]] = []
    for placer in next(iter(comparison.values())):
        cells = [of_placer[placer] for of_placer in comparison.values()]
        texts = [_ratio_text(*each) for each in zip(cells, fastest, strict=True)]
        ratios = _to_fastest([cell.best_secs for cell in cells], fastest)
        # Whoever places more problems comes first: a mean over few says little.
        order = -len(ratios), geometric_mean(ratios) if ratios else np.inf
        lines.append((order, [placer, *texts, *_standing(ratios)]))
    headers = ["placer", *comparison, "mean", "wins"]
    rows = [line for _, line in sorted(lines)]
    return markdown_table(headers, rows, "l" + "r" * (len(headers) - 1))


def _ratio_text(cell: Cell, fastest_secs: float | None) -> str:
    if cell.best_secs and fastest_secs:
        return f"{cell.best_secs / fastest_secs:.3f}"
    return "OOM" if cell.state == "out of memory" else cell.state


def _medians(comparison: Comparison) -> str:
    runs_of = {
        placer: [cells[placer].runs for cells in comparison.values()]
        for placer in next(iter(comparison.values()))
    }
    medians = {placer: [_median(runs) for runs in each] for placer, each in runs_of.items()}
    fastest = [
        min((secs for secs in of_problem if secs), default=None)
        for of_problem in zip(*medians.values(), strict=True)
    ]
    rows = []
    for placer, steps in medians.items():
        found = [run.found for runs in runs_of[placer] for run in runs if run.found is not None]
        took = [each.search_secs for each in found]
        times = [format_duration(secs) for secs in (min(took), max(took))] if took else []
        texts = ["" if secs is None else _step_text(secs) for secs in steps]
        standing = _standing(_to_fastest(steps, fastest))
        rows.append([placer, *texts, *standing, " to ".join(dict.fromkeys(times))])
    headers = ["placer", *comparison, "mean", "wins", "time of a run"]
    return markdown_table(headers, rows, "l" + "r" * (len(headers) - 1))


def _median(runs: Sequence[Run]) -> float | None:
    """The step of the median seed, infinite if nothing fitted; None without runs."""
    steps = _steps(runs)
    return float(np.median(steps)) if steps else None


def _to_fastest(steps: Sequence[float | None], fastest: Sequence[float | None]) -> list[float]:
    """Divides steps by the fastest ones, where there are both."""
    return [
        secs / fastest_secs
        for secs, fastest_secs in zip(steps, fastest, strict=True)
        if secs and fastest_secs and np.isfinite(secs)
    ]


def _standing(ratios: Sequence[float]) -> tuple[str, str]:
    """Formats the geometric mean of ratios to the fastest, and how many are the fastest."""
    mean = f"{geometric_mean(ratios):.3f}" if ratios else ""
    return mean, str(sum(ratio <= 1 + _TIE for ratio in ratios))


def _spreads(comparison: Comparison) -> str:
    headers = ["problem", "placer", "seeds", "samples", "best", "median", "worst"]
    headers += ["median / bound", "within 2 %", "failed", "time", "propose, learn, simulate"]
    rows = [
        [problem, placer, *_spread(cell.runs)]
        for problem, cells in comparison.items()
        for placer, cell in cells.items()
    ]
    return markdown_table(headers, rows, "ll" + "r" * 10)


def _spread(runs: Sequence[Run]) -> list[str]:
    """Formats what the seeds of a placer came to; empty texts if all runs failed."""
    found = [run.found for run in runs if run.found is not None]
    if not found:
        return ["0", *[""] * 9]
    steps = _steps(runs)
    low, middle, high = min(steps), float(np.median(steps)), max(steps)
    bound_secs = runs[0].lower_bound_secs
    samples = [each.samples for each in found]
    failed = [
        each.failures / each.samples for each in found if each.failures is not None and each.samples
    ]
    phases = [(each.propose_secs, each.observe_secs, each.simulate_secs) for each in found]
    total_secs = [max(each.search_secs, 1e-9) for each in found]
    shares = np.median(np.array(phases) / np.array(total_secs)[:, np.newaxis], axis=0)
    return [
        str(len(found)),
        " to ".join(map(str, sorted({min(samples), max(samples)}))),
        *map(_step_text, (low, middle, high)),
        f"{middle / bound_secs:.2f}" if bound_secs and np.isfinite(middle) else "",
        f"{np.median([each.samples_to_best for each in found]):.0f}",
        f"{np.median(failed):.0%}" if failed else "",
        format_duration(float(np.median(total_secs))),
        " ".join(f"{share:.0%}" for share in shares),
    ]


def _steps(runs: Sequence[Run]) -> list[float]:
    """Collects the fastest step of each run that did not fail; infinite if nothing fitted."""
    found = [run.found for run in runs if run.found is not None]
    return [np.inf if each.best_secs is None else each.best_secs for each in found]


def _step_text(secs: float) -> str:
    return "OOM" if np.isinf(secs) else seconds(secs)


def _auto_ratios(comparison: Comparison) -> str:
    lines = []
    for problem, cells in comparison.items():
        others = {name: cell for name, cell in cells.items() if name != AUTO}
        others_secs = _fastest_secs(others)
        for run in cells[AUTO].runs:
            secs = None if run.found is None else run.found.best_secs
            if secs is None:
                # As good as the others only if they have nothing either.
                ratio = 1.0 if others_secs is None else np.inf
            else:
                ratio = 0.0 if others_secs is None else secs / others_secs
            bound_secs = run.lower_bound_secs
            line = [
                problem,
                str(run.key.seed),
                "none fits" if secs is None else seconds(secs),
                _best_of(others, lambda name: True),
                f"{ratio:.4f}" if 0.0 < ratio < np.inf else "",
                f"{secs / bound_secs:.3f}" if secs and bound_secs else "",
                _losses(run),
            ]
            lines.append((-ratio, line, secs / bound_secs if secs and bound_secs else None))
    to_bound = [each for _, _, each in lines if each is not None]
    rows = [line for _, line, _ in sorted(lines, key=lambda each: each[0])]
    headers = ["problem", "seed", "s per step", "fastest other", "ratio", "to lower bound"]
    text = markdown_table([*headers, "above it"], rows, "lrrlrrl")
    if to_bound:
        text += f"\n\nGeometric mean of step / lower bound: {geometric_mean(to_bound):.3f}."
    return text


def _losses(run: Run) -> str:
    """Formats what its step loses to what, the most first: "turns 0.12, transfers 0.05"."""
    if run.losses is None or not run.lower_bound_secs:
        return ""
    parts = [(secs / run.lower_bound_secs, name) for name, secs in run.losses.items()]
    return ", ".join(
        f"{name} {part:.2f}"
        for part, name in sorted(parts, reverse=True)
        if abs(part) >= _LEAST_LOSS
    )


def _fastest_secs(cells: Mapping[str, Cell]) -> float | None:
    return min((cell.best_secs for cell in cells.values() if cell.best_secs), default=None)


def _is_fastest(secs: float | None, fastest_secs: float | None) -> bool:
    return secs is not None and fastest_secs is not None and secs <= fastest_secs * (1 + _TIE)
