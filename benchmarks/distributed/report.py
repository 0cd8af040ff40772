"""The page and the picture of searches with waiting workers."""

from __future__ import annotations

import json
import pathlib
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.distributed.goals import goal_table
from benchmarks.distributed.picture import draw
from benchmarks.distributed.planning import Plan, plan, slowest_share
from benchmarks.distributed.runs import (
    best_secs,
    idle_share,
    learn_secs,
    means,
    measured,
    of_case,
    reached,
    trial_secs,
    trials_per_minute,
    wall_secs,
)
from tf_placer.text.markdown import markdown_table

__all__ = ["write_report"]

Run = Mapping[str, Any]
# A trial on the papers' machines: a session, and ten or eleven steps of one to five seconds.
_TRIAL_SECS = 30.0
# As the learned systems had in benchmarks/results/systems_on_k80, and what ColocRL waits for before
# failures count no more.
_SAMPLES, _UPDATES = 2400, 5000
_WORKERS = (1, 8, 16, 32, 80, 160)
_PAPER = "ColocRL, 512 units, batch of 8"
_BASE = "ColocRL, one process"


def write_report(directory: pathlib.Path, runs: Sequence[Run]) -> str:
    """Writes the page and the picture.

    Args:
        directory: where to; with the rates of parameter servers, where these were measured.
        runs: as `run_case` gives them.

    Returns:
        The page.
    """
    path = directory / "server_rates.json"
    rates = json.loads(path.read_text())["rates"] if path.exists() else {}
    speeds = {run["workers"]: trials_per_minute(run) for run in runs if _is_speed(run)}
    goals = _goals(runs)
    searches = _searches(runs, goals)
    plans = _plans(of_case(runs, _BASE), rates[_PAPER]) if _PAPER in rates else []
    parts = [_speed_table(speeds), searches, _model_table(runs), _rate_table(rates)]
    parts += [_plan_table(plans), goal_table(runs, rates)]
    page = "\n\n".join(part for part in parts if part) + "\n"
    (directory / "tables.md").write_text(page)
    draw(directory / "waiting_workers.png", speeds, runs, plans)
    return page


def _is_speed(run: Run) -> bool:
    return str(run["case"]).startswith("random")


def _names(runs: Sequence[Run]) -> list[str]:
    return sorted({run["case"] for run in runs if not _is_speed(run)})


def _goals(runs: Sequence[Run]) -> dict[str, float]:
    """Computes by case what a placement is to take in the mean: 1.1 times what a process ends at.

    The process is that with the same placer and one worker.
    """
    goals = {}
    for name in _names(runs):
        base = of_case(runs, f"{name.split(',')[0]}, one process")
        if base:
            goals[name] = 1.1 * statistics.fmean(means(run)[-1] for run in base)
    return goals


def _speed_table(speeds: Mapping[int, float]) -> str:
    if not speeds:
        return ""
    one = speeds.get(1)
    rows = [
        [str(count), f"{rate:.1f}", f"{rate / one / count:.1%}" if one else ""]
        for count, rate in sorted(speeds.items())
    ]
    return markdown_table(["workers", "trials per minute", "of linear"], rows)


def _searches(runs: Sequence[Run], goals: Mapping[str, float]) -> str:
    rows = [_row(of_case(runs, name), goals.get(name)) for name in _names(runs)]
    head = ["search", "seeds", "samples", "measured", "best step", "last tenth"]
    more = ["samples to goal", "time to goal", "wall time", "idle", "staleness", "largest"]
    return markdown_table([*head, *more], rows) if rows else ""


def _row(runs: Sequence[Run], goal_secs: float | None) -> list[str]:
    found = [reached(run, goal_secs) for run in runs] if goal_secs is not None else []
    goals = [each for each in found if each is not None]
    stale = [each for run in runs for each in run["staleness"]]
    missed = f" ({len(goals)} of {len(runs)})" if len(goals) < len(found) else ""
    return [
        runs[0]["case"],
        str(len(runs)),
        str(len(runs[0]["trials"])),
        _range([float(measured(run)) for run in runs], "{:.0f}"),
        _range([1e3 * best_secs(run) for run in runs], "{:.1f}", " ms"),
        _range([1e3 * means(run)[-1] for run in runs], "{:.1f}", " ms"),
        _range([float(samples) for samples, _ in goals], "{:.0f}") + missed,
        _range([secs / 60.0 for _, secs in goals], "{:.1f}", " min") + missed,
        _range([wall_secs(run) / 60.0 for run in runs], "{:.1f}", " min"),
        f"{statistics.fmean(idle_share(run) for run in runs):.0%}",
        f"{statistics.fmean(stale):.1f}" if stale else "",
        str(max(stale)) if stale else "",
    ]


def _range(values: Sequence[float], form: str, unit: str = "") -> str:
    """Shows the least and the greatest of some values."""
    ends = [form.format(value) for value in (min(values), max(values))] if values else []
    return (" to ".join(dict.fromkeys(ends)) + unit) if ends else ""


def _two_phases(run: Run) -> Plan:
    """Computes what the two phases would make of a search, from what its trials took."""
    took = trial_secs(run)
    size = run["batch_size"]
    return plan(
        run["workers"],
        size,
        len(took),
        trial_secs=statistics.fmean(took),
        slowest=slowest_share(took, size),
        learn_secs=learn_secs(run),
        apply_secs=1e-9,
    )


def _model_table(runs: Sequence[Run]) -> str:
    """Compares the two phases on paper with what was measured."""
    rows = []
    for name in (name for name in _names(runs) if "one process" not in name):
        own = of_case(runs, name)
        papers = [_two_phases(run) for run in own]
        took = [trial_secs(run) for run in own]
        slow = [slowest_share(each, run["batch_size"]) for each, run in zip(took, own, strict=True)]
        rows.append(
            [
                name,
                f"{statistics.fmean(map(statistics.fmean, took)):.1f} s",
                f"{statistics.fmean(slow):.2f}",
                f"{statistics.fmean(map(learn_secs, own)):.2f} s",
                f"{statistics.fmean(paper.idle_share for paper in papers):.0%}",
                f"{statistics.fmean(map(idle_share, own)):.0%}",
            ]
        )
    head = ["search", "mean trial", "slowest of a batch / mean", "learning and sampling"]
    return markdown_table([*head, "idle on paper", "idle measured"], rows) if rows else ""


def _rate_table(rates: Mapping[str, Mapping[str, float]]) -> str:
    rows = [
        [
            name,
            f"{rate['weights']:,}",
            f"{1e3 * rate['learn_secs']:.0f} ms",
            f"{1e3 * rate['apply_secs']:.0f} ms",
            f"{1.0 / rate['apply_secs']:.0f}",
        ]
        for name, rate in rates.items()
    ]
    head = ["networks", "weights", "sampling and learning", "update at the server"]
    return markdown_table([*head, "updates per second"], rows) if rows else ""


def _plans(base: Sequence[Run], rate: Mapping[str, float]) -> list[tuple[Plan, Plan]]:
    """Plans searches of so many samples, and of so many updates, with the paper's networks."""
    if not base:
        return []
    slowest = statistics.fmean(slowest_share(trial_secs(run), 8) for run in base)
    costs = {name: rate[name] for name in ("learn_secs", "apply_secs")}
    return [
        (
            plan(n, 8, _SAMPLES, trial_secs=_TRIAL_SECS, slowest=slowest, **costs),
            plan(n, 8, 8 * _UPDATES, trial_secs=_TRIAL_SECS, slowest=slowest, **costs),
        )
        for n in _WORKERS
    ]


def _plan_table(plans: Sequence[tuple[Plan, Plan]]) -> str:
    rows = [
        [
            str(few.workers),
            str(max(1, few.workers // 8)),
            f"{few.updates_per_sec:.3f}",
            f"{few.server_load:.1%}",
            f"{few.idle_share:.0%}",
            f"{few.wall_secs / 3600.0:,.1f} h",
            f"{many.wall_secs / 3600.0:,.1f} h",
        ]
        for few, many in plans
    ]
    head = ["workers", "controllers", "updates per second", "server busy", "workers idle"]
    return (
        markdown_table([*head, f"{_SAMPLES:,} samples", f"{_UPDATES:,} updates"], rows)
        if rows
        else ""
    )
