"""Pictures of steps in time: what runs when on which device, what devices do, what is copied."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np

from tf_placer.report.colours import DEVICE_COLOURS, KIND_COLOURS, layer_colours
from tf_placer.report.device_labels import device_labels
from tf_placer.report.operation_kinds import OperationKinds
from tf_placer.report.pictures.drawing import picture_text
from tf_placer.report.step_shares import copy_secs_by_kind, device_shares
from tf_placer.simulation.simulator import StepTrace

__all__ = ["draw_copies", "draw_device_bars", "draw_gantt"]

# More layers than this have no legend.
_MOST_LEGENDS = 12


def draw_gantt(
    axes: Any,
    trace: StepTrace,
    kinds: OperationKinds,
    by: Literal["kind", "layer"],
    end_secs: float,
) -> None:
    """Draws a row for each device, as in Post, figure 3.

    Args:
        axes: of matplotlib.
        trace: the step.
        kinds: of its operations.
        by: what colours stand for.
        end_secs: where the axis ends.

    References:
        Gao, Chen, Li, Post: Device Placement with Cross-Entropy Minimization and Proximal Policy
        Optimization, NeurIPS 2018.
    """
    from matplotlib.collections import PolyCollection

    shown = np.flatnonzero(trace.end_secs > trace.start_secs)
    left, right = 1e3 * trace.start_secs[shown], 1e3 * trace.end_secs[shown]
    top = trace.operation_devices[shown] + 0.1
    bottom = top + 0.8
    around = ((left, top), (right, top), (right, bottom), (left, bottom))
    corners = np.stack([np.stack(corner, axis=1) for corner in around], axis=1)
    if by == "kind":
        legend = {kind: KIND_COLOURS[kind] for kind in KIND_COLOURS if kind in set(kinds.kinds)}
        colours = [legend[kinds.kinds[i]] for i in shown.tolist()]
    else:
        of_layers = _spread_colours(len(kinds.layer_names))
        legend = dict(zip(kinds.layer_names, of_layers, strict=True))
        colours = [of_layers[layer] for layer in kinds.layers[shown].tolist()]
    axes.add_collection(PolyCollection(list(corners), facecolors=colours, edgecolors="none"))
    labels = device_labels([device.name for device in trace.problem.devices])
    axes.set_yticks(
        np.arange(trace.problem.num_devices) + 0.5,
        [picture_text(labels[device.name]) for device in trace.problem.devices],
        fontsize=8,
    )
    axes.set_ylim(trace.problem.num_devices, 0)
    axes.set_xlim(0, 1e3 * end_secs)
    axes.set_xlabel("ms")
    if len(legend) <= _MOST_LEGENDS:
        _legend(axes, legend)


def draw_device_bars(axes: Any, traces: Mapping[str, StepTrace], kinds: OperationKinds) -> None:
    """Draws what each device computes, steps side by side, as in ColocRL, figure 8.

    Forward is below backward, which has the update.

    References:
        Mirhoseini et al., Device Placement Optimization with Reinforcement Learning, ICML 2017.
    """
    [first, *_] = traces.values()
    labels = device_labels([device.name for device in first.problem.devices])
    width = 0.8 / len(traces)
    for number, trace in enumerate(traces.values()):
        shares = device_shares(trace, kinds)
        x = np.arange(len(labels)) - 0.4 + width * (number + 0.5)
        lower = np.zeros(len(labels))
        for part, colour in (
            ("forward", DEVICE_COLOURS[0]),
            ("backward and update", DEVICE_COLOURS[1]),
        ):
            values = 1e3 * shares[part]
            axes.bar(
                x, values, 0.92 * width, lower, color=colour, hatch="///" if number else None,
                edgecolor="white", linewidth=0.3, label=None if number else part,
            )  # fmt: skip
            lower += values
    axes.bar(
        [0],
        [0],
        color="white",
        edgecolor="grey",
        label=f"plain: {picture_text(next(iter(traces)))}",
    )
    if len(traces) > 1:
        axes.bar(
            [0], [0], color="white", edgecolor="grey", hatch="///",
            label=f"hatched: {picture_text(list(traces)[1])}",
        )  # fmt: skip
    names = [picture_text(labels[device.name]) for device in first.problem.devices]
    axes.set_xticks(range(len(names)), names, fontsize=8)
    axes.set_ylabel("ms of computing")
    axes.legend(fontsize=7)


def draw_copies(axes: Any, traces: Mapping[str, StepTrace]) -> None:
    """Draws how long each kind of link carries something, as in ColocRL, figure 9."""
    copies = {label: copy_secs_by_kind(trace) for label, trace in traces.items()}
    names = sorted({name for of_step in copies.values() for name in of_step})
    width = 0.8 / len(traces)
    for number, (label, secs) in enumerate(copies.items()):
        x = np.arange(len(names)) - 0.4 + width * (number + 0.5)
        values = [1e3 * secs.get(name, 0.0) for name in names]
        axes.bar(
            x, values, 0.92 * width, label=picture_text(label), color=DEVICE_COLOURS[2 * number],
            hatch="///" if number else None, edgecolor="white", linewidth=0.3,
        )  # fmt: skip
    axes.set_xticks(range(len(names)), [picture_text(name) for name in names], fontsize=8)
    axes.set_ylabel("ms of transfers")
    if names:
        axes.legend(fontsize=7)
    else:
        axes.text(0.5, 0.5, "nothing is sent", ha="center", transform=axes.transAxes)


def _spread_colours(count: int) -> Sequence[str]:
    """Gives few layers colours that differ, and many a gradient."""
    return DEVICE_COLOURS[:count] if count <= len(DEVICE_COLOURS) else layer_colours(count)


def _legend(axes: Any, legend: Mapping[str, str]) -> None:
    from matplotlib.patches import Patch

    handles = [Patch(color=colour, label=picture_text(name)) for name, colour in legend.items()]
    axes.legend(handles=handles, fontsize=7, loc="upper left", bbox_to_anchor=(1.0, 1.0))
