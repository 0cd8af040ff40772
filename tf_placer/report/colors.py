"""Colors of devices, kinds, directions, layers and runs, which color-blind people can tell apart.

No two of these palettes share a color, so that a color means one thing on a page.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from tf_placer.problem.placement_problem import ProblemDevice

__all__ = [
    "DEVICE_COLORS",
    "DIRECTION_COLORS",
    "FAILURE_COLOR",
    "GRAY",
    "KIND_COLORS",
    "RUN_COLORS",
    "TRANSPARENT",
    "device_colors",
    "device_marks",
    "layer_colors",
]

#: Colors of devices: the palette of Okabe and Ito, then Tol's "muted".
DEVICE_COLORS = (
    *("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#f0e442"),
    *("#332288", "#882255", "#999933", "#44aa99", "#aa4499"),
)
#: Color of lines, and of boxes without another color.
GRAY = "#8a8a8a"
#: Color of failed trials.
FAILURE_COLOR = "#e0304a"
#: Colors of the kinds that `operation_kinds` finds: Tol's "light", brown and beige.
KIND_COLORS = {
    "convolution": "#77aadd",
    "matrix product": "#ee8866",
    "pooling": "#eedd88",
    "softmax": "#aaaa00",
    "concat and split": "#99ddff",
    "normalization": "#ffaabb",
    "lookup": "#bbcc33",
    "update": "#44bb99",
    "loop, branch or call": "#8c564b",
    "arithmetic": "#d8c9a3",
    "other": "#c4c4c4",
}
#: Colors of the forward pass, and of the backward pass with the update.
DIRECTION_COLORS = ("#c2a5cf", "#7b3294")
#: Colors of searches beside each other: Tol's "vibrant" and "high-contrast".
RUN_COLORS = (
    "#0077bb",
    "#ee7733",
    "#009988",
    "#ee3377",
    "#33bbee",
    "#cc3311",
    "#004488",
    "#ddaa33",
)
#: Color of a CPU beside accelerators, so that pictures show the accelerators.
TRANSPARENT = "rgba(0, 0, 0, 0)"

# The colormap "cividis" from the first layer to the last: color-blind people see it alike.
_FIRST, _MIDDLE, _LAST = (0, 34, 78), (124, 123, 120), (254, 232, 56)


def device_colors(devices: Sequence[ProblemDevice]) -> list[str]:
    """Chooses a color for each device; a CPU beside devices of other kinds is transparent."""
    return [
        TRANSPARENT if number is None else DEVICE_COLORS[number % len(DEVICE_COLORS)]
        for number in _numbers(devices)
    ]


def device_marks(devices: Sequence[ProblemDevice]) -> list[str]:
    """Makes a short mark for each device: "0" for the first that has a color, "C" for a CPU."""
    return ["C" if number is None else str(number) for number in _numbers(devices)]


def _numbers(devices: Sequence[ProblemDevice]) -> list[int | None]:
    """Numbers the devices that have a color; None for a CPU beside devices of other kinds."""
    is_cpu = [device.kind == "CPU" or "CPU:" in device.name for device in devices]
    counted = itertools.count()
    return [None if cpu and not all(is_cpu) else next(counted) for cpu in is_cpu]


def layer_colors(count: int) -> list[str]:
    """Makes colors of layers, a gradient from dark to light."""
    colors = []
    for layer in range(count):
        share = 2.0 * layer / max(count - 1, 1)
        first, last = (_FIRST, _MIDDLE) if share <= 1 else (_MIDDLE, _LAST)
        within = share if share <= 1 else share - 1
        mixed = (round(a + (b - a) * within) for a, b in zip(first, last, strict=True))
        colors.append("#" + "".join(f"{part:02x}" for part in mixed))
    return colors
