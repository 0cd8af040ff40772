"""Interactive charts of the page, as Bokeh figures."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from bokeh.models import (
    BasicTickFormatter,
    ColumnDataSource,
    CustomJSHover,
    CustomJSTickFormatter,
    HoverTool,
    Label,
    NumeralTickFormatter,
    Range1d,
    Span,
)
from bokeh.plotting import figure

from graph_passes.util.messages import plain_text
from tf_placer.report.colors import (
    FAILURE_COLOR,
    GRAY,
    TRANSPARENT,
    device_colors,
)
from tf_placer.report.device_labels import device_labels
from tf_placer.report.memory_curve import MemoryPoint
from tf_placer.report.page.run_view import Point, RunView, StepView
from tf_placer.report.page.search_curves import make_search_curves, name_samples
from tf_placer.report.step_boxes import (
    StepBoxes,
    step_boxes,
    to_ms,
    transfer_boxes,
)
from tf_placer.simulation.memory_profile import holdings, memory_levels
from tf_placer.text.units import format_bytes, format_step, size_unit, step_unit

__all__ = [
    "TimeAxis",
    "choose_step_unit",
    "draw_memory_chart",
    "draw_memory_curve",
    "draw_search_chart",
    "draw_searches_chart",
    "draw_timeline",
    "find_senders",
    "make_time_axis",
]

_TOOLS = "xpan,xwheel_zoom,box_zoom,reset"
# A device whose memory is filled by fewer percent is far from its limit.
_FAR_FROM_FULL = 50.0
_LEAST_LEFT_PIXELS, _PIXELS_PER_CHARACTER = 60, 6.5
# A chart has no more pixels to show further levels.
_MAX_LEVELS = 1500
_MARKERS = ("circle", "square", "triangle", "diamond", "inverted_triangle", "hex", "star", "plus")
_LEGEND_COLUMNS = 3
# The runs of one placer, such as its seeds, share a color if there are several placers.
_DASHES = ("solid", "dashed", "dotted", "dotdash", "dashdot")
# The mean of so many samples shows whether a placer learns, which the best so far does not.
_MEAN_SAMPLES = 50
# The script of the page gives these renderers the color of text.
_INK = "ink"


@dataclasses.dataclass(frozen=True)
class TimeAxis:
    """The time axis that the charts of all steps of a page share.

    Attributes:
        x_range: the range in milliseconds, by which all charts zoom and move together.
        unit: the unit of the labels, that of the longest step in the tables of the page.
        per_ms: how many of the unit a millisecond has.
        memory_percents: the range of the memory in use on a device.
        left_pixels: the width of the names of rows, so that the charts begin at the same pixel.
    """

    x_range: Any
    unit: str
    per_ms: float
    memory_percents: Any
    left_pixels: int


def make_time_axis(runs: Sequence[Sequence[StepView]]) -> TimeAxis:
    """Makes the time axis for the steps of some runs, as long as the longest step."""
    steps = [step for run in runs for step in run]
    end_secs = max((step.trace.step_secs for step in steps), default=0.0) or 1.0
    names = [name for run in runs if run for name in _row_names(run[0], find_senders(run))]
    widest = _PIXELS_PER_CHARACTER * max(map(len, names), default=0) + 20
    x_range = Range1d(0, end_secs * 1e3, bounds=(0, end_secs * 1e3))
    most_full = max(
        (
            100.0 * device.peak_bytes / max(device.memory_bytes, 1)
            for step in steps
            for device in step.report.devices
        ),
        default=0.0,
    )
    # The limit is in sight unless it is far away.
    most_percents = max(105.0, 1.05 * most_full) if most_full > _FAR_FROM_FULL else 1.1 * most_full
    percents = Range1d(0, max(most_percents, 1.0))
    unit, per_sec = step_unit(end_secs)
    left_pixels = max(_LEAST_LEFT_PIXELS, int(widest))
    return TimeAxis(x_range, unit, per_sec / 1e3, percents, left_pixels)


def find_senders(steps: Sequence[StepView]) -> np.ndarray:
    """Finds the devices that send anything in any of the steps, int [num_senders]."""
    return np.unique(np.concatenate([step.trace.transfers.sources for step in steps]))


def _row_names(view: StepView, senders: np.ndarray) -> list[str]:
    """Names the rows of a timeline: the devices, and all that some of them send."""
    devices = view.trace.problem.devices
    labels = _device_labels([device.name for device in devices])
    names = [labels[device.name] for device in devices]
    return [*names, *(f"{names[sender]} sends" for sender in senders.tolist())]


def _figure(height: int, left_pixels: int = _LEAST_LEFT_PIXELS, **settings: Any) -> Any:
    chart = figure(
        height=height,
        sizing_mode="stretch_width",
        toolbar_location="above",
        output_backend="canvas",
        **settings,
    )
    chart.toolbar.logo = None
    chart.background_fill_alpha = 0
    chart.border_fill_alpha = 0
    chart.outline_line_alpha = 0.3
    # Align the edges of charts above each other.
    chart.min_border_left = left_pixels
    chart.min_border_right = 16
    chart.grid.grid_line_alpha = 0.25
    return chart


def _make_hover(call: str) -> CustomJSHover:
    """Formats a value of a tooltip as the tables do, by a function of the script of the page."""
    return CustomJSHover(code=f"return tfPlacer.{call}")


def _scale_ticks(factor: float) -> CustomJSTickFormatter:
    """Labels ticks by a multiple of their values, without the digits of rounding errors."""
    return CustomJSTickFormatter(code=f"return String(Number((tick * {factor!r}).toPrecision(9)))")


def _chart_text(text: str) -> str:
    """Escapes a text for Bokeh, which takes text between `$$` for a formula."""
    return plain_text(text).replace("$$", "$\u200b$")


def _device_labels(names: Sequence[str]) -> dict[str, str]:
    return {name: _chart_text(label) for name, label in device_labels(names).items()}


def draw_timeline(
    view: StepView, axis: TimeAxis, senders: np.ndarray, run: int = 0, step: int = 0
) -> Any:
    """Draws the timeline of a step: a row for each device, and for all that it sends.

    The script of the page colors the operations, so that colors are in the page only once.

    Args:
        view: the step.
        axis: the time axis of the page.
        senders: int [num_senders], the devices that have a row for all that they send.
        run: the index of the run on the page.
        step: the index of the step in its run.
    """
    trace = view.trace
    devices = trace.problem.devices
    rows = _row_names(view, senders)
    chart = _figure(
        70 + 26 * len(rows),
        axis.left_pixels,
        x_range=axis.x_range,
        y_range=(len(rows), 0),
        tools=_TOOLS,
        active_drag="box_zoom",
    )
    chart.yaxis.ticker = [row + 0.5 for row in range(len(rows))]
    chart.yaxis.major_label_overrides = {row + 0.5: name for row, name in enumerate(rows)}
    chart.xaxis.axis_label = axis.unit
    chart.xaxis.formatter = _scale_ticks(axis.per_ms)
    chart.ygrid.grid_line_alpha = 0
    boxes = step_boxes(trace)
    columns: dict[str, Any] = {"number": boxes.operations.astype(np.int32)}
    style: dict[str, Any] = {"fill_color": GRAY, "hover_line_color": "black", "name": "operations"}
    style["tags"] = [run, step]
    _add_boxes(chart, boxes, columns, "@number{custom}", run, **style)
    transfers = trace.transfers
    if transfers.producers.size:
        row_of = np.searchsorted(senders, np.arange(len(devices))) + len(devices)
        sent = transfer_boxes(trace, row_of)
        numbers = sent.operations
        labels = _device_labels([device.name for device in devices])
        columns = {
            "number": transfers.producers[numbers].astype(np.int32),
            "bytes": transfers.bytes[numbers].astype(np.float32),
            "to": [labels[devices[d].name] for d in transfers.destinations[numbers].tolist()],
        }
        hover = "@bytes{custom} to @to, of @number{custom}"
        _add_boxes(chart, sent, columns, hover, run, fill_color=GRAY)
    return chart


def _add_boxes(
    chart: Any, boxes: StepBoxes, columns: Mapping[str, Any], hover: str, run: int, **style: Any
) -> None:
    """Adds boxes with a tooltip about their operation."""
    edges = {edge: edge for edge in ("left", "right", "top", "bottom")}
    source = ColumnDataSource({edge: getattr(boxes, edge) for edge in edges} | dict(columns))
    quads = chart.quad(**edges, line_color=None, source=source, **style)
    # The script of the page turns the number of an operation into text, so that each name is in the
    # page only once.
    operation = _make_hover(f"operation({run}, value)")
    chart.add_tools(
        HoverTool(
            visible=False,
            renderers=[quads],
            tooltips=f"<div>{hover}</div>",
            formatters={"@number": operation, "@bytes": _make_hover("size(value)")},
            point_policy="follow_mouse",
        )
    )


def draw_memory_chart(view: StepView, axis: TimeAxis) -> Any:
    """Draws the memory in use on each device over the step, relative to its limit."""
    trace = view.trace
    held = holdings(trace)
    labels = _device_labels([device.name for device in trace.problem.devices])
    colors = [
        color if color != TRANSPARENT else GRAY for color in device_colors(trace.problem.devices)
    ]
    ranges = {"x_range": axis.x_range, "y_range": axis.memory_percents}
    height = 220 + 20 * -(-len(colors) // _LEGEND_COLUMNS)
    chart = _figure(height, axis.left_pixels, tools=_TOOLS, **ranges)
    chart.xaxis.axis_label = axis.unit
    chart.xaxis.formatter = _scale_ticks(axis.per_ms)
    chart.yaxis.axis_label = "% of its memory"
    for number, device in enumerate(trace.problem.devices):
        levels = memory_levels(trace, number, held.on(number))
        secs, values = _thin_levels(levels.secs, levels.levels)
        share = 100.0 * values / max(device.memory_bytes, 1)
        source = ColumnDataSource(
            {
                "ms": np.append(to_ms(secs), np.float32(trace.step_secs * 1e3)),
                "share": np.append(share, share[-1]).astype(np.float32),
                "bytes": np.append(values, values[-1]).astype(np.float32),
                # In a tooltip itself the label would be read as a template.
                "device": [labels[device.name]] * (len(values) + 1),
            }
        )
        line = chart.step(
            "ms", "share", mode="after", color=colors[number], line_width=2, source=source,
            legend_label=labels[device.name],
        )  # fmt: skip
        _add_hover(
            chart,
            line,
            {"": "@device", "at": "@ms{custom}", "holds": "@bytes{custom}, @share{0.0} %"},
        )
    limit = {"location": 100, "line_color": GRAY, "line_dash": "dashed", "line_width": 2}
    chart.add_layout(Span(dimension="width", **limit))
    label = {"text_font_size": "11px", "text_color": GRAY}
    chart.add_layout(Label(x=0, y=100, text="its limit", y_offset=-16, **label))
    _legend(chart)
    return chart


def _add_hover(chart: Any, renderer: Any, tooltips: Mapping[str, str]) -> None:
    """Adds a tooltip to a renderer."""
    chart.add_tools(
        HoverTool(
            visible=False,
            renderers=[renderer],
            tooltips=list(tooltips.items()),
            formatters={
                "@bytes": _make_hover("size(value)"),
                "@ms": _make_hover("time(1e3 * value)"),
            },
        )
    )


def _thin_levels(secs: np.ndarray, levels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Reduces the number of levels for a chart: of neighbors the highest stays."""
    if len(secs) <= _MAX_LEVELS:
        return secs, levels
    starts = np.linspace(0, len(secs), _MAX_LEVELS + 1).astype(int)[:-1]
    return secs[starts], np.maximum.reduceat(levels, starts)


def draw_search_chart(
    view: RunView,
    *,
    by_time: bool,
    beside: Any | None = None,
    unit_of_steps: tuple[str, float] | None = None,
) -> Any | None:
    """Draws all trials and the best so far, over time or samples; None if there are none.

    Args:
        view: the search.
        by_time: whether the horizontal axis is the search time.
        beside: the chart of another run, whose axes this one shares.
        unit_of_steps: the unit of steps, and how many of it a second has; None for that of the
            longest step of this search.
    """
    if not view.points and not view.best:
        return None
    noun = "trial" if view.is_measured else "sample"
    ranges = {} if beside is None else {"x_range": beside.x_range, "y_range": beside.y_range}
    chart = _figure(300, tools="pan,wheel_zoom,box_zoom,reset", y_axis_type="log", **ranges)
    chart.xaxis.axis_label = "search time in s" if by_time else f"{noun}s"
    # By default, the axis writes 20,000 as 2.000e+4.
    chart.xaxis.formatter = (
        BasicTickFormatter(use_scientific=False)
        if by_time
        else NumeralTickFormatter(format="0,0[.]0")
    )
    unit, per_sec = unit_of_steps or step_unit(_find_longest(view.points, view.best))
    chart.yaxis.axis_label = f"{unit} a step"
    ran = [point for point in view.points if point.step_secs is not None]
    # Number the placers of all trials, so that each has one marker in both charts.
    numbers = {placer: n for n, placer in enumerate(dict.fromkeys(p.placer for p in view.points))}
    for placer, points in _by_placer(ran).items():
        dots = chart.scatter(
            "x", "y", size=7 if len(ran) < 500 else 3, alpha=0.8, color=GRAY,
            marker=_MARKERS[numbers[placer] % len(_MARKERS)],
            source=ColumnDataSource(_points(points, by_time, per_sec)), legend_label=placer,
        )  # fmt: skip
        tooltips = {noun: "@number", "": "@placer", "step": "@step", "ended": "@time"}
        _add_hover(chart, dots, tooltips)
    if view.best:
        steps = _points(view.best, by_time, per_sec)
        last = max(
            (p.elapsed_secs if by_time else p.number for p in (*view.points, *view.best)), default=0
        )
        chart.step(
            [*steps["x"], last], [*steps["y"], steps["y"][-1]], mode="after", line_width=2,
            color=GRAY, name=_INK, legend_label="best so far",
        )  # fmt: skip
    failed = [point for point in view.points if point.step_secs is None]
    if failed:
        top = per_sec * _find_longest(ran, view.best) * 1.15
        data = _points(failed, by_time, per_sec)
        data["y"] = [top] * len(failed)
        crosses = chart.scatter(
            "x", "y", marker="x", size=9, color=FAILURE_COLOR, line_width=2,
            source=ColumnDataSource(data), legend_label="failed",
        )  # fmt: skip
        _add_hover(chart, crosses, {noun: "@number", "": "@placer", "failed": "@failure"})
    _legend(chart)
    return chart


def draw_searches_chart(
    views: Sequence[RunView], names: Sequence[str], unit_of_steps: tuple[str, float]
) -> Any | None:
    """Draws the best so far of several searches over their samples, and how the samples change.

    Args:
        views: the searches.
        names: their names, for the legend.
        unit_of_steps: the unit of steps, and how many of it a second has.

    Returns:
        The chart; None if fewer than two searches have samples.
    """
    curves = make_search_curves(views, names)
    if len(curves) < 2:
        return None
    chart = _figure(420, tools="pan,wheel_zoom,box_zoom,reset", y_axis_type="log")
    unit, per_sec = unit_of_steps
    chart.xaxis.axis_label = name_samples(views)
    chart.xaxis.formatter = NumeralTickFormatter(format="0,0[.]0")
    chart.yaxis.axis_label = f"{unit} a step"
    for curve in curves:
        look = {
            "color": curve.color,
            "line_dash": _DASHES[curve.number % len(_DASHES)],
            "legend_label": _chart_text(curve.name),
        }
        (numbers, best), (mean_numbers, means) = (
            (x, [per_sec * secs for secs in y]) for x, y in (curve.best, curve.means)
        )
        chart.step(numbers, best, mode="after", line_width=2, **look)
        if means:
            chart.line(mean_numbers, means, line_width=1, line_alpha=0.6, **look)
    _legend(chart)
    return chart


def draw_memory_curve(points: Sequence[MemoryPoint]) -> Any | None:
    """Draws the steps within less memory; None if there is one only."""
    if len(points) < 2:
        return None
    chart = _figure(240, tools=_TOOLS)
    size, unit_bytes = size_unit(max(point.peak_bytes for point in points))
    unit, per_sec = step_unit(max(point.step_secs for point in points))
    chart.xaxis.axis_label = f"{size} on the fullest device"
    chart.yaxis.axis_label = f"{unit} a step"
    data = {
        "x": [point.peak_bytes / unit_bytes for point in points],
        "y": [per_sec * point.step_secs for point in points],
        "size": [format_bytes(point.peak_bytes) for point in points],
        "step": [format_step(point.step_secs) for point in points],
    }
    chart.line("x", "y", source=ColumnDataSource(data), line_width=2, color=GRAY, name=_INK)
    dots = chart.scatter("x", "y", source=ColumnDataSource(data), size=7, color=GRAY)
    _add_hover(chart, dots, {"memory": "@size", "step": "@step"})
    return chart


def _by_placer(points: Sequence[Point]) -> Mapping[str, list[Point]]:
    ordered = sorted(points, key=lambda point: point.placer)
    return {
        placer: list(group)
        for placer, group in itertools.groupby(ordered, key=lambda point: point.placer)
    }


def choose_step_unit(views: Sequence[RunView]) -> tuple[str, float]:
    """Chooses the unit of the steps in the charts of several searches, which share an axis."""
    return step_unit(max(_find_longest(view.points, view.best) for view in views))


def _find_longest(points: Sequence[Point], best: Sequence[Point]) -> float:
    """Finds the longest step of a search, in seconds; 1 without any."""
    return max((point.step_secs or 0.0 for point in (*points, *best)), default=1.0) or 1.0


def _points(points: Sequence[Point], by_time: bool, per_sec: float) -> dict[str, list[Any]]:
    return {
        "x": [point.elapsed_secs if by_time else point.number for point in points],
        "y": [per_sec * (point.step_secs or 0.0) for point in points],
        "step": [format_step(point.step_secs or 0.0) for point in points],
        "number": [point.number for point in points],
        "placer": [point.placer for point in points],
        "time": [point.time or f"after {point.elapsed_secs:.1f} s" for point in points],
        "failure": [point.failure for point in points],
    }


def _legend(chart: Any) -> None:
    """Puts the legend above the chart, where it covers nothing."""
    if not chart.legend:
        return
    [legend] = chart.legend
    legend.orientation = "horizontal"
    legend.background_fill_alpha = 0
    legend.border_line_alpha = 0
    legend.label_text_font_size = "11px"
    legend.padding = legend.margin = 2
    legend.click_policy = "hide"
    legend.ncols = _LEGEND_COLUMNS
    chart.add_layout(legend, "above")
