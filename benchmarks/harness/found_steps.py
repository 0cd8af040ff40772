"""The step that the runs of a placer found, one run per seed."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.harness.placement_runs import Run

__all__ = ["best_secs", "seconds", "step_text"]

_OUT_OF_MEMORY = "OOM"


def best_secs(runs: Sequence[Run]) -> float | None:
    """Finds the fastest step of all seeds; None if there is none."""
    best = [run.found.best_secs for run in runs if run.found is not None]
    return min((secs for secs in best if secs is not None), default=None)


def step_text(runs: Sequence[Run]) -> str:
    """Formats the fastest step, or says why there is none.

    Returns:
        As "0.895", or "OOM" if nothing that was tried fitted into memory, "no answer in time",
        "failed", or "none" without runs.
    """
    secs = best_secs(runs)
    if secs is not None:
        return seconds(secs)
    if not runs:
        return "none"
    found = [run.found for run in runs if run.found is not None]
    if not found:
        return "failed"
    return _OUT_OF_MEMORY if any(each.samples for each in found) else "no answer in time"


def seconds(secs: float) -> str:
    """Formats seconds with three digits: "0.0671", "12.3"."""
    return f"{secs:#.3g}".removesuffix(".")
