"""Every placer against every other on every problem: a page of tables."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import geometric_mean

import numpy as np

from benchmarks.harness.found_steps import best_secs, seconds, step_text
from benchmarks.harness.placement_runs import Run
from benchmarks.harness.run_counts import explain_counts, format_commits, format_counts
from benchmarks.harness.run_placers import uses_seed
from benchmarks.harness.step_losses import fold_losses
from benchmarks.problems.paper import ProblemKey
from tf_placer.placers import AUTO, is_learned
from tf_placer.text.markdown import markdown_table
from tf_placer.text.units import format_duration

__all__ = ["comparison_markdown"]

# Steps that differ by less are as fast: they differ by the rounding of sums in another order.
_TIE = 1e-9
# Losses below this share of the lower bound are not listed.
_MIN_LOSS_SHARE = 0.01

ComparedRuns = Mapping[str, Mapping[str, Sequence[Run]]]
"""By problem ("nmt_2 on 4xK80") and placer, a run per seed; all problems have the same placers."""


def comparison_markdown(title: str, comparison: ComparedRuns, note: str = "") -> str:
    """Formats a page with the winner on each problem, and how far every placer is from it.

    Args:
        title: of the page.
        comparison: see `ComparedRuns`.
        note: what else is to be known, or nothing.
    """
    seeds = _find_shared_seeds(comparison)
    shared = {
        problem: {
            placer: [run for run in runs if run.key.seed in seeds or not uses_seed(run.key.placer)]
            for placer, runs in of_placer.items()
        }
        for problem, of_placer in comparison.items()
    }
    runs = [run for of_placer in comparison.values() for own in of_placer.values() for run in own]
    parts = [
        f"# {title}",
        *([note] if note else []),
        "## Who wins",
        "The fastest step of each problem, who found it, and the fastest of the placers that learn "
        f"and of those that do not, {AUTO} aside. Placers that found the same step share the win. "
        f"The best of {_format_seeds(seeds)}, which all random placers have.",
        _winners(shared),
        "## Every placer on every problem",
        "The step that a placer found, the best of the same seeds, by the fastest that any found. "
        "OOM: nothing that it tried fitted into memory; none: no run. The last two columns are "
        "over the problems that it found a placement of: geometric mean, and how many it won.",
        _ratios(shared),
    ]
    if all(AUTO in of_placer for of_placer in comparison.values()):
        parts += [
            f"## {AUTO} against the fastest of all others",
            "Each seed by itself, the worst first, beside the best seed of others, of all they "
            "have. Above it: what the step loses to what, in parts of the lower bound. Transfers: "
            "gone if they took no time; turns: devices wait for each other; imbalance: the busiest "
            "device; chain: of operations where they are. Where the step would be longer without "
            "transfers, because operations then start in another order, it loses nothing to them, "
            "and the less to turns.",
            _auto_ratios(comparison),
        ]
    parts += [
        "## The median seed",
        "Seconds that a step takes, of all seeds of a placer: more of them make a median surer, "
        "not shorter. In brackets the best and the worst seed. Mean and wins are as above, but of "
        "these steps. What is not random has one seed. Times are those of the shortest and the "
        "longest run.",
        _medians(comparison),
        "## Samples and failures",
        explain_counts(runs),
        _counts(comparison),
    ]
    return "\n\n".join([*parts, *_remarks(comparison), format_commits(runs)])


def _find_shared_seeds(comparison: ComparedRuns) -> set[int]:
    """Finds the seeds that every placer with runs on a problem has, if it is random."""
    seeds = [
        {run.key.seed for run in runs}
        for of_placer in comparison.values()
        for runs in of_placer.values()
        if runs and uses_seed(runs[0].key.placer)
    ]
    return set.intersection(*seeds) if seeds else set()


def _format_seeds(seeds: set[int]) -> str:
    numbers = ", ".join(map(str, sorted(seeds)))
    return f"seed {numbers}" if len(seeds) == 1 else f"seeds {numbers}" if seeds else "no seed"


def _counts(comparison: ComparedRuns) -> str:
    rows = [
        [placer, *(format_counts(of_placer[placer]) for of_placer in comparison.values())]
        for placer in next(iter(comparison.values()))
    ]
    return markdown_table(["placer", *comparison], rows, "l" + "r" * len(comparison))


def _remarks(comparison: ComparedRuns) -> list[str]:
    """Lists runs of another version of their problem, and runs that failed."""
    parts = []
    mixed: dict[str, list[str]] = {}
    for problem, of_placer in comparison.items():
        if names := _other_version(of_placer):
            mixed.setdefault(", ".join(names), []).append(problem)
    if mixed:
        parts += [
            "## Other versions of the problems",
            "These placers have runs of another version of the problem than most that place the "
            "same groups, in which the same placement takes a little more or less:",
            "\n".join(f"- {', '.join(problems)}: {names}" for names, problems in mixed.items()),
        ]
    failures = [
        f"- {placer} on {problem}: {run.failure}"
        for problem, of_placer in comparison.items()
        for placer, runs in of_placer.items()
        for run in runs
        if run.failure
    ]
    if failures:
        parts += ["## Failed", "\n".join(failures)]
    return parts


def _other_version(of_placer: Mapping[str, Sequence[Run]]) -> list[str]:
    """Finds the placers with runs that placed another problem than most with their groups."""
    placers_of: dict[ProblemKey, dict[str, set[str]]] = {}
    for placer, runs in of_placer.items():
        for run in runs:
            if run.failure is None:
                of_digest = placers_of.setdefault(run.key.problem, {})
                of_digest.setdefault(run.problem_digest, set()).add(placer)
    return sorted(
        {
            placer
            for of_digest in placers_of.values()
            for digest, placers in of_digest.items()
            if digest != max(of_digest, key=lambda each: len(of_digest[each]))
            for placer in placers
        }
    )


def _winners(comparison: ComparedRuns) -> str:
    rows = []
    for problem, of_placer in comparison.items():
        fastest_secs = _fastest_secs(of_placer)
        winners = [
            name for name, runs in of_placer.items() if _is_fastest(best_secs(runs), fastest_secs)
        ]
        # Bounds get better, too: those of older runs may be lower.
        bound_secs = max(
            (
                run.lower_bound_secs
                for name in winners or of_placer
                for run in of_placer[name]
                if run.lower_bound_secs is not None
            ),
            default=None,
        )
        rows.append(
            [
                problem,
                ", ".join(winners) or "nobody",
                "" if fastest_secs is None else seconds(fastest_secs),
                _best_of(of_placer, is_learned),
                _best_of(of_placer, lambda name: not is_learned(name) and name != AUTO),
                "" if bound_secs is None else seconds(bound_secs),
                f"{fastest_secs / bound_secs:.2f}" if fastest_secs and bound_secs else "",
            ]
        )
    headers = ["problem", "winner", "s per step", "fastest that learns", "fastest that does not"]
    return markdown_table([*headers, "lower bound", "winner / bound"], rows, "llrllrr")


def _best_of(of_placer: Mapping[str, Sequence[Run]], wanted: Callable[[str], bool]) -> str:
    of_wanted = {
        name: runs for name, runs in of_placer.items() if runs and wanted(runs[0].key.placer)
    }
    if not of_wanted:
        return "none"
    found = [(secs, name) for name, runs in of_wanted.items() if (secs := best_secs(runs))]
    return f"{min(found)[1]} {seconds(min(found)[0])}" if found else "none fits"


def _ratios(comparison: ComparedRuns) -> str:
    fastest = [_fastest_secs(of_placer) for of_placer in comparison.values()]
    lines: list[tuple[tuple[float, ...], list[str]]] = []
    for placer in next(iter(comparison.values())):
        of_problem = [of_placer[placer] for of_placer in comparison.values()]
        texts = [
            f"{secs / fastest_secs:.3f}"
            if (secs := best_secs(runs)) and fastest_secs
            else step_text(runs)
            for runs, fastest_secs in zip(of_problem, fastest, strict=True)
        ]
        ratios = _to_fastest([best_secs(runs) for runs in of_problem], fastest)
        # Placers that place more problems come first: a mean over few says little.
        order = -len(ratios), geometric_mean(ratios) if ratios else np.inf
        lines.append((order, [placer, *texts, *_standing(ratios)]))
    headers = ["placer", *comparison, "mean", "wins"]
    rows = [line for _, line in sorted(lines)]
    return markdown_table(headers, rows, "l" + "r" * (len(headers) - 1))


def _medians(comparison: ComparedRuns) -> str:
    runs_of = {
        placer: [of_placer[placer] for of_placer in comparison.values()]
        for placer in next(iter(comparison.values()))
    }
    medians = {placer: list(map(_median_secs, each)) for placer, each in runs_of.items()}
    fastest = [
        min((secs for secs in of_problem if secs), default=None)
        for of_problem in zip(*medians.values(), strict=True)
    ]
    rows = []
    for placer, steps in medians.items():
        found = [run.found for runs in runs_of[placer] for run in runs if run.found is not None]
        took_secs = sorted(each.search_secs for each in found)
        rows.append(
            [
                placer,
                *map(_median_text, runs_of[placer]),
                *_standing(_to_fastest(steps, fastest)),
                _seed_counts(runs_of[placer]),
                _span([format_duration(secs) for secs in took_secs]),
            ]
        )
    headers = ["placer", *comparison, "mean", "wins", "seeds", "time of a run"]
    return markdown_table(headers, rows, "l" + "r" * (len(headers) - 1))


def _seed_counts(runs_of_problems: Sequence[Sequence[Run]]) -> str:
    """Formats on how many seeds a median is: "3", "2 to 3" where problems differ."""
    counts = sorted(len(runs) for runs in runs_of_problems if runs)
    return _span([str(count) for count in counts])


def _median_secs(runs: Sequence[Run]) -> float | None:
    """Finds the step of the median seed, infinite if nothing fitted; None without runs."""
    steps = _steps(runs)
    return float(np.median(steps)) if steps else None


def _median_text(runs: Sequence[Run]) -> str:
    steps = _steps(runs)
    if not steps:
        return ""
    low, middle, high = (
        "OOM" if np.isinf(secs) else seconds(secs)
        for secs in (min(steps), float(np.median(steps)), max(steps))
    )
    return middle if low == high else f"{middle} ({low} to {high})"


def _span(values: Sequence[str]) -> str:
    """Formats the first and the last: "12 to 34", or one of them if both are equal."""
    return " to ".join(dict.fromkeys([values[0], values[-1]])) if values else ""


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


def _steps(runs: Sequence[Run]) -> list[float]:
    """Collects the fastest step of each run that did not fail; infinite if nothing fitted."""
    found = [run.found for run in runs if run.found is not None]
    return [np.inf if each.best_secs is None else each.best_secs for each in found]


def _auto_ratios(comparison: ComparedRuns) -> str:
    lines = []
    for problem, of_placer in comparison.items():
        others = {name: runs for name, runs in of_placer.items() if name != AUTO}
        others_secs = _fastest_secs(others)
        for run in of_placer[AUTO]:
            secs = best_secs([run])
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
    losses = fold_losses(run.losses)
    parts = [(secs / run.lower_bound_secs, name) for name, secs in losses.items()]
    return ", ".join(
        f"{name} {part:.2f}"
        for part, name in sorted(parts, reverse=True)
        if part >= _MIN_LOSS_SHARE
    )


def _fastest_secs(of_placer: Mapping[str, Sequence[Run]]) -> float | None:
    return min((secs for runs in of_placer.values() if (secs := best_secs(runs))), default=None)


def _is_fastest(secs: float | None, fastest_secs: float | None) -> bool:
    return secs is not None and fastest_secs is not None and secs <= fastest_secs * (1 + _TIE)
