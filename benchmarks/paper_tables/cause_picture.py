"""A picture of what placements lose most to."""

from __future__ import annotations

import pathlib
from collections.abc import Mapping, Sequence

from benchmarks.harness.pictures import save_picture
from benchmarks.paper_tables.cause_placements import FOUND, Placed
from benchmarks.paper_tables.step_causes import Cause

__all__ = ["plot_causes"]

_COLOURS: Mapping[Cause, str] = {
    "at the bound": "#4daf4a",
    "chain": "#b2df8a",
    "imbalance": "#80b1d3",
    "turns": "#fdb462",
    "transfers": "#fb8072",
    "slow device": "#bc80bd",
    "out of memory": "#999999",
}


def plot_causes(path: pathlib.Path, placed: Sequence[Placed]) -> None:
    """Draws a field for each problem and placement: its cause, and how far it is from the bound.

    Args:
        path: where to.
        placed: all placements. Without matplotlib, nothing is drawn.
    """
    try:
        import matplotlib
    except ImportError:
        print("no picture: pip install 'tf_placer[report]'")
        return
    matplotlib.use("Agg")
    from matplotlib import pyplot
    from matplotlib.patches import Patch, Rectangle

    problems = list(dict.fromkeys(each.problem for each in placed))
    placers = list(dict.fromkeys(each.placer for each in placed))
    placers.sort(key=lambda placer: placer == FOUND)
    figure, axes = pyplot.subplots(
        figsize=(1.0 * len(placers) + 4.0, 0.33 * len(problems) + 2.0), constrained_layout=True
    )
    for each in placed:
        if each.causes is None:
            continue
        x, y = placers.index(each.placer), problems.index(each.problem)
        axes.add_patch(Rectangle((x, y), 1, 1, color=_COLOURS[each.causes.cause]))
        axes.text(x + 0.5, y + 0.5, f"{each.to_bound:.2f}", ha="center", va="center", fontsize=8)
    axes.set_xlim(0, len(placers))
    axes.set_ylim(len(problems), 0)
    axes.set_xticks([k + 0.5 for k in range(len(placers))], placers, rotation=40, ha="left")
    axes.xaxis.tick_top()
    axes.set_yticks([k + 0.5 for k in range(len(problems))], problems, fontsize=8)
    axes.legend(
        handles=[Patch(color=colour, label=cause) for cause, colour in _COLOURS.items()],
        loc="upper left",
        bbox_to_anchor=(1.0, 1.0),
        fontsize=8,
        title="cause",
    )
    axes.set_xlabel("step / lower bound, simulated")
    save_picture(figure, path)
    pyplot.close(figure)
