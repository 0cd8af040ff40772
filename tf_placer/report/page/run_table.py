"""The table at the top of a page about several runs: their steps, and what they cost."""

from __future__ import annotations

import pathlib
from collections.abc import Sequence

from tf_placer.report.page.captions import find_subject
from tf_placer.report.page.run_view import RUN_NAMES, RunView
from tf_placer.text.units import format_step

__all__ = ["describe_runs", "make_run_table"]

_SECS_PER_HOUR = 3600.0
_COST_STEPS = 1_000_000


def make_run_table(views: Sequence[RunView]) -> tuple[list[str], list[tuple[str, ...]]]:
    """Makes the headers and the rows of the runs of a page, with prices if any is known."""
    headers = ["run", "step", "times as fast", "lower bound"]
    has_prices = any(view.price_per_hour is not None for view in views)
    if has_prices:
        headers += ["price/h", "1M steps"]
    rows = []
    for name, view in zip(RUN_NAMES, views, strict=False):
        step_secs, speedup = _find_step_secs(view), find_subject(view).speedup
        cells = [
            " · ".join(filter(None, [name, view.name, view.title])),
            "none fits" if step_secs is None else format_step(step_secs),
            "-" if speedup is None or step_secs is None else f"{speedup:.2f}x",
            "-" if view.limits is None else format_step(view.limits.lower_bound_secs),
        ]
        if has_prices:
            cells += [_format_price(view.price_per_hour), _format_price(_compute_cost(view))]
        rows.append(tuple(cells))
    return headers, rows


def describe_runs(views: Sequence[RunView]) -> str:
    """Says which of several runs has the shortest step, and which the cheapest."""
    named = list(zip(RUN_NAMES, views, strict=False))
    steps = {name: secs for name, view in named if (secs := _find_step_secs(view)) is not None}
    if not steps:
        return "None of the runs has a step. Nothing that was tried runs or fits"
    titles = {
        name: f"{name} ({pathlib.PurePath(view.name).name})" if view.name else name
        for name, view in named
    }
    fastest = min(steps, key=steps.__getitem__)
    sentences = [f"{titles[fastest]} is the fastest: {format_step(steps[fastest])} a step"]
    costs = {name: cost for name, view in named if (cost := _compute_cost(view)) is not None}
    if costs:
        cheapest = min(costs, key=costs.__getitem__)
        sentences.append(
            f"{titles[cheapest]} is the cheapest: {costs[cheapest]:.2f} for a million steps"
        )
    if len({view.is_measured for view in views}) > 1:
        sentences.append("Some were measured and others simulated")
    feeds = [dict(view.feeds) for view in views if view.feeds]
    if any(each != feeds[0] for each in feeds):
        sentences.append("They are not fed the same, so a step is not the same work in all")
    if len(sentences) == 1:
        sentences.append("The table has one row for each run")
    return ". ".join(sentences)


def _find_step_secs(view: RunView) -> float | None:
    """Finds the step that a run is about; None if it has none that fits."""
    if not view.is_measured and view.steps and not view.steps[-1].report.fits:
        return None
    return find_subject(view).step_secs


def _compute_cost(view: RunView) -> float | None:
    """Computes the price of a million steps; None without a price or a step."""
    step_secs = _find_step_secs(view)
    if step_secs is None or view.price_per_hour is None:
        return None
    return view.price_per_hour / _SECS_PER_HOUR * step_secs * _COST_STEPS


def _format_price(price: float | None) -> str:
    return "-" if price is None else f"{price:.2f}"
