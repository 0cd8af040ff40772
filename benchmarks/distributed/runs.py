"""Statistics of searches with waiting workers."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from typing import Any

__all__ = [
    "best_secs",
    "find_goal",
    "idle_share",
    "last_mean_secs",
    "trial_secs",
    "trials_per_minute",
    "wall_secs",
]


def wall_secs(run: Mapping[str, Any]) -> float:
    """Finds when the last trial ended."""
    return float(max(end for end, *_ in run["trials"]))


def trial_secs(run: Mapping[str, Any]) -> list[float]:
    """Lists how long each placement was measured, without those that had been before."""
    return [took for _, took, *_ in run["trials"] if took]


def trials_per_minute(run: Mapping[str, Any]) -> float:
    """Computes how many placements were measured in a minute."""
    return 60.0 * len(trial_secs(run)) / wall_secs(run)


def best_secs(run: Mapping[str, Any]) -> float:
    """Finds the fastest step."""
    return float(min(secs for _, _, secs, *_ in run["trials"] if secs is not None))


def last_mean_secs(run: Mapping[str, Any]) -> float:
    """Computes the mean step of the last tenth of the placements."""
    last = run["trials"][-(len(run["trials"]) // 10) :]
    return statistics.fmean(secs for _, _, secs, *_ in last if secs is not None)


def find_goal(run: Mapping[str, Any], goal_secs: float) -> tuple[int, float] | None:
    """Finds after how many samples, and after how long, a placement was so fast.

    Returns:
        Samples and seconds; None if none was.
    """
    for number, (end_secs, _, secs, *_) in enumerate(run["trials"], 1):
        if secs is not None and secs <= goal_secs:
            return number, float(end_secs)
    return None


def idle_share(run: Mapping[str, Any]) -> float:
    """Computes in what share of their time workers waited.

    Counted from when every worker has had two trials, because what learns is slow at first, to the
    start of the last one, because none follows.
    """
    spans = [(end - took, end) for end, took, *_ in run["trials"] if took]
    ends = sorted(end for _, end in spans)
    first, last = ends[2 * run["workers"] - 1], max(start for start, _ in spans)
    busy = sum(max(0.0, min(end, last) - max(start, first)) for start, end in spans)
    return 1.0 - busy / run["workers"] / (last - first)
