"""Boxes and colors of a step over time, which the page and the pictures share."""

from __future__ import annotations

import dataclasses

import numpy as np

from tf_placer.problem.placement_problem import PlacementProblem
from tf_placer.report.colors import (
    DEVICE_COLORS,
    GRAY,
    KIND_COLORS,
    device_colors,
    layer_colors,
)
from tf_placer.report.device_labels import device_labels
from tf_placer.report.operation_kinds import OperationKinds
from tf_placer.simulation.simulator import StepTrace

__all__ = ["StepBoxes", "box_colors", "color_legends", "find_lanes", "step_boxes", "to_ms"]


@dataclasses.dataclass(frozen=True, eq=False)
class StepBoxes:
    """Rectangles of operations, in a row for each device.

    Attributes:
        operations: int [num_boxes], the operations that take time, in the order of their starts.
        left: float32 [num_boxes], their starts in milliseconds.
        right: float32 [num_boxes], their ends in milliseconds.
        top: float32 [num_boxes], in rows, from above. Boxes of operations that run on a device at
            the same time do not overlap.
        bottom: float32 [num_boxes], in rows, from above.
    """

    operations: np.ndarray
    left: np.ndarray
    right: np.ndarray
    top: np.ndarray
    bottom: np.ndarray


def step_boxes(trace: StepTrace) -> StepBoxes:
    """Makes the boxes of the operations of a step."""
    operations = np.flatnonzero(trace.end_secs > trace.start_secs)
    operations = operations[np.argsort(trace.start_secs[operations], kind="stable")]
    devices = trace.operation_devices[operations]
    lanes = find_lanes(trace, operations)
    num_lanes = np.ones(trace.problem.num_devices)
    np.maximum.at(num_lanes, devices, lanes + 1)
    height = 0.9 / num_lanes[devices]
    top = devices + 0.05 + lanes * height
    return StepBoxes(
        operations=operations,
        left=to_ms(trace.start_secs[operations]),
        right=to_ms(trace.end_secs[operations]),
        top=top.astype(np.float32),
        bottom=(top + height).astype(np.float32),
    )


def find_lanes(trace: StepTrace, operations: np.ndarray) -> np.ndarray:
    """Finds the first free lane of its device for each operation.

    Args:
        trace: the step.
        operations: int [n], in the order of their starts.

    Returns:
        int64 [n], counted from 0 on every device.
    """
    ends: list[list[float]] = [[] for _ in range(trace.problem.num_devices)]
    lanes = np.zeros(len(operations), np.int64)
    for position, operation in enumerate(operations.tolist()):
        of_device = ends[trace.operation_devices[operation]]
        start, end = float(trace.start_secs[operation]), float(trace.end_secs[operation])
        lane = next((lane for lane, until in enumerate(of_device) if until <= start), None)
        if lane is None:
            lane = len(of_device)
            of_device.append(end)
        of_device[lane] = end
        lanes[position] = lane
    return lanes


def box_colors(
    trace: StepTrace, kinds: OperationKinds, operations: np.ndarray
) -> dict[str, list[str]]:
    """Chooses colors of operations, by the property that they show; see `color_legends`."""
    of_layers = layer_colors(len(kinds.layer_names))
    of_devices = _device_colors(trace.problem)
    return {
        "kind": [KIND_COLORS[kinds.kinds[i]] for i in operations.tolist()],
        "layer": [of_layers[layer] for layer in kinds.layers[operations].tolist()],
        "device": [of_devices[i] for i in trace.operation_devices[operations].tolist()],
        "direction": [
            DEVICE_COLORS[int(backward)] for backward in kinds.backward[operations].tolist()
        ],
    }


def color_legends(
    problem: PlacementProblem, kinds: OperationKinds, most_layers: int
) -> dict[str, list[tuple[str, str]]]:
    """Collects names and colors, by the property that the colors show.

    Args:
        problem: the problem.
        kinds: the kinds of its operations.
        most_layers: maximum number of layers to name; of more, the first, the middle and the last
            one are named.
    """
    used = set(kinds.kinds)
    layers = list(zip(kinds.layer_names, layer_colors(len(kinds.layer_names)), strict=True))
    if len(layers) > most_layers:
        layers = [layers[0], layers[len(layers) // 2], layers[-1]]
    labels = device_labels([device.name for device in problem.devices])
    names = [labels[device.name] for device in problem.devices]
    return {
        "kind": [(kind, color) for kind, color in KIND_COLORS.items() if kind in used],
        "layer": layers,
        "device": list(zip(names, _device_colors(problem), strict=True)),
        "direction": [("forward", DEVICE_COLORS[0]), ("backward and update", DEVICE_COLORS[1])],
    }


def _device_colors(problem: PlacementProblem) -> list[str]:
    """Chooses colors of devices, with gray for a CPU that has none in a placement."""
    return [color if color.startswith("#") else GRAY for color in device_colors(problem.devices)]


def to_ms(secs: np.ndarray) -> np.ndarray:
    """Converts seconds to milliseconds, float32."""
    return (secs * 1e3).astype(np.float32)
