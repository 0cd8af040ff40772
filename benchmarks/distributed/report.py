"""The page of searches with waiting workers."""

from __future__ import annotations

import math
import pathlib
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.distributed.runs import (
    best_secs,
    find_goal,
    idle_share,
    last_mean_secs,
    trials_per_minute,
    wall_secs,
)
from tf_placer.text.markdown import markdown_table

__all__ = ["write_report"]

Run = Mapping[str, Any]
# A step that is reached by most seeds of all searches; the original takes 97 ms.
_GOAL_SECS = 0.025


def write_report(directory: pathlib.Path, runs: Sequence[Run]) -> str:
    """Writes the page.

    Args:
        directory: where to.
        runs: as `run_case` gives them.

    Returns:
        The page.
    """
    speeds = {run["workers"]: trials_per_minute(run) for run in runs if _is_speed(run)}
    searches = {
        name: [run for run in runs if run["case"] == name]
        for name in sorted({run["case"] for run in runs if not _is_speed(run)})
    }
    parts = [_speed_table(speeds)] if speeds else []
    if searches:
        parts.append(_search_table(searches))
    commits = sorted({run["made_by"]["commit"] for run in runs})
    parts.append(f"Runs were made at commit {', '.join(commits)}.")
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
    head = [
        "search",
        "seeds",
        "samples",
        "failed",
        "best step",
        "last tenth",
        f"samples to {goal}",
        f"time to {goal}",
    ]
    head += ["wall time", "idle", "staleness", "largest"]
    return markdown_table(head, [_search_row(name, runs) for name, runs in searches.items()])


def _search_row(name: str, runs: Sequence[Run]) -> list[str]:
    stale = [each for run in runs for each in run["staleness"]]
    # The median of the seeds; one by which the goal is never reached needs infinitely many.
    ends = [find_goal(run, _GOAL_SECS) or (math.inf, math.inf) for run in runs]
    samples, secs = (statistics.median(column) for column in zip(*ends, strict=True))
    return [
        name,
        str(len(runs)),
        _range([len(run["trials"]) for run in runs], "", digits=0),
        str(sum(secs is None for run in runs for _, _, secs, *_ in run["trials"])),
        _range([1e3 * best_secs(run) for run in runs], " ms"),
        _range([1e3 * last_mean_secs(run) for run in runs], " ms"),
        f"{samples:.0f}",
        f"{secs / 60.0:.1f} min",
        _range([wall_secs(run) / 60.0 for run in runs], " min"),
        f"{statistics.fmean(idle_share(run) for run in runs):.0%}",
        f"{statistics.fmean(stale):.1f}" if stale else "",
        str(max(stale)) if stale else "",
    ]


def _range(values: Sequence[float], unit: str, *, digits: int = 1) -> str:
    """Shows the least and the greatest of some values."""
    ends = [f"{value:.{digits}f}" for value in (min(values), max(values))]
    return " to ".join(dict.fromkeys(ends)) + unit
