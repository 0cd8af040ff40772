"""Boxes and colors of a step over time, which the page and the pictures share."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from tf_placer.problem.placement_problem import PlacementProblem
from tf_placer.report.colors import (
    DIRECTION_COLORS,
    GRAY,
    KIND_COLORS,
    device_colors,
    layer_colors,
)
from tf_placer.report.device_labels import device_labels
from tf_placer.report.operation_kinds import OperationKinds
from tf_placer.simulation.simulator import StepTrace

__all__ = [
    "StepBoxes",
    "box_colors",
    "color_legends",
    "find_lanes",
    "property_colors",
    "step_boxes",
    "to_ms",
    "transfer_boxes",
]


@dataclasses.dataclass(frozen=True, eq=False)
class StepBoxes:
    """Rectangles of operations or transfers, in rows.

    Attributes:
        operations: int [num_boxes], the operations that take time, in the order of their starts.
        left: float32 [num_boxes], their starts in milliseconds.
        right: float32 [num_boxes], their ends in milliseconds.
        top: float32 [num_boxes], in rows, from above. Boxes of a row do not overlap.
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
    start_secs, end_secs = trace.start_secs[operations], trace.end_secs[operations]
    top, bottom = _stack(devices, start_secs, end_secs)
    return StepBoxes(operations, to_ms(start_secs), to_ms(end_secs), top, bottom)


def transfer_boxes(trace: StepTrace, rows: np.ndarray) -> StepBoxes:
    """Makes the boxes of the transfers of a step, whose `operations` are indices of transfers.

    Args:
        trace: the step.
        rows: int [num_devices], the row of the transfers that each device sends.
    """
    transfers = trace.transfers
    numbers = np.argsort(transfers.start_secs, kind="stable")
    start_secs, end_secs = transfers.start_secs[numbers], transfers.end_secs[numbers]
    top, bottom = _stack(rows[transfers.sources[numbers]], start_secs, end_secs)
    return StepBoxes(numbers, to_ms(start_secs), to_ms(end_secs), top, bottom)


def _stack(
    rows: np.ndarray, start_secs: np.ndarray, end_secs: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Computes top and bottom of boxes, float32, so that those of a row do not overlap."""
    lanes = find_lanes(rows, start_secs, end_secs)
    num_lanes = np.ones(int(rows.max(initial=-1)) + 1)
    np.maximum.at(num_lanes, rows, lanes + 1)
    height = 0.9 / num_lanes[rows]
    top = rows + 0.05 + lanes * height
    return top.astype(np.float32), (top + height).astype(np.float32)


def find_lanes(rows: np.ndarray, start_secs: np.ndarray, end_secs: np.ndarray) -> np.ndarray:
    """Finds the first free lane of its row for each interval.

    Args:
        rows: int [n], the rows of the intervals.
        start_secs: float64 [n], their starts, in ascending order.
        end_secs: float64 [n], their ends.

    Returns:
        int64 [n], counted from 0 in every row.
    """
    ends: dict[int, list[float]] = {}
    lanes = np.zeros(len(rows), np.int64)
    intervals = zip(rows.tolist(), start_secs.tolist(), end_secs.tolist(), strict=True)
    for position, (row, start, end) in enumerate(intervals):
        of_row = ends.setdefault(row, [])
        lane = next((lane for lane, until in enumerate(of_row) if until <= start), None)
        if lane is None:
            lane = len(of_row)
            of_row.append(end)
        of_row[lane] = end
        lanes[position] = lane
    return lanes


def box_colors(
    trace: StepTrace, kinds: OperationKinds, operations: np.ndarray
) -> dict[str, list[str]]:
    """Chooses colors of operations, by the property that they show; see `color_legends`."""
    names = tuple(KIND_COLORS)
    number = {name: i for i, name in enumerate(names)}
    values = {
        "kind": [number[kinds.kinds[i]] for i in operations.tolist()],
        "layer": kinds.layers[operations].tolist(),
        "device": trace.operation_devices[operations].tolist(),
        "direction": kinds.backward[operations].astype(int).tolist(),
    }
    colors = property_colors(trace.problem, kinds, names)
    return {by: [colors[by][value] for value in of_by] for by, of_by in values.items()}


def property_colors(
    problem: PlacementProblem, kinds: OperationKinds, kind_names: Sequence[str]
) -> dict[str, list[str]]:
    """Lists the colors of the values of each property that colors can show.

    Args:
        problem: the problem.
        kinds: the kinds of its operations.
        kind_names: the kinds, in the order of their colors in the result.
    """
    return {
        "kind": [KIND_COLORS[name] for name in kind_names],
        "layer": layer_colors(len(kinds.layer_names)),
        "device": _device_colors(problem),
        "direction": list(DIRECTION_COLORS),
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
        "direction": list(zip(("forward", "backward and update"), DIRECTION_COLORS, strict=True)),
    }


def _device_colors(problem: PlacementProblem) -> list[str]:
    """Chooses colors of devices, with gray for a CPU that has none in a placement."""
    return [color if color.startswith("#") else GRAY for color in device_colors(problem.devices)]


def to_ms(secs: np.ndarray) -> np.ndarray:
    """Converts seconds to milliseconds, float32."""
    return (secs * 1e3).astype(np.float32)
