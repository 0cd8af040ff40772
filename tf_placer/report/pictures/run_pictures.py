"""Pictures of a search as files: where its parts went, and its step in time."""

from __future__ import annotations

import io
import os
import pathlib

from tf_placer.files import write_bytes
from tf_placer.report.operation_kinds import operation_kinds
from tf_placer.report.page.run_view import RunView
from tf_placer.report.pictures.placement_picture import write_placement_picture
from tf_placer.report.pictures.time_picture import draw_copies, draw_device_bars, draw_gantt

__all__ = ["write_placements", "write_steps"]

_NO_COSTS = "there is no picture of this run: what its operations cost is not known"


def write_placements(view: RunView, path: str | os.PathLike[str]) -> None:
    """Writes a picture of the placements: the original above what was found.

    Raises:
        OSError: it cannot be written.
        ValueError: the run does not say what to draw.
    """
    if view.problem is None or not view.steps:
        raise ValueError(_NO_COSTS)
    write_placement_picture(
        path,
        view.problem,
        operation_kinds(view.problem),
        [(step.label, step.trace.operation_devices) for step in view.steps],
    )


def write_steps(view: RunView, path: str | os.PathLike[str]) -> None:
    """Writes a picture of the steps in time, of what devices do, and of what is copied.

    Raises:
        OSError: it cannot be written.
        ValueError: the run does not say what to draw.
    """
    from matplotlib.figure import Figure

    if view.problem is None or not view.steps:
        raise ValueError(_NO_COSTS)
    kinds = operation_kinds(view.problem)
    traces = {step.label: step.trace for step in view.steps}
    end_secs = max(trace.step_secs for trace in traces.values())
    rows = 2 * len(traces)
    row_height = 1.0 + 0.28 * view.problem.num_devices
    figure = Figure(figsize=(12, row_height * rows + 3.5), layout="constrained")
    grid = figure.add_gridspec(rows + 1, 2, height_ratios=[row_height] * rows + [3.5])
    row = 0
    for label, trace in traces.items():
        for by in ("kind", "layer"):
            axes = figure.add_subplot(grid[row, :])
            draw_gantt(axes, trace, kinds, by, end_secs)
            axes.set_title(f"{label}, by {by}", fontsize=9, loc="left")
            row += 1
    draw_device_bars(figure.add_subplot(grid[row, 0]), traces, kinds)
    draw_copies(figure.add_subplot(grid[row, 1]), traces)
    content = io.BytesIO()
    ending = pathlib.Path(path).suffix.lower().removeprefix(".")
    figure.savefig(content, format=ending, dpi=120, facecolor="white")
    write_bytes(path, content.getvalue())
