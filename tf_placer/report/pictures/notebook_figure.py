"""The picture of a placement for a notebook."""

from __future__ import annotations

import html
import importlib.util

import numpy as np

from tf_placer.problem.placement_problem import PlacementProblem
from tf_placer.report.operation_kinds import operation_kinds
from tf_placer.report.pictures.placement_picture import (
    picture_note,
    placement_drawing,
    placement_svg,
)

__all__ = ["draw_figure"]


def draw_figure(problem: PlacementProblem, operation_devices: np.ndarray, label: str) -> str:
    """Draws a placement as HTML; without matplotlib, says how to see it.

    Args:
        problem: the placement problem.
        operation_devices: int32 [num_operations], the device of each operation.
        label: what the caption calls the placement.
    """
    if importlib.util.find_spec("matplotlib") is None:
        return "<p>pip install 'tf_placer[report]' to see the placement here</p>"
    kinds = operation_kinds(problem)
    drawing = placement_drawing(problem, kinds)
    svg = placement_svg(problem, kinds, drawing, operation_devices)
    caption = html.escape(f"{label}. {picture_note(drawing, kinds)}")
    return f"<figure>{svg}<figcaption>{caption}</figcaption></figure>"
