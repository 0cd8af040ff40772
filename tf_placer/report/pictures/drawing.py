"""A picture of a model before it is drawn: a cell for each of its parts, and where it lies."""

from __future__ import annotations

import dataclasses

import numpy as np

from graph_passes.util.messages import plain_text
from tf_placer.report.operation_kinds import OperationKinds

__all__ = ["Cell", "Drawing", "Share", "picture_text", "shares_of"]

#: A device index, and the share of the time of a part that its operations take there.
Share = tuple[int, float]


@dataclasses.dataclass(frozen=True)
class Cell:
    """A part of a model.

    Attributes:
        number: of the part, by which its devices are known.
        x: of its left side, in cells.
        y: of its upper side, in cells from above.
        width: in cells.
    """

    number: int
    x: float
    y: float
    width: float = 0.9


@dataclasses.dataclass(frozen=True, eq=False)
class Drawing:
    """Where the parts of a model lie in a picture.

    Attributes:
        form: "grid": layers by steps. "graph": parts that feed others to their right.
        parts: int [num_operations], the part of each operation; -1 for what is not in the picture.
        cells: the parts.
        edges: pairs of places in `cells`, (before, after).
        rows: y and text of the labels at the left.
        columns: x, y and text of the labels above.
        width: of all, in cells.
        height: of all, in cells.
    """

    form: str
    parts: np.ndarray
    cells: tuple[Cell, ...]
    edges: tuple[tuple[int, int], ...]
    rows: tuple[tuple[float, str], ...]
    columns: tuple[tuple[float, float, str], ...]
    width: float
    height: float


def picture_text(text: str) -> str:
    """Makes a text that matplotlib draws as it is: without formulas, and without what XML forbids.

    Matplotlib takes what is between two dollars for a formula, unless a backslash is before them.
    """
    return plain_text(text).replace("$", r"\$")


def shares_of(
    parts: np.ndarray, secs: np.ndarray, devices: np.ndarray, kinds: OperationKinds
) -> dict[tuple[int, bool], list[Share]]:
    """Finds which share of the time of each part is on which device.

    Args:
        parts: int [num_operations], -1 for none.
        secs: float64 [num_operations], what each takes.
        devices: int [num_operations], where each is.
        kinds: of the operations.

    Returns:
        By part and whether it is of the backward pass; a part whose operations take no time counts
        them. What has no operations is not there.
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
