"""The picture of searches with waiting workers."""

from __future__ import annotations

import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from benchmarks.distributed.planning import Plan
from benchmarks.harness.pictures import save_picture

__all__ = ["draw"]

_WINDOW = 48


def draw(
    path: pathlib.Path,
    speeds: Mapping[int, float],
    runs: Sequence[Mapping[str, Any]],
    plans: Sequence[tuple[Plan, Plan]],
) -> None:
    """Draws trials per minute, how policies learn, and plans; without matplotlib, nothing.

    Args:
        path: the picture.
        speeds: trials per minute by number of workers.
        runs: as `run_case` gives them.
        plans: of searches of so many samples, and of so many updates.
    """
    try:
        import matplotlib
    except ImportError:
        print("no picture: pip install 'tf_placer[report]'")
        return
    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 3, figsize=(14, 4), constrained_layout=True)
    _draw_speeds(axes[0], speeds)
    _draw_learning(axes[1], [run for run in runs if not run["case"].startswith("random")])
    _draw_plans(axes[2], plans)
    save_picture(figure, path)
    pyplot.close(figure)


def _draw_speeds(axis: Any, speeds: Mapping[int, float]) -> None:
    counts = sorted(speeds)
    if counts:
        first = speeds[counts[0]] / counts[0]
        axis.plot(counts, [first * n for n in counts], "--", color="gray", label="linear")
        axis.plot(counts, [speeds[n] for n in counts], "o-", label="measured")
        axis.legend()
    axis.set(xlabel="workers", ylabel="trials per minute", ylim=(0, None))
    axis.set_title("Workers that wait for nothing but trials", fontsize=10)


def _draw_learning(axis: Any, runs: Sequence[Mapping[str, Any]]) -> None:
    names = sorted({run["case"] for run in runs})
    for number, name in enumerate(names):
        own = [run for run in runs if run["case"] == name]
        for first, run in enumerate(own):
            secs = np.array([secs for _, _, secs, *_ in run["trials"]], float)
            mean = np.convolve(secs, np.full(_WINDOW, 1.0 / _WINDOW), mode="valid")
            ends_secs = np.array([end for end, *_ in run["trials"]][_WINDOW - 1 :])
            label = None if first else name
            axis.plot(ends_secs / 60.0, 1e3 * mean, color=f"C{number}", lw=1, label=label)
    if names:
        axis.set_xscale("log")
        axis.legend(fontsize=8)
    axis.set(xlabel="wall time, minutes", ylabel=f"mean step of the latest {_WINDOW} samples, ms")
    axis.set_title("480 samples each, three seeds", fontsize=10)


def _draw_plans(axis: Any, plans: Sequence[tuple[Plan, Plan]]) -> None:
    if plans:
        workers = [few.workers for few, _ in plans]
        for number, label in enumerate(("2,400 samples", "5,000 updates")):
            hours = [both[number].wall_secs / 3600.0 for both in plans]
            axis.loglog(workers, hours, "o-", label=label)
        axis.axhspan(12, 27, color="gray", alpha=0.3, label="the papers' 12 to 27 hours")
        axis.legend(fontsize=8)
    axis.set(xlabel="workers", ylabel="wall time, hours")
    axis.set_title("On paper: trials of 30 s, controllers of 8", fontsize=10)
