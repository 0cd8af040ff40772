"""Pictures of runs: how fast a step was found when, and what placers that learn sampled."""

from __future__ import annotations

import pathlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from benchmarks.harness.pictures import save_picture
from benchmarks.harness.placement_runs import Run

__all__ = ["plot_learning_curves", "plot_search_curves"]

_LINES = ("-", "--", ":", "-.")
# Numbers of samples that differ by more than this factor are drawn on a logarithmic axis.
_WIDE = 10
# What a line of a legend takes.
_LEGEND_LINE_INCHES = 0.18


def plot_search_curves(path: pathlib.Path, title: str, runs: Sequence[Run]) -> None:
    """Draws the fastest step so far against samples and against time.

    A line ends where its search ended; the seeds of a placer look the same, the best has a name.
    Without matplotlib, nothing is drawn.

    Args:
        path: where to.
        title: of the picture.
        runs: of one problem, under one budget; those that found nothing are not in the picture.
    """
    pyplot = _pyplot()
    found = [run for run in runs if run.found is not None and run.found.curve]
    if pyplot is None or not found:
        return
    figure, panels = pyplot.subplots(1, 2, figsize=(15, 6), constrained_layout=True, sharey=True)
    # The fastest first, so that the legend is a ranking.
    found.sort(key=lambda run: run.found.curve[-1][-1] if run.found else 0.0)
    numbers: dict[str, int] = {}
    for run in found:
        assert run.found is not None
        name = run.key.label
        is_best = name not in numbers
        number = numbers.setdefault(name, len(numbers))
        samples, secs, steps = (list(column) for column in zip(*run.found.curve, strict=True))
        style = {"color": f"C{number % 10}", "linestyle": _LINES[number // 10 % len(_LINES)]}
        ends = (run.found.samples, run.found.search_secs)
        for axes, values, end in zip(panels, (samples, secs), ends, strict=True):
            axes.step(
                [*values, max(end, values[-1])],
                [*steps, steps[-1]],
                where="post",
                marker="o" if len(set(values)) == 1 else None,
                markersize=3,
                label=f"{name}: {steps[-1]:#.3g} s" if is_best else None,
                **style,
            )
    bounds = [run.lower_bound_secs for run in found if run.lower_bound_secs]
    clock = "on the clock" if found[0].budget.is_wall else "of processor time"
    for axes, label in zip(panels, ("samples", f"seconds {clock}"), strict=True):
        if bounds:
            axes.axhline(min(bounds), color="black", linestyle="dotted", label="lower bound")
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_xlabel(label)
    panels[0].set_ylabel("s per step, fastest so far")
    panels[1].legend(fontsize="x-small", loc="upper left", bbox_to_anchor=(1.0, 1.0))
    figure.suptitle(title)
    save_picture(figure, path)
    pyplot.close(figure)


def plot_learning_curves(path: pathlib.Path, title: str, runs: Sequence[Sequence[Run]]) -> None:
    """Draws the mean step of what was sampled, a panel for each problem.

    Args:
        path: where to.
        title: of the picture.
        runs: for each problem, the runs whose curves to draw. Without any, nothing is drawn.
    """
    pyplot = _pyplot()
    runs = [of_problem for of_problem in runs if any(run.found for run in of_problem)]
    if pyplot is None or not runs:
        return
    columns = min(4, len(runs))
    rows = -(-len(runs) // columns)
    labels = sorted({run.key.label for of_problem in runs for run in of_problem})
    height = max(3.6 * rows, _LEGEND_LINE_INCHES * (len(labels) + 1))
    figure, panels = pyplot.subplots(
        rows, columns, figsize=(4.5 * columns, height), constrained_layout=True, squeeze=False
    )
    for axes in panels.flat[len(runs) :]:
        axes.set_visible(False)
    lines: dict[str, Any] = {}
    for axes, of_problem in zip(panels.flat, runs, strict=False):
        for run in of_problem:
            if run.found is None:
                continue
            means = [np.nan if secs is None else secs for secs in run.found.mean_secs]
            samples = np.minimum(run.found.window * np.arange(1, len(means) + 1), run.found.samples)
            number = labels.index(run.key.label)
            lines[run.key.label], *_ = axes.plot(
                samples,
                means,
                marker=".",
                color=f"C{number % 10}",
                linestyle=_LINES[number // 10 % len(_LINES)],
            )
        ends = [run.found.samples for run in of_problem if run.found is not None]
        # In the same time, some placers sample a thousand times as much as others.
        if max(ends) > _WIDE * max(1, min(ends)):
            axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_xlabel("samples")
        axes.set_ylabel("s per step, mean")
        key = of_problem[0].key
        axes.set_title(f"{key.model} on {key.machine}", fontsize="medium")
    figure.legend(
        [lines[label] for label in labels if label in lines],
        [label for label in labels if label in lines],
        fontsize="x-small",
        loc="outside right upper",
        handlelength=4,
    )
    # On the left, where no legend is.
    figure.suptitle(title, x=0.01, horizontalalignment="left", fontsize="medium")
    save_picture(figure, path)
    pyplot.close(figure)


def _pyplot() -> Any:
    try:
        import matplotlib
    except ImportError:
        print("no picture: pip install 'tf_placer[report]'")
        return None
    matplotlib.use("Agg")
    from matplotlib import pyplot

    return pyplot
