"""Static charts of the page, as SVG."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tf_placer.report.colors import GRAY
from tf_placer.report.operation_kinds import OperationKinds
from tf_placer.report.page.captions import subject
from tf_placer.report.page.run_view import ComparedPlacement, StepView
from tf_placer.report.pictures.drawing import picture_text
from tf_placer.report.pictures.page_svg import page_svg
from tf_placer.report.pictures.time_picture import draw_copies, draw_device_bars

__all__ = ["comparison_svg", "copy_svg", "device_svg"]

# A wider chart would shrink its texts too much on a phone.
_WIDTH_INCHES = 4.2


def comparison_svg(
    compared: Sequence[ComparedPlacement], beside: Sequence[ComparedPlacement] = ()
) -> str:
    """Draws the speed-up of each placement, with its interval; empty if there are none.

    Args:
        compared: the placements.
        beside: placements of another chart, which has the same axis.
    """
    rows = [each for each in compared if each.speedup is not None]

    def draw(axes: Any) -> None:
        import matplotlib

        ink = matplotlib.rcParams["text.color"]
        axes.axvline(1.0, color=GRAY, linestyle="--", linewidth=1)
        for row, each in enumerate(rows):
            color = ink if each.is_found else GRAY
            axes.plot(each.interval or (), [row] * len(each.interval or ()), "|-", color=color)
            axes.plot(each.speedup, row, "o", color=color)
        shown = [(*(each.interval or ()), each.speedup or 1.0) for each in (*rows, *beside)]
        axes.update_datalim([(speedup, 0) for of_row in shown for speedup in of_row])
        axes.set_yticks(range(len(rows)), [picture_text(each.label) for each in rows], fontsize=8)
        axes.set_ylim(len(rows) - 0.5, -0.5)
        reference = picture_text(subject(rows[0].label))
        axes.set_xlabel(f"times as fast as {reference}", fontsize=8)
        axes.tick_params(axis="x", labelsize=8)
        axes.grid(axis="x", alpha=0.25)

    return _chart_svg(0.7 + 0.2 * len(rows), draw) if rows else ""


def device_svg(steps: Sequence[StepView], kinds: OperationKinds, end_secs: float) -> str:
    """Draws the time of each device, on an axis until `end_secs`."""
    by_label = {view.label: view for view in steps}
    return _chart_svg(3.2, lambda axes: draw_device_bars(axes, by_label, kinds, end_secs))


def copy_svg(steps: Sequence[StepView]) -> str:
    """Draws the busy time of each kind of link; empty if there are no transfers."""
    by_label = {view.label: view for view in steps}
    if not any(view.trace.transfers.producers.size for view in steps):
        return ""
    return _chart_svg(2.6, lambda axes: draw_copies(axes, by_label))


def _chart_svg(height_inches: float, draw: Callable[[Any], None]) -> str:
    """Draws a chart in a figure of one pair of axes."""
    from matplotlib.figure import Figure

    def make_figure() -> Figure:
        figure = Figure(figsize=(_WIDTH_INCHES, height_inches), layout="constrained")
        draw(figure.add_subplot())
        return figure

    return page_svg(make_figure)
