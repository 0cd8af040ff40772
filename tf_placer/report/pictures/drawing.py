"""Layout of a picture of a model: a cell for each of its parts."""

from __future__ import annotations

import dataclasses

import numpy as np

from graph_passes.util.messages import plain_text
from tf_placer.report.operation_kinds import OperationKinds

__all__ = ["Cell", "Drawing", "Share", "compute_shares", "picture_text"]

#: A device index, and the share of the time of a part that is spent there.
Share = tuple[int, float]


@dataclasses.dataclass(frozen=True)
class Cell:
    """The cell of a part of a model.

    Attributes:
        number: the number of the part.
        x: the left side, in cells.
        y: the upper side, in cells from above.
        width: the width, in cells.
    """

    number: int
    x: float
    y: float
    width: float = 0.9


@dataclasses.dataclass(frozen=True, eq=False)
class Drawing:
    """The layout of the parts of a model in a picture.

    Attributes:
        form: "grid": layers by steps. "graph": parts that feed others to their right.
        parts: int [num_operations], the part of each operation; -1 if it is not in the picture.
        cells: the cells of the parts.
        edges: pairs of indices of `cells`, (before, after).
        rows: y and text of the labels at the left.
        columns: x, y and text of the labels above.
        names: x, y and text of the names directly above cells.
        width: the total width, in cells.
        height: the total height, in cells.
    """

    form: str
    parts: np.ndarray
    cells: tuple[Cell, ...]
    edges: tuple[tuple[int, int], ...]
    rows: tuple[tuple[float, str], ...]
    columns: tuple[tuple[float, float, str], ...]
    width: float
    height: float
    names: tuple[tuple[float, float, str], ...] = ()


def picture_text(text: str) -> str:
    """Escapes a text for matplotlib: formulas, and characters that XML forbids.

    Matplotlib takes text between two dollars for a formula, unless a backslash is before them.
    """
    return plain_text(text).replace("$", r"\$")


def compute_shares(
    parts: np.ndarray, secs: np.ndarray, devices: np.ndarray, kinds: OperationKinds
) -> dict[tuple[int, bool], list[Share]]:
    """Computes the share of each device in the time of each part.

    Args:
        parts: int [num_operations], the part of each operation; -1 for none.
        secs: float64 [num_operations], the time of each operation.
        devices: int [num_operations], the device of each operation.
        kinds: the kinds of the operations.

    Returns:
        The shares by part and direction (true is backward). A part whose operations take no time
        is divided by their number. Parts without operations are missing.
    """
    totals: dict[tuple[int, bool], dict[int, list[float]]] = {}
    for part, back, device, each in zip(
        parts.tolist(), kinds.backward.tolist(), devices.tolist(), secs.tolist(), strict=True
    ):
        if part >= 0:
            sums = totals.setdefault((part, back), {}).setdefault(device, [0.0, 0.0])
            sums[0] += each
            sums[1] += 1.0
    shares = {}
    for key, of_devices in totals.items():
        column = 0 if sum(sums[0] for sums in of_devices.values()) > 0 else 1
        whole = sum(sums[column] for sums in of_devices.values())
        shares[key] = [
            (device, sums[column] / whole)
            for device, sums in sorted(of_devices.items())
            if sums[column] > 0
        ]
    return shares
