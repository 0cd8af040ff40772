"""The table at the top of a page about several runs: their steps, and what they cost."""

from __future__ import annotations

import pathlib
from collections.abc import Sequence

from tf_placer.report.compared_machine import ComparedMachine, compute_cost, describe_machine
from tf_placer.report.machine_comparison import describe_remarks, make_columns
from tf_placer.report.page.captions import find_subject
from tf_placer.report.page.run_view import RUN_NAMES, RunView
from tf_placer.text.units import format_step

__all__ = ["compare_views", "describe_runs", "list_run_remarks", "make_run_table"]

# The columns that the table of `compare` has, too.
_MACHINE_COLUMNS = ("data par.", "on CPU", "price/h", "1M steps")


def compare_views(views: Sequence[RunView]) -> list[ComparedMachine]:
    """Compares the machines of the runs of a page, as `compare` does; in the order of the runs.

    Of the machine of a measured run, only the step and the price are known.
    """
    machines = []
    for title, view in zip(_title_runs(views).values(), views, strict=True):
        if _is_plan(view) and view.problem is not None:
            machines.append(
                describe_machine(title, view.problem, view.steps[-1].placement, view.price_per_hour)
            )
        else:
            machines.append(
                ComparedMachine(
                    name=title,
                    kind="",
                    device_type="device",
                    accelerators=0,
                    step_secs=_find_step_secs(view),
                    one_device_secs=None,
                    lower_bound_secs=0.0,
                    data_parallel_secs=None,
                    fullest_device="",
                    peak_bytes=0,
                    memory_bytes=0,
                    idle=(),
                    spare=0,
                    price_per_hour=view.price_per_hour,
                )
            )
    return machines


def make_run_table(
    views: Sequence[RunView], machines: Sequence[ComparedMachine]
) -> tuple[list[str], list[tuple[str, ...]]]:
    """Makes the headers and the rows of the runs of a page, without columns that say nothing.

    Args:
        views: the runs.
        machines: their machines; see `compare_views`.
    """
    columns = make_columns(machines, _MACHINE_COLUMNS)
    headers = ["run", "step", "times as fast", "lower bound", *columns]
    rows = []
    for number, view in enumerate(views):
        step_secs, speedup = _find_step_secs(view), find_subject(view).speedup
        cells = [
            " · ".join(filter(None, [RUN_NAMES[number], view.name, view.title])),
            "none fits" if step_secs is None else format_step(step_secs),
            "-" if speedup is None or step_secs is None else f"{speedup:.2f}x",
            "-" if view.limits is None else format_step(view.limits.lower_bound_secs),
        ]
        rows.append((*cells, *(column[number] for _, column in columns.values())))
    return headers, rows


def list_run_remarks(views: Sequence[RunView], machines: Sequence[ComparedMachine]) -> list[str]:
    """Lists the sentences of `compare` about the plans of a page, without the fastest of them.

    Args:
        views: the runs.
        machines: their machines; see `compare_views`.
    """
    planned = [each for each, view in zip(machines, views, strict=True) if _is_plan(view)]
    return describe_remarks(planned)


def describe_runs(views: Sequence[RunView]) -> str:
    """Says which of several runs has the shortest step, and which the cheapest."""
    titles = _title_runs(views)
    named = list(zip(titles, views, strict=True))
    steps = {name: secs for name, view in named if (secs := _find_step_secs(view)) is not None}
    if not steps:
        return "None of the runs has a step. Nothing that was tried runs or fits"
    fastest = min(steps, key=steps.__getitem__)
    sentences = [f"{titles[fastest]} is the fastest: {format_step(steps[fastest])} a step"]
    costs = {
        name: cost
        for name, view in named
        if (cost := compute_cost(steps.get(name), view.price_per_hour)) is not None
    }
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


def _title_runs(views: Sequence[RunView]) -> dict[str, str]:
    """Makes the names of runs in sentences, by their letters."""
    return {
        name: f"{name} ({pathlib.PurePath(view.name).name})" if view.name else name
        for name, view in zip(RUN_NAMES, views, strict=False)
    }


def _is_plan(view: RunView) -> bool:
    return not view.is_measured and view.problem is not None and bool(view.steps)
