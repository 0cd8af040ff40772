"""Learning curves of kept runs: the mean step of what was sampled, against samples and time."""

from __future__ import annotations

import pathlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from benchmarks.harness.kept_runs import KeptRuns
from benchmarks.harness.placement_runs import Run

__all__ = ["curve_points", "draw_curves", "read_curves"]


def read_curves(paths: Sequence[pathlib.Path]) -> list[Run]:
    """Reads the runs that learn, with seed 0; of equal ones, that with the most points.

    Args:
        paths: files of kept runs.

    Raises:
        OSError: a file cannot be read.
        ValueError: a line is no run.
    """
    best: dict[tuple[str, str, str], tuple[int, Run]] = {}
    for path in paths:
        for run in KeptRuns(path).runs:
            if run.found is None or not run.found.mean_secs or run.key.seed or run.key.small:
                continue
            key, count = (run.key.model, run.key.machine, run.key.label), len(run.found.mean_secs)
            if key not in best or count > best[key][0]:
                best[key] = count, run
    return [run for _, run in best.values()]


def curve_points(run: Run) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Computes the points of a learning curve.

    Returns:
        Of each window of samples: how many were sampled until its end, the seconds of processor
        time until then, and the mean step of its samples, NaN where none fitted.
    """
    found = run.found
    assert found is not None
    windows = np.arange(1, len(found.mean_secs) + 1)
    samples = np.minimum(found.window * windows, found.samples)
    # A placer takes about as long for every sample.
    secs = samples * (found.search_secs / max(found.samples, 1))
    return samples, secs, np.array(found.mean_secs, np.float64)


def draw_curves(panels: Sequence[Any], runs: Sequence[Run], colors: Sequence[str]) -> None:
    """Draws curves against samples, and against time.

    Args:
        panels: two axes of matplotlib.
        runs: a line each: points are means of what was sampled, thin lines the best so far.
        colors: of the curves.
    """
    for column, (axes, label) in enumerate(
        zip(panels, ("samples", "s of processor time"), strict=True)
    ):
        for run, color in zip(runs, colors, strict=True):
            *points, means = curve_points(run)
            x = points[column]
            axes.plot(x, means, marker=".", color=color, label=run.key.label)
            if run.found is not None and run.found.curve:
                *reached, steps = zip(*run.found.curve, strict=True)
                at = reached[column]
                axes.step(
                    [*at, max(x[-1], at[-1])], [*steps, steps[-1]], where="post", color=color,
                    linewidth=0.8, linestyle=":",
                )  # fmt: skip
        axes.set_yscale("log")
        # Some placers sample a hundred times as fast as others.
        axes.set_xscale("log")
        axes.set_xlabel(label)
    panels[0].set_ylabel("s a step")
    panels[0].legend(fontsize=7)
