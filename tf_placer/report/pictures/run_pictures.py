"""Pictures of searches as files: placements, a step over time, and the search itself."""

from __future__ import annotations

import io
import itertools
import os
import pathlib
from collections.abc import Sequence
from typing import Any, Literal

from tf_placer.files import write_bytes
from tf_placer.report.colors import GRAY
from tf_placer.report.operation_kinds import operation_kinds
from tf_placer.report.page.run_view import RunView
from tf_placer.report.page.search_curves import (
    MEAN_SAMPLES,
    make_search_curves,
    name_samples,
)
from tf_placer.report.pictures.drawing import picture_text
from tf_placer.report.pictures.placement_picture import placement_bytes
from tf_placer.report.pictures.time_picture import draw_copies, draw_device_bars, draw_gantt
from tf_placer.simulation.simulator import StepTrace
from tf_placer.text.units import step_unit

__all__ = ["step_pictures", "write_placements", "write_searches", "write_steps"]

_COLORED_BY: tuple[Literal["kind", "layer"], ...] = ("kind", "layer")
_DASHES = ("-", "--", ":", "-.")
_NO_COSTS = "there is no picture of this run: the costs of its operations are not known"


def write_placements(view: RunView, path: str | os.PathLike[str]) -> None:
    """Writes a picture of the placements: the original above the placement found.

    Raises:
        OSError: the file cannot be written.
        ValueError: the costs of the run are unknown.
    """
    if view.problem is None or not view.steps:
        raise ValueError(_NO_COSTS)
    kinds = operation_kinds(view.problem)
    placements = [(step.label, step.trace.operation_devices) for step in view.steps]
    write_bytes(path, placement_bytes(view.problem, kinds, placements, _ending(path)))


def write_steps(view: RunView, path: str | os.PathLike[str]) -> None:
    """Writes a picture of the steps over time, the use of devices, and the transfers.

    Raises:
        OSError: the file cannot be written.
        ValueError: the costs of the run are unknown.
    """
    from matplotlib.figure import Figure

    if view.problem is None or not view.steps:
        raise ValueError(_NO_COSTS)
    kinds = operation_kinds(view.problem)
    steps = {step.label: step for step in view.steps}
    end_secs = max(step.trace.step_secs for step in view.steps)
    rows = 2 * len(steps)
    row_height = 1.0 + 0.28 * view.problem.num_devices
    figure = Figure(figsize=(12, row_height * rows + 3.5), layout="constrained")
    grid = figure.add_gridspec(rows + 1, 2, height_ratios=[row_height] * rows + [3.5])
    for row, (step, by) in enumerate(itertools.product(view.steps, _COLORED_BY)):
        axes = figure.add_subplot(grid[row, :])
        draw_gantt(axes, step.trace, kinds, by, end_secs)
        axes.set_title(f"{picture_text(step.label)}, by {by}", fontsize=9, loc="left")
    draw_device_bars(figure.add_subplot(grid[rows, 0]), steps, kinds, end_secs)
    draw_copies(figure.add_subplot(grid[rows, 1]), steps)
    write_bytes(path, _render(figure, _ending(path)))


def write_searches(
    views: Sequence[RunView], names: Sequence[str], path: str | os.PathLike[str]
) -> None:
    """Writes a picture of the best steps of searches over their samples, and of their means.

    Args:
        views: the searches.
        names: their names, for the legend.
        path: the picture (`.png`, `.svg` or `.pdf`).

    Raises:
        OSError: the file cannot be written.
        ValueError: no search has samples.
    """
    from matplotlib.figure import Figure
    from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator

    curves = make_search_curves(views, names)
    if not curves:
        raise ValueError("there is no picture of the search: nothing was kept of it")
    longest_secs = max(secs for curve in curves for _, y in (curve.best, curve.means) for secs in y)
    unit, per_sec = step_unit(longest_secs)
    figure = Figure(figsize=(9, 5), layout="constrained")
    axes = figure.add_subplot()
    axes.set_yscale("log")
    axes.set_xlabel(name_samples(views))
    axes.set_ylabel(f"step in {unit}, logarithmic")
    axes.grid(color=f"{GRAY}40", linewidth=0.5)
    for curve in curves:
        (numbers, best), (mean_numbers, means) = (
            (x, [per_sec * secs for secs in y]) for x, y in (curve.best, curve.means)
        )
        look: dict[str, Any] = {
            "color": curve.color,
            "linestyle": _DASHES[curve.number % len(_DASHES)],
        }
        axes.step(numbers, best, where="post", label=picture_text(curve.name), **look)
        axes.plot(mean_numbers, means, linewidth=0.8, alpha=0.6, **look)
    if any(curve.means[0] for curve in curves):
        axes.plot([], [], linewidth=0.8, color=GRAY, label=f"mean of {MEAN_SAMPLES}")
    low, high = axes.get_ylim()
    # The ticks of a logarithmic axis are too far apart within a factor of ten.
    locator = MaxNLocator(8) if high < 10 * low else LogLocator(subs=(1.0, 2.0, 5.0))
    axes.yaxis.set_major_locator(locator)
    axes.yaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_minor_locator(NullLocator())
    axes.legend(fontsize=8)
    write_bytes(path, _render(figure, _ending(path)))


def step_pictures(trace: StepTrace, end_secs: float) -> dict[str, bytes]:
    """Draws one step as PNG: its placement and its timeline.

    Args:
        trace: the step.
        end_secs: the end of the time axis, so that steps can be compared.
    """
    from matplotlib.figure import Figure

    kinds = operation_kinds(trace.problem)
    figure = Figure(figsize=(12, 2 + 0.56 * trace.problem.num_devices), layout="constrained")
    panels = figure.subplots(2, 1, sharex=True)
    for axes, by in zip(panels, _COLORED_BY, strict=True):
        draw_gantt(axes, trace, kinds, by, end_secs)
        axes.set_title(f"by {by}", fontsize=9, loc="left")
    return {
        "placement": placement_bytes(trace.problem, kinds, [("", trace.operation_devices)]),
        "step_in_time": _render(figure, "png"),
    }


def _ending(path: str | os.PathLike[str]) -> str:
    return pathlib.Path(path).suffix.lower().removeprefix(".")


def _render(figure: Any, ending: str) -> bytes:
    content = io.BytesIO()
    figure.savefig(content, format=ending, dpi=120, facecolor="white")
    return content.getvalue()
