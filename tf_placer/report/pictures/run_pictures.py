"""Pictures of a search as files: its placements, and its step over time."""

from __future__ import annotations

import io
import itertools
import os
import pathlib
from typing import Any, Literal

from tf_placer.files import write_bytes
from tf_placer.report.operation_kinds import operation_kinds
from tf_placer.report.page.run_view import RunView
from tf_placer.report.pictures.drawing import picture_text
from tf_placer.report.pictures.placement_picture import placement_bytes
from tf_placer.report.pictures.time_picture import draw_copies, draw_device_bars, draw_gantt
from tf_placer.simulation.simulator import StepTrace

__all__ = ["step_pictures", "write_placements", "write_steps"]

_COLORED_BY: tuple[Literal["kind", "layer"], ...] = ("kind", "layer")
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
