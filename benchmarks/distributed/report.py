"""The page of searches with waiting workers."""

from __future__ import annotations

import json
import math
import pathlib
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.distributed.planning import Plan, plan, slowest_share
from benchmarks.distributed.runs import (
    best_secs,
    found,
    idle_share,
    last_mean_secs,
    learn_secs,
    trial_secs,
    trials_per_minute,
    wall_secs,
)
from tf_placer.text.markdown import markdown_table

__all__ = ["write_report"]

Run = Mapping[str, Any]
# A step that is reached by most seeds of all searches; the original takes 97 ms.
_GOAL_SECS = 0.025
# A trial on the papers' machines: a session, and ten or eleven steps of one to five seconds.
_TRIAL_SECS = 30.0
# As the learned systems had in benchmarks/results/systems_on_k80, and what ColocRL waits for before
# failures count no more.
_SAMPLES, _UPDATES = 2400, 5000
_WORKERS = (1, 8, 16, 32, 80, 160)
_PAPER = "ColocRL, 512 units, batch of 8"
_BASE = "ColocRL, one process"


def write_report(directory: pathlib.Path, runs: Sequence[Run]) -> str:
    """Writes the page.

    Args:
        directory: where to; with the rates of parameter servers, where these were measured.
        runs: as `run_case` gives them.

    Returns:
        The page.
    """
    path = directory / "server_rates.json"
    rates = json.loads(path.read_text())["rates"] if path.exists() else {}
    speeds = {run["workers"]: trials_per_minute(run) for run in runs if _is_speed(run)}
    searches = {
        name: [run for run in runs if run["case"] == name]
        for name in sorted({run["case"] for run in runs if not _is_speed(run)})
    }
    parts = [_speed_table(speeds)] if speeds else []
    if searches:
        parts += [_search_table(searches), _idle_table(searches)]
    if rates:
        parts.append(_rate_table(rates))
    if _PAPER in rates and _BASE in searches:
        parts.append(_plan_table(searches[_BASE], rates[_PAPER]))
    page = "\n\n".join(parts) + "\n"
    (directory / "tables.md").write_text(page)
    return page


def _is_speed(run: Run) -> bool:
    return str(run["case"]).startswith("random")


def _speed_table(speeds: Mapping[int, float]) -> str:
    one = speeds.get(1)
    rows = [
        [str(count), f"{rate:.1f}", f"{rate / one / count:.1%}" if one else ""]
        for count, rate in sorted(speeds.items())
    ]
    return markdown_table(["workers", "trials per minute", "of linear"], rows)


def _search_table(searches: Mapping[str, Sequence[Run]]) -> str:
    goal = f"{1e3 * _GOAL_SECS:.0f} ms"
    head = ["search", "seeds", "best step", "last tenth", f"samples to {goal}", f"time to {goal}"]
    head += ["wall time", "idle", "staleness", "largest"]
    return markdown_table(head, [_search_row(name, runs) for name, runs in searches.items()])


def _search_row(name: str, runs: Sequence[Run]) -> list[str]:
    stale = [each for run in runs for each in run["staleness"]]
    # The median of the seeds; one by which the goal is never reached needs infinitely many.
    ends = [found(run, _GOAL_SECS) or (math.inf, math.inf) for run in runs]
    samples, secs = (statistics.median(column) for column in zip(*ends, strict=True))
    return [
        name,
        str(len(runs)),
        _range([1e3 * best_secs(run) for run in runs], " ms"),
        _range([1e3 * last_mean_secs(run) for run in runs], " ms"),
        f"{samples:.0f}",
        f"{secs / 60.0:.1f} min",
        _range([wall_secs(run) / 60.0 for run in runs], " min"),
        f"{statistics.fmean(idle_share(run) for run in runs):.0%}",
        f"{statistics.fmean(stale):.1f}" if stale else "",
        str(max(stale)) if stale else "",
    ]


def _range(values: Sequence[float], unit: str) -> str:
    """Shows the least and the greatest of some values."""
    ends = [f"{value:.1f}" for value in (min(values), max(values))]
    return " to ".join(dict.fromkeys(ends)) + unit


def _idle_table(searches: Mapping[str, Sequence[Run]]) -> str:
    """Compares the two phases on paper with what was measured."""
    rows = []
    for name, runs in searches.items():
        if "one process" in name:
            continue
        took = [trial_secs(run) for run in runs]
        slow = [
            slowest_share(each, run["batch_size"]) for each, run in zip(took, runs, strict=True)
        ]
        papers = [
            plan(
                run["workers"],
                run["batch_size"],
                len(each),
                trial_secs=statistics.fmean(each),
                slowest=slowest,
                learn_secs=learn_secs(run),
                apply_secs=1e-9,
            )
            for run, each, slowest in zip(runs, took, slow, strict=True)
        ]
        rows.append(
            [
                name,
                f"{statistics.fmean(map(statistics.fmean, took)):.1f} s",
                f"{statistics.fmean(slow):.2f}",
                f"{statistics.fmean(map(learn_secs, runs)):.2f} s",
                f"{statistics.fmean(paper.idle_share for paper in papers):.0%}",
                f"{statistics.fmean(map(idle_share, runs)):.0%}",
            ]
        )
    head = ["search", "mean trial", "slowest of a batch / mean", "learning and sampling"]
    return markdown_table([*head, "idle on paper", "idle measured"], rows)


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
    return markdown_table([*head, "updates per second"], rows)


def _plan_table(base: Sequence[Run], rate: Mapping[str, float]) -> str:
    """Plans searches of so many samples, and of so many updates, with the paper's networks."""
    slowest = statistics.fmean(slowest_share(trial_secs(run), 8) for run in base)

    def planned(workers: int, samples: int) -> Plan:
        return plan(
            workers,
            8,
            samples,
            trial_secs=_TRIAL_SECS,
            slowest=slowest,
            learn_secs=rate["learn_secs"],
            apply_secs=rate["apply_secs"],
        )

    rows = []
    for workers in _WORKERS:
        few, many = planned(workers, _SAMPLES), planned(workers, 8 * _UPDATES)
        rows.append(
            [
                str(workers),
                str(max(1, workers // 8)),
                f"{few.updates_per_sec:.3f}",
                f"{few.server_load:.1%}",
                f"{few.idle_share:.0%}",
                f"{few.wall_secs / 3600.0:,.1f} h",
                f"{many.wall_secs / 3600.0:,.1f} h",
            ]
        )
    head = ["workers", "controllers", "updates per second", "server busy", "workers idle"]
    return markdown_table([*head, f"{_SAMPLES:,} samples", f"{_UPDATES:,} updates"], rows)
