"""The curves of several searches in one chart: the best step so far, and how the samples change."""

from __future__ import annotations

import collections
import dataclasses
import pathlib
from collections.abc import Sequence

import numpy as np

from tf_placer.report.colors import RUN_COLORS
from tf_placer.report.page.run_view import RunView

__all__ = [
    "MEAN_SAMPLES",
    "SearchCurve",
    "make_search_curves",
    "name_samples",
    "name_searches",
]

#: A mean of fewer samples shows their noise instead of what a placer learns.
MEAN_SAMPLES = 50


@dataclasses.dataclass(frozen=True)
class SearchCurve:
    """The curves of one search.

    Attributes:
        name: the name of the search.
        color: the color of its curves. Seeds of one placer share a color, where several placers
            are beside each other.
        number: the number of earlier curves of the same color.
        best: numbers of samples, and the fastest step of the samples until then in seconds.
        means: numbers of samples, and the mean step of the last 50 that ran in seconds; empty for
            fewer samples.
    """

    name: str
    color: str
    number: int
    best: tuple[list[float], list[float]]
    means: tuple[list[float], list[float]]


def make_search_curves(views: Sequence[RunView], names: Sequence[str]) -> list[SearchCurve]:
    """Makes the curves of the searches that have samples.

    Args:
        views: the searches.
        names: their names.
    """
    searched = [(view, name) for view, name in zip(views, names, strict=True) if view.best]
    placers = list(dict.fromkeys(view.placer for view, _ in searched))
    kinds = placers if len(placers) > 1 else [name for _, name in searched]
    drawn: dict[str, int] = collections.Counter()
    curves = []
    for view, name in searched:
        kind = view.placer if len(placers) > 1 else name
        last = max(point.number for point in (*view.points, *view.best))
        steps = [point.step_secs or 0.0 for point in view.best]
        curves.append(
            SearchCurve(
                name,
                RUN_COLORS[kinds.index(kind) % len(RUN_COLORS)],
                drawn[kind],
                ([*(point.number for point in view.best), last], [*steps, steps[-1]]),
                _average(view),
            )
        )
        drawn[kind] += 1
    return curves


def _average(view: RunView) -> tuple[list[float], list[float]]:
    ran = [point for point in view.points if point.step_secs is not None]
    if len(ran) <= MEAN_SAMPLES:
        return [], []
    sums = np.cumsum([0.0, *(point.step_secs or 0.0 for point in ran)])
    means = (sums[MEAN_SAMPLES:] - sums[:-MEAN_SAMPLES]) / MEAN_SAMPLES
    return [point.number for point in ran[MEAN_SAMPLES - 1 :]], means.tolist()


def name_searches(views: Sequence[RunView]) -> list[str]:
    """Names searches for a legend: by their placers, or by their directories where these repeat."""
    placers = [view.placer for view in views]
    if len(set(placers)) == len(placers):
        return placers
    return [pathlib.PurePath(view.name).name or view.placer for view in views]


def name_samples(views: Sequence[RunView]) -> str:
    """Names what searches try: "trials" if all of them measured steps, else "samples"."""
    return "trials" if all(view.is_measured for view in views if view.best) else "samples"
