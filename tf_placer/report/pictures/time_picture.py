"""Drawings of steps over time: Gantt charts, the use of devices, and transfers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np

from tf_placer.report.colors import DIRECTION_COLORS, GRAY
from tf_placer.report.device_labels import device_labels
from tf_placer.report.operation_kinds import OperationKinds
from tf_placer.report.page.run_view import StepView
from tf_placer.report.pictures.drawing import picture_text
from tf_placer.report.step_boxes import box_colors, color_legends, step_boxes
from tf_placer.report.step_shares import copy_secs_by_kind, device_shares
from tf_placer.simulation.simulator import StepTrace
from tf_placer.text.units import step_unit

__all__ = ["draw_copies", "draw_device_bars", "draw_gantt"]

# A legend beside a picture has no room for more layers.
_MAX_LAYERS = 12
# As many characters fit side by side below the bars of a narrow chart.
_MAX_LEVEL_CHARACTERS = 40
_PARTS = {
    "computing": DIRECTION_COLORS[0],
    "forward": DIRECTION_COLORS[0],
    "backward and update": DIRECTION_COLORS[1],
    "waiting": f"{GRAY}30",
}


def draw_gantt(
    axes: Any,
    trace: StepTrace,
    kinds: OperationKinds,
    by: Literal["kind", "layer"],
    end_secs: float,
) -> None:
    """Draws a row for each device, as in Post, figure 3.

    Args:
        axes: the matplotlib axes.
        trace: the step.
        kinds: the kinds of its operations.
        by: the property that the colors show.
        end_secs: the end of the time axis.

    References:
        Gao, Chen, Li, Post: Device Placement with Cross-Entropy Minimization and Proximal Policy
        Optimization, NeurIPS 2018.
    """
    from matplotlib.collections import PolyCollection
    from matplotlib.patches import Patch

    boxes = step_boxes(trace)
    left, right, top, bottom = boxes.left, boxes.right, boxes.top, boxes.bottom
    around = ((left, top), (right, top), (right, bottom), (left, bottom))
    corners = np.stack([np.stack(corner, axis=1) for corner in around], axis=1)
    colors = box_colors(trace, kinds, boxes.operations)[by]
    axes.add_collection(PolyCollection(list(corners), facecolors=colors, edgecolors="none"))
    labels = device_labels([device.name for device in trace.problem.devices])
    axes.set_yticks(
        np.arange(trace.problem.num_devices) + 0.5,
        [picture_text(labels[device.name]) for device in trace.problem.devices],
        fontsize=8,
    )
    axes.set_ylim(trace.problem.num_devices, 0)
    axes.set_xlim(0, 1e3 * end_secs)
    unit, per_sec = step_unit(end_secs)
    axes.xaxis.set_major_formatter(lambda ms, _: f"{ms * per_sec / 1e3:g}")
    axes.set_xlabel(unit)
    handles = [
        Patch(color=color, label=picture_text(name))
        for name, color in color_legends(trace.problem, kinds, _MAX_LAYERS)[by]
    ]
    axes.legend(handles=handles, fontsize=7, loc="upper left", bbox_to_anchor=(1.0, 1.0))


def draw_device_bars(
    axes: Any, steps: Mapping[str, StepView], kinds: OperationKinds, end_secs: float
) -> None:
    """Draws the time of each device, steps side by side, as in ColocRL, figure 8.

    From below: forward, backward with the update, and waiting; without a backward pass, computing
    and waiting. Copying overlaps with all of them.

    Args:
        axes: the matplotlib axes.
        steps: the steps by label.
        kinds: the kinds of their operations.
        end_secs: the end of the time axis.

    References:
        Mirhoseini et al., Device Placement Optimization with Reinforcement Learning, ICML 2017.
    """
    from matplotlib.patches import Patch

    [first, *_] = steps.values()
    unit, per_sec = step_unit(end_secs)
    width = 0.8 / len(steps)
    parts = device_shares(first.trace, kinds)
    handles = [Patch(color=_PARTS[part], label=part) for part in parts]
    for number, (label, view) in enumerate(steps.items()):
        hatch = "///" if number else ""
        shares = device_shares(view.trace, kinds)
        x = np.arange(first.trace.problem.num_devices) - 0.4 + width * (number + 0.5)
        lower = np.zeros(len(x))
        for part in parts:
            values = per_sec * shares[part]
            axes.bar(
                x, values, 0.92 * width, lower, color=_PARTS[part], hatch=hatch,
                edgecolor="white", linewidth=0.3,
            )  # fmt: skip
            lower += values
        copying = [per_sec * device.copy_secs for device in view.report.devices]
        [copies] = axes.plot(
            x, copying, "D", color="black", markeredgecolor="white", markersize=5, clip_on=False,
            zorder=3, label="copying",
        )  # fmt: skip
        label = f"{'hatched' if number else 'plain'}: {picture_text(label)}"
        handles.append(Patch(facecolor="none", edgecolor=GRAY, hatch=hatch, label=label))
    _put_legend(axes, [*handles, copies])
    labels = device_labels([device.name for device in first.trace.problem.devices])
    _name_bars(axes, [labels[device.name] for device in first.trace.problem.devices])
    axes.set_ylim(0, 1.05 * per_sec * end_secs or 1.0)
    axes.set_ylabel(f"{unit} of the step", fontsize=8)


def draw_copies(axes: Any, steps: Mapping[str, StepView]) -> None:
    """Draws the busy time of each kind of link, as in ColocRL, figure 9."""
    copies = {label: copy_secs_by_kind(view.trace) for label, view in steps.items()}
    names = sorted({name for of_step in copies.values() for name in of_step})
    unit, per_sec = step_unit(max(view.trace.step_secs for view in steps.values()))
    width = 0.8 / len(steps)
    for number, (label, secs) in enumerate(copies.items()):
        x = np.arange(len(names)) - 0.4 + width * (number + 0.5)
        bars = axes.bar(
            x, [per_sec * secs.get(name, 0.0) for name in names], 0.92 * width,
            label=picture_text(label), color=GRAY,
            hatch="///" if number else "", edgecolor="white", linewidth=0.3,
        )  # fmt: skip
        axes.bar_label(bars, fmt="%.4g", fontsize=7)
    axes.margins(y=0.1)
    axes.set_ylabel(f"{unit} of transfers", fontsize=8)
    _name_bars(axes, names)
    if names:
        _put_legend(axes, None)
    else:
        axes.text(0.5, 0.5, "no transfers", ha="center", transform=axes.transAxes)


def _name_bars(axes: Any, names: list[str]) -> None:
    """Labels groups of bars; many or long labels are slanted."""
    # Each label has the same room, so that the longest decides.
    slanted = len(names) * max(map(len, names), default=0) > _MAX_LEVEL_CHARACTERS
    axes.set_xticks(
        range(len(names)), [picture_text(name) for name in names], fontsize=8,
        rotation=30 if slanted else 0, ha="right" if slanted else "center",
    )  # fmt: skip
    axes.tick_params(axis="y", labelsize=8)


def _put_legend(axes: Any, handles: Any) -> None:
    """Puts the legend above the axes, where it covers nothing."""
    axes.legend(
        handles=handles, fontsize=7, ncols=2, loc="lower left", bbox_to_anchor=(0.0, 1.0),
        frameon=False,
    )  # fmt: skip
