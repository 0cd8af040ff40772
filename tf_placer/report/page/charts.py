"""The charts of the page about a search, as figures of Bokeh."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from bokeh.models import (
    ColumnDataSource,
    CustomJSHover,
    FactorRange,
    HoverTool,
    Label,
    Span,
    Whisker,
)
from bokeh.plotting import figure

from graph_passes.messages import plain_text
from tf_placer.report.colours import DEVICE_COLOURS, KIND_COLOURS, device_colours, layer_colours
from tf_placer.report.device_labels import device_labels
from tf_placer.report.operation_kinds import OperationKinds
from tf_placer.report.page.run_view import Compared, Point, RunView, StepView
from tf_placer.report.step_shares import copy_secs_by_kind, device_shares
from tf_placer.simulation.memory_profile import holdings, memory_levels
from tf_placer.simulation.simulator import StepTrace

__all__ = [
    "comparison_chart",
    "copy_chart",
    "device_chart",
    "memory_chart",
    "search_chart",
    "time_line",
]

_TOOLS = "xpan,xwheel_zoom,box_zoom,reset"
_GREY = "#8a8a8a"
_LEFT = 104
_FOUND, _ORIGINAL = DEVICE_COLOURS[0], _GREY
# More levels than this do not show.
_MOST_LEVELS = 1500
_MIB = 2.0**20


def _figure(height: int, **settings: Any) -> Any:
    chart = figure(
        height=height,
        sizing_mode="stretch_width",
        toolbar_location="above" if settings.get("tools") else None,
        output_backend="canvas",
        **settings,
    )
    chart.toolbar.logo = None
    chart.background_fill_alpha = 0
    chart.border_fill_alpha = 0
    chart.outline_line_alpha = 0.3
    # Charts above each other begin at the same place.
    chart.min_border_left = _LEFT
    chart.grid.grid_line_alpha = 0.25
    return chart


def _chart_text(text: str) -> str:
    """Makes a text that Bokeh shows as it is: it takes what is between `$$` for a formula."""
    return plain_text(text).replace("$$", "$\u200b$")


def _device_labels(names: Sequence[str]) -> dict[str, str]:
    return {name: _chart_text(label) for name, label in device_labels(names).items()}


def comparison_chart(compared: Sequence[Compared]) -> Any | None:
    """Draws how many times as fast each placement is, with its interval; None without any."""
    rows = [each for each in compared if each.speedup is not None]
    if not rows:
        return None
    labels = [_chart_text(each.label) for each in rows][::-1]
    ends = [1.0]
    for each in rows:
        ends += each.interval or (each.speedup or 1.0,)
    margin = 0.05 * (max(ends) - min(ends)) or 0.1
    chart = _figure(
        80 + 26 * len(rows),
        x_range=(min(ends) - margin, max(ends) + margin),
        y_range=FactorRange(*labels),
        tools="",
    )
    chart.xaxis.axis_label = "times as fast as the original"
    for is_found in (False, True):
        shown = [each for each in rows if each.is_found == is_found]
        source = ColumnDataSource(
            {
                "label": [_chart_text(each.label) for each in shown],
                "speedup": [each.speedup for each in shown],
                "low": [(each.interval or (each.speedup,) * 2)[0] for each in shown],
                "high": [(each.interval or (each.speedup,) * 2)[1] for each in shown],
                "basis": [each.basis for each in shown],
            }
        )
        colour = _FOUND if is_found else _ORIGINAL
        dots = chart.scatter("speedup", "label", size=11, color=colour, source=source)
        chart.add_layout(
            Whisker(
                base="label",
                lower="low",
                upper="high",
                source=source,
                dimension="width",
                line_color=colour,
                line_width=2,
            )
        )
        chart.add_tools(
            HoverTool(
                visible=False,
                renderers=[dots],
                tooltips=[("", "@label"), ("times as fast", "@speedup{0.000}"), ("", "@basis")],
            )
        )
    chart.add_layout(Span(location=1.0, dimension="height", line_color=_GREY, line_dash="dashed"))
    return chart


def time_line(
    view: StepView, kinds: OperationKinds, end_secs: float, x_range: Any | None = None
) -> Any:
    """Draws a step: a row for each device and for each link that carries something.

    Args:
        view: the step.
        kinds: of its operations.
        end_secs: where the axis ends.
        x_range: of a chart that moves with this one.
    """
    trace = view.trace
    labels = _device_labels([device.name for device in trace.problem.devices])
    devices = [labels[device.name] for device in trace.problem.devices]
    transfers = trace.transfers
    pairs = sorted(
        set(zip(transfers.sources.tolist(), transfers.destinations.tolist(), strict=True))
    )
    rows = [*devices, *(f"{devices[a]} → {devices[b]}" for a, b in pairs)]
    chart = _figure(
        70 + 30 * len(devices) + 18 * len(pairs),
        x_range=(0, end_secs * 1e3) if x_range is None else x_range,
        y_range=(len(rows), 0),
        tools=_TOOLS,
        active_drag="box_zoom",
    )
    chart.yaxis.ticker = [row + 0.5 for row in range(len(rows))]
    chart.yaxis.major_label_overrides = {row + 0.5: name for row, name in enumerate(rows)}
    chart.xaxis.axis_label = "ms"
    chart.ygrid.grid_line_alpha = 0
    source = _operations_source(trace, kinds)
    quads = chart.quad(
        left="left",
        right="right",
        top="top",
        bottom="bottom",
        fill_color="kind",
        line_color=None,
        hover_line_color="black",
        source=source,
        name="operations",
    )
    chart.add_tools(
        HoverTool(
            visible=False,
            renderers=[quads],
            tooltips="<div>@number{custom}</div>",
            formatters={"@number": _operation_text()},
            point_policy="follow_mouse",
        )
    )
    if pairs:
        row_of = {pair: len(devices) + row for row, pair in enumerate(pairs)}
        at = np.array(
            [
                row_of[pair]
                for pair in zip(
                    transfers.sources.tolist(), transfers.destinations.tolist(), strict=True
                )
            ],
            np.float32,
        )
        sent = chart.quad(
            left="left",
            right="right",
            top="top",
            bottom="bottom",
            fill_color=_GREY,
            line_color=None,
            source=ColumnDataSource(
                {
                    "left": _ms(transfers.start_secs),
                    "right": _ms(transfers.end_secs),
                    "top": at + np.float32(0.2),
                    "bottom": at + np.float32(0.8),
                    "number": transfers.producers.astype(np.int32),
                    "mib": (transfers.bytes / _MIB).astype(np.float32),
                }
            ),
        )
        chart.add_tools(
            HoverTool(
                visible=False,
                renderers=[sent],
                tooltips="<div>@mib{0.000} MiB of @number{custom}</div>",
                formatters={"@number": _operation_text()},
            )
        )
    return chart


def _operation_text() -> CustomJSHover:
    """Makes what turns the number of an operation into text: its name is in the page once."""
    return CustomJSHover(code="return tfPlacer.operation(value)")


def _operations_source(trace: StepTrace, kinds: OperationKinds) -> ColumnDataSource:
    """Makes the rectangles of operations; what takes no time has none."""
    shown = np.flatnonzero(trace.end_secs > trace.start_secs)
    shown = shown[np.argsort(trace.start_secs[shown], kind="stable")]
    lanes, most = _lanes(trace, shown)
    devices = trace.operation_devices[shown]
    height = 0.9 / np.maximum(most[devices], 1)
    top = devices + 0.05 + lanes * height
    of_layers = layer_colours(len(kinds.layer_names))
    of_devices = [
        colour if colour.startswith("#") else _GREY
        for colour in device_colours(trace.problem.devices)
    ]
    return ColumnDataSource(
        {
            "left": _ms(trace.start_secs[shown]),
            "right": _ms(trace.end_secs[shown]),
            "top": top.astype(np.float32),
            "bottom": (top + height).astype(np.float32),
            "number": shown.astype(np.int32),
            "kind": [KIND_COLOURS[kinds.kinds[i]] for i in shown.tolist()],
            "layer": [of_layers[layer] for layer in kinds.layers[shown].tolist()],
            "device": [of_devices[device] for device in devices.tolist()],
            "direction": [
                DEVICE_COLOURS[1] if backward else DEVICE_COLOURS[0]
                for backward in kinds.backward[shown].tolist()
            ],
        }
    )


def _lanes(trace: StepTrace, shown: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Finds a lane for each operation, so that none covers another, and lanes per device."""
    ends: list[list[float]] = [[] for _ in range(trace.problem.num_devices)]
    lanes = np.zeros(len(shown), np.int64)
    for position, operation in enumerate(shown.tolist()):
        of_device = ends[trace.operation_devices[operation]]
        start, end = float(trace.start_secs[operation]), float(trace.end_secs[operation])
        lane = next((lane for lane, until in enumerate(of_device) if until <= start), None)
        if lane is None:
            lane = len(of_device)
            of_device.append(end)
        of_device[lane] = end
        lanes[position] = lane
    return lanes, np.array([len(of_device) for of_device in ends])


def _ms(secs: np.ndarray) -> np.ndarray:
    return (secs * 1e3).astype(np.float32)


def device_chart(steps: Sequence[StepView], kinds: OperationKinds) -> Any:
    """Draws what each device does: forward below backward, waiting and copying beside."""
    shares = {view.label: device_shares(view.trace, kinds) for view in steps}
    labels = _device_labels([device.name for device in steps[0].trace.problem.devices])
    factors = [
        (labels[device.name], view.label)
        for device in steps[0].trace.problem.devices
        for view in steps
    ]
    parts = ("forward", "backward and update", "waiting")
    colours = (DEVICE_COLOURS[0], DEVICE_COLOURS[1], "#dddddd")
    data: dict[str, Any] = {"x": factors}
    for part in parts:
        data[part] = [
            1e3 * shares[view.label][part][number]
            for number in range(len(labels))
            for view in steps
        ]
    data["copying"] = [
        1e3 * view.report.devices[number].copy_secs
        for number in range(len(labels))
        for view in steps
    ]
    chart = _figure(320, x_range=FactorRange(*factors), tools="")
    chart.yaxis.axis_label = "ms of the step"
    source = ColumnDataSource(data)
    bars = chart.vbar_stack(
        parts, x="x", width=0.85, color=colours, source=source, legend_label=list(parts)
    )
    copies = chart.scatter(
        "x", "copying", size=9, marker="diamond", color="black", line_color="white",
        source=source, legend_label="copying (beside computing)",
    )  # fmt: skip
    chart.add_tools(
        HoverTool(
            visible=False,
            renderers=[*bars, copies],
            tooltips=[
                ("", "@x"),
                *((part, f"@{{{part}}}{{0.0}} ms") for part in (*parts, "copying")),
            ],
        )
    )
    _legend(chart)
    chart.y_range.start = 0
    chart.xaxis.major_label_orientation = 0.9
    chart.xgrid.grid_line_alpha = 0
    return chart


def copy_chart(steps: Sequence[StepView]) -> Any | None:
    """Draws how long each kind of link carries something; None where nothing is sent."""
    copies = {view.label: copy_secs_by_kind(view.trace) for view in steps}
    names = sorted({name for of_step in copies.values() for name in of_step})
    if not names:
        return None
    factors = [(name, view.label) for name in names for view in steps]
    values = [1e3 * copies[label].get(name, 0.0) for name, label in factors]
    chart = _figure(260, x_range=FactorRange(*factors), tools="")
    chart.yaxis.axis_label = "ms of transfers"
    chart.vbar(
        x="x",
        top="top",
        width=0.85,
        color="colour",
        source=ColumnDataSource(
            {
                "x": factors,
                "top": values,
                "colour": [
                    _FOUND if label == steps[-1].label else _ORIGINAL for _, label in factors
                ],
            }
        ),
    )
    chart.add_tools(HoverTool(visible=False, tooltips=[("", "@x"), ("", "@top{0.00} ms")]))
    chart.y_range.start = 0
    chart.xaxis.major_label_orientation = 0.9
    chart.xgrid.grid_line_alpha = 0
    return chart


def memory_chart(view: StepView, end_secs: float, x_range: Any | None = None) -> Any:
    """Draws what the devices hold over the step, each against its limit."""
    trace = view.trace
    held = holdings(trace)
    labels = _device_labels([device.name for device in trace.problem.devices])
    chart = _figure(240, x_range=(0, end_secs * 1e3) if x_range is None else x_range, tools=_TOOLS)
    chart.xaxis.axis_label = "ms"
    chart.yaxis.axis_label = "% of its memory"
    for number, device in enumerate(trace.problem.devices):
        levels = memory_levels(trace, number, held.on(number))
        secs, values = _thinned(levels.secs, levels.levels)
        colour = DEVICE_COLOURS[number % len(DEVICE_COLOURS)]
        share = 100.0 * values / max(device.memory_bytes, 1)
        source = ColumnDataSource(
            {
                "ms": np.append(_ms(secs), np.float32(trace.step_secs * 1e3)),
                "share": np.append(share, share[-1]).astype(np.float32),
                "mib": np.append(values, values[-1]).astype(np.float32) / np.float32(_MIB),
                # Not in the tooltip itself, where it would be a template.
                "device": [labels[device.name]] * (len(values) + 1),
            }
        )
        line = chart.step(
            "ms", "share", mode="after", color=colour, line_width=2, source=source,
            legend_label=labels[device.name],
        )  # fmt: skip
        chart.add_tools(
            HoverTool(
                visible=False,
                renderers=[line],
                tooltips=[
                    ("", "@device"),
                    ("at", "@ms{0.0} ms"),
                    ("holds", "@mib{0,0} MiB, @share{0.0} %"),
                ],
            )
        )
    chart.add_layout(Span(location=100, dimension="width", line_color="#d55e00", line_width=2))
    chart.add_layout(
        Label(
            x=0, y=100, text="its limit", y_offset=-16, text_font_size="11px", text_color="#d55e00"
        )
    )
    chart.y_range.start = 0
    chart.y_range.end = max(
        105.0, *(105.0 * d.peak_bytes / max(d.memory_bytes, 1) for d in view.report.devices)
    )
    _legend(chart)
    return chart


def _thinned(secs: np.ndarray, levels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Leaves out levels that do not show: of many neighbours the highest stays."""
    if len(secs) <= _MOST_LEVELS:
        return secs, levels
    starts = np.linspace(0, len(secs), _MOST_LEVELS + 1).astype(int)[:-1]
    return secs[starts], np.maximum.reduceat(levels, starts)


def search_chart(view: RunView, *, by_time: bool) -> Any | None:
    """Draws every trial and the best so far, against time or against samples; None without any."""
    if not view.points and not view.best:
        return None
    noun = "trial" if view.is_measured else "sample"
    chart = _figure(300, tools="pan,wheel_zoom,box_zoom,reset", y_axis_type="log")
    chart.xaxis.axis_label = "seconds of searching" if by_time else f"{noun}s"
    chart.yaxis.axis_label = "ms a step"
    ran = [point for point in view.points if point.step_secs is not None]
    # Every placer keeps its colour.
    numbers = {placer: n for n, placer in enumerate(dict.fromkeys(p.placer for p in view.points))}
    for placer, points in _by_placer(ran).items():
        dots = chart.scatter(
            "x", "y", size=7 if len(ran) < 500 else 3, alpha=0.8,
            color=DEVICE_COLOURS[numbers[placer] % len(DEVICE_COLOURS)],
            source=ColumnDataSource(_points(points, by_time)), legend_label=placer,
        )  # fmt: skip
        chart.add_tools(
            HoverTool(
                visible=False,
                renderers=[dots],
                tooltips=[
                    (noun, "@number"),
                    ("", "@placer"),
                    ("step", "@y{0.000} ms"),
                    ("ended", "@time"),
                ],
            )
        )
    if view.best:
        steps = _points(view.best, by_time)
        last = max(
            (p.elapsed_secs if by_time else p.number for p in (*view.points, *view.best)), default=0
        )
        chart.step(
            [*steps["x"], last], [*steps["y"], steps["y"][-1]], mode="after", line_width=2,
            color="#d55e00", legend_label="best so far",
        )  # fmt: skip
    failed = [point for point in view.points if point.step_secs is None]
    if failed:
        top = 1e3 * max((p.step_secs or 0.0 for p in (*ran, *view.best)), default=1.0) * 1.15
        data = _points(failed, by_time)
        data["y"] = [top] * len(failed)
        crosses = chart.scatter(
            "x", "y", marker="x", size=9, color="#b00020", line_width=2,
            source=ColumnDataSource(data), legend_label="failed",
        )  # fmt: skip
        chart.add_tools(
            HoverTool(
                visible=False,
                renderers=[crosses],
                tooltips=[(noun, "@number"), ("", "@placer"), ("failed", "@failure")],
            )
        )
    _legend(chart)
    return chart


def _by_placer(points: Sequence[Point]) -> Mapping[str, list[Point]]:
    ordered = sorted(points, key=lambda point: point.placer)
    return {
        placer: list(group)
        for placer, group in itertools.groupby(ordered, key=lambda point: point.placer)
    }


def _points(points: Sequence[Point], by_time: bool) -> dict[str, list[Any]]:
    return {
        "x": [point.elapsed_secs if by_time else point.number for point in points],
        "y": [1e3 * (point.step_secs or 0.0) for point in points],
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
    legend.ncols = 2
    chart.add_layout(legend, "above")
