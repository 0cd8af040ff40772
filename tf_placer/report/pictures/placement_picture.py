"""Pictures of placements, as SVG and as files."""

from __future__ import annotations

import io
import math
import os
import pathlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from tf_placer.files import check_output
from tf_placer.problem.placement_problem import PlacementProblem
from tf_placer.report.colors import GRAY, device_colors, device_marks
from tf_placer.report.device_labels import device_labels
from tf_placer.report.operation_kinds import OperationKinds
from tf_placer.report.pictures.drawing import Drawing, compute_shares, picture_text
from tf_placer.report.pictures.page_svg import page_svg
from tf_placer.report.pictures.part_graph import COLUMN_WIDTH, lay_out_part_graph
from tf_placer.report.pictures.unrolled_grid import lay_out_unrolled_grid

__all__ = [
    "check_picture",
    "is_small",
    "make_figure",
    "picture_note",
    "placement_bytes",
    "placement_drawing",
    "placement_svg",
]

_ENDINGS = (".png", ".svg", ".pdf")
_SMALLEST_INCHES = 4.2
_LEGEND_ROW_INCHES = 0.2
_CHARACTER_INCHES = 0.06
_SLANT_DEGREES = 25
_NAME_POINTS = 4.5
_CHARACTER_INCHES_PER_POINT = 0.0082
# Characters at the end of a shortened name, where layers have their numbers.
_END_CHARACTERS = 4


def placement_drawing(problem: PlacementProblem, kinds: OperationKinds) -> Drawing:
    """Lays out a model: as a grid of layers and steps if it is unrolled, otherwise as a graph."""
    return lay_out_unrolled_grid(problem, kinds) or lay_out_part_graph(problem, kinds)


def picture_note(drawing: Drawing, kinds: OperationKinds) -> str:
    """Explains how to read a picture."""
    layout = (
        "A row is a layer, and a column one of its steps."
        if drawing.form == "grid"
        else "A part is to the right of its inputs; parts above each other may run together."
    )
    halves, part = "", "cell"
    if kinds.has_backward:
        halves, part = (
            " The upper half of a cell is the forward pass, the lower half the backward pass with "
            "the update.",
            "half",
        )
    return (
        f"{layout}{halves} Colors and numbers are devices; a {part} with several colors is on "
        "several devices, by their share of its time. A CPU beside other devices has no color."
    )


def is_small(drawing: Drawing) -> bool:
    """Returns whether a picture is readable in the window of a phone."""
    return _measure_width(drawing)[0] <= _SMALLEST_INCHES


def placement_svg(
    problem: PlacementProblem, kinds: OperationKinds, drawing: Drawing, devices: np.ndarray
) -> str:
    """Draws a placement for a page, whose text color it has.

    Args:
        problem: the problem.
        kinds: the kinds of its operations.
        drawing: the layout of its parts.
        devices: int [num_operations], the device of each operation.
    """
    return page_svg(lambda: make_figure(problem, kinds, drawing, [("", devices)]))


def check_picture(path: str | os.PathLike[str], *others: str | os.PathLike[str] | None) -> None:
    """Checks, before any work, that a picture can be written.

    Raises:
        OSError: the file cannot be written.
        ValueError: the ending of the file is unknown.
    """
    if pathlib.Path(path).suffix.lower() not in _ENDINGS:
        raise ValueError(f"{os.fspath(path)!r}: a picture ends with .png, .svg or .pdf")
    check_output(path, *others)


def placement_bytes(
    problem: PlacementProblem,
    kinds: OperationKinds,
    placements: Sequence[tuple[str, np.ndarray]],
    ending: str = "png",
) -> bytes:
    """Draws placements below each other, as the content of a file.

    Args:
        problem: the problem.
        kinds: the kinds of its operations.
        placements: titles, and int [num_operations] devices of the operations.
        ending: "png" or "svg".
    """
    drawing = placement_drawing(problem, kinds)
    content = io.BytesIO()
    figure = make_figure(problem, kinds, drawing, placements)
    figure.savefig(content, format=ending, dpi=130, facecolor="white")
    return content.getvalue()


def make_figure(
    problem: PlacementProblem,
    kinds: OperationKinds,
    drawing: Drawing,
    placements: Sequence[tuple[str, np.ndarray]],
) -> Any:
    """Makes the matplotlib figure of placements below each other; see `placement_bytes`."""
    from matplotlib.figure import Figure

    width, per_cell = _measure_width(drawing)
    labels = _legend_labels(problem)
    columns = max(1, min(5, len(labels), int(width / _label_inches(labels))))
    legend_height = _LEGEND_ROW_INCHES * math.ceil(len(labels) / columns) + 0.15
    per_row = 0.42 if drawing.form == "grid" else per_cell
    head = _head_inches(drawing)
    height = per_row * drawing.height + head + 0.25
    # Compute all positions here: the layout engine of matplotlib takes longer than drawing.
    total = height * len(placements) + legend_height
    figure = Figure(figsize=(width, total))
    most_characters = int(COLUMN_WIDTH * per_cell / (_CHARACTER_INCHES_PER_POINT * _NAME_POINTS))
    for number, (title, devices) in enumerate(placements):
        bottom = legend_height + height * (len(placements) - 1 - number)
        axes = figure.add_axes((0.01, bottom / total, 0.98, (height - 0.25) / total))
        _draw(axes, problem, kinds, drawing, devices, head / per_row, most_characters)
        if drawing.form == "graph":
            # Cells are as wide as the others also where names make the picture wider.
            axes.set_xlim(-0.3, 0.98 * width / per_cell - 0.3)
        if title:
            axes.set_title(picture_text(title), fontsize=10, loc="left", pad=2)
    _legend(figure, problem, labels, columns)
    return figure


def _measure_width(drawing: Drawing) -> tuple[float, float]:
    """Computes the inches of a picture and of its cells."""
    label_width = 0.11 * max((len(text) for _, text in drawing.rows), default=0)
    per_cell = min(0.5, max(0.24, (12.0 - label_width) / max(drawing.width, 1.0)))
    right = per_cell * drawing.width
    if drawing.form == "graph":
        # The slanted names of the last columns end to the right of their cells.
        per_character = _CHARACTER_INCHES * math.cos(math.radians(_SLANT_DEGREES))
        ends = [per_cell * x + per_character * len(text) for x, _, text in drawing.columns]
        right = max([right, *ends])
    return max(_SMALLEST_INCHES, label_width + right + 0.4), per_cell


def _head_inches(drawing: Drawing) -> float:
    """Computes the height of the names of columns, which are slanted in a graph."""
    if drawing.form == "grid":
        return 0.35
    longest = max((len(text) for *_, text in drawing.columns), default=0)
    return 0.2 + _CHARACTER_INCHES * longest * math.sin(math.radians(_SLANT_DEGREES))


def _draw(
    axes: Any,
    problem: PlacementProblem,
    kinds: OperationKinds,
    drawing: Drawing,
    devices: np.ndarray,
    head: float,
    most_characters: int,
) -> None:
    """Draws a placement below `head` cells for the names of columns, names of cells shortened."""
    import matplotlib
    from matplotlib.collections import LineCollection, PolyCollection

    secs = problem.compute_secs[np.arange(problem.num_operations), devices]
    shares = compute_shares(drawing.parts, secs, devices, kinds)
    looks = list(zip(device_colors(problem.devices), device_marks(problem.devices), strict=True))
    ends = [(drawing.cells[a], drawing.cells[b]) for a, b in drawing.edges]
    lines = [((a.x + a.width, a.y + 0.45), (b.x, b.y + 0.45)) for a, b in ends]
    axes.add_collection(LineCollection(lines, colors=GRAY, lw=0.6))
    corners, faces, edges = [], [], []
    ink = matplotlib.rcParams["text.color"]
    height = 0.45 if kinds.has_backward else 0.9
    marked: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for cell in drawing.cells:
        for back in (False, True):
            x, y = cell.x, cell.y + (0.45 if back else 0.0)
            for device, share in shares.get((cell.number, back), []):
                width = cell.width * share
                corners.append([(x, y), (x + width, y), (x + width, y + height), (x, y + height)])
                color, mark = looks[device]
                has_color = color.startswith("#")
                faces.append(color if has_color else "none")
                # A cell without a color would be nearly invisible on a dark page.
                edges.append(GRAY if has_color else ink)
                if width > 0.5:
                    text_color = _choose_text_color(color) if has_color else ink
                    marked.setdefault((mark, text_color), []).append(
                        (x + width / 2, y + height / 2)
                    )
                x += width
    axes.add_collection(
        PolyCollection(corners, facecolors=faces, edgecolors=edges, linewidths=0.4, zorder=2)
    )
    for (mark, color), places in marked.items():
        # Markers are faster than text, whose layout for every cell takes seconds.
        axes.plot(
            *np.transpose(places), linestyle="", marker=f"$\\mathrm{{{mark}}}$", zorder=3,
            markersize=4, markerfacecolor=color, markeredgewidth=0,
        )  # fmt: skip
    for y, text in drawing.rows:
        axes.text(-0.2, y + 0.45, picture_text(text), ha="right", va="center", fontsize=8)
    for x, y, text in drawing.columns:
        slanted = drawing.form == "graph"
        axes.text(
            x, y - 0.12, picture_text(text), fontsize=7, va="bottom",
            ha="left" if slanted else "center", rotation=_SLANT_DEGREES if slanted else 0,
        )  # fmt: skip
    for x, y, text in drawing.names:
        axes.text(
            x, y - 0.04, picture_text(_fit_name(text, most_characters)), fontsize=_NAME_POINTS,
            ha="center", va="bottom",
        )  # fmt: skip
    left = -0.2 - 0.35 * max((len(text) for _, text in drawing.rows), default=0)
    axes.set_xlim(min(left, -0.3), drawing.width)
    axes.set_ylim(drawing.height, -head)
    axes.axis("off")


def _fit_name(name: str, most_characters: int) -> str:
    """Leaves out the middle of a name that is longer than its column is wide."""
    if len(name) <= most_characters:
        return name
    return f"{name[: max(1, most_characters - _END_CHARACTERS - 1)]}…{name[-_END_CHARACTERS:]}"


def _choose_text_color(color: str) -> str:
    """Chooses black or white for text on a color."""
    red, green, blue = (int(color[i : i + 2], 16) for i in (1, 3, 5))
    return "black" if 0.299 * red + 0.587 * green + 0.114 * blue > 140 else "white"


def _legend_labels(problem: PlacementProblem) -> list[str]:
    labels = device_labels([device.name for device in problem.devices])
    return [
        f"{mark}: {labels[device.name]} ({device.kind})"
        for device, mark in zip(problem.devices, device_marks(problem.devices), strict=True)
    ]


def _label_inches(labels: Sequence[str]) -> float:
    """Estimates the width of a column of the legend: of its longest text and its patch."""
    return 0.075 * max(map(len, labels)) + 0.55


def _legend(figure: Any, problem: PlacementProblem, labels: Sequence[str], columns: int) -> None:
    import matplotlib
    from matplotlib.patches import Patch

    ink = matplotlib.rcParams["text.color"]
    handles = [
        Patch(
            facecolor=color if color.startswith("#") else "none",
            edgecolor=GRAY if color.startswith("#") else ink,
            label=picture_text(label),
        )
        for label, color in zip(labels, device_colors(problem.devices), strict=True)
    ]
    figure.legend(handles=handles, loc="lower left", ncols=columns, fontsize=8, frameon=False)
