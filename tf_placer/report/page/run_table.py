"""The table at the top of a page about several runs: their steps, and what they cost."""

from __future__ import annotations

import pathlib
from collections.abc import Sequence

from tf_placer.report.compared_machine import (
    AS_WELL_AS,
    ComparedMachine,
    compute_cost,
    describe_machine,
)
from tf_placer.report.machine_comparison import describe_remarks, format_price, make_columns
from tf_placer.report.page.captions import find_subject
from tf_placer.report.page.run_view import RUN_NAMES, RunView
from tf_placer.text.units import format_step

__all__ = [
    "compare_views",
    "describe_run",
    "describe_runs",
    "list_run_remarks",
    "make_run_table",
    "name_run",
    "title_page",
]

# The columns that the table of `compare` has, too.
_MACHINE_COLUMNS = ("enough", "data par.", "fullest device", "on CPU", "price/h", "1M steps")


def compare_views(views: Sequence[RunView]) -> list[ComparedMachine]:
    """Compares the machines of the runs of a page, as `compare` does; in the order of the runs.

    Of the machine of a measured run, only the step and the price are known.
    """
    machines = []
    for title, view in zip(_title_runs(views).values(), views, strict=True):
        if _is_plan(view) and view.problem is not None:
            machines.append(
                describe_machine(
                    *(title, view.problem, view.steps[-1].placement),
                    view.price_per_hour,
                    view.needed,
                    view.least_memory_bytes,
                    view.more_memory,
                    view.gpus_only_secs,
                )
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
        step_secs = _find_step_secs(view)
        # Plans are compared with one accelerator, where the model fits there.
        speedup = machines[number].speedup if _is_plan(view) else find_subject(view).speedup
        cells = [
            describe_run(views, number),
            "none fits" if step_secs is None else format_step(step_secs),
            _format_speedup(speedup, step_secs, machines[number]),
            "-" if view.limits is None else format_step(view.limits.lower_bound_secs),
        ]
        rows.append((*cells, *(column[number] for _, column in columns.values())))
    return headers, rows


def _format_speedup(
    speedup: float | None, step_secs: float | None, machine: ComparedMachine
) -> str:
    if step_secs is None:
        return "-"
    if speedup is not None:
        return f"{speedup:.2f}x"
    is_too_large = machine.accelerators > 0 and not machine.is_divided
    return f"1 {machine.device_type} is too small" if is_too_large else "-"


def list_run_remarks(views: Sequence[RunView], machines: Sequence[ComparedMachine]) -> list[str]:
    """Lists the sentences of `compare` about the plans of a page, without the fastest of them.

    Of several plans of one graph for one machine, they are about the fastest.

    Args:
        views: the runs.
        machines: their machines; see `compare_views`.
    """
    planned: dict[tuple[str, float], ComparedMachine] = {}
    for machine, view in zip(machines, views, strict=True):
        # Graphs with other batches differ in their bounds.
        problem = view.title, machine.lower_bound_secs
        known = planned.get(problem)
        if _is_plan(view) and (known is None or _is_faster(machine, known)):
            planned[problem] = machine
    return describe_remarks(list(planned.values()))


def _is_faster(machine: ComparedMachine, than: ComparedMachine) -> bool:
    return machine.step_secs is not None and (
        than.step_secs is None or machine.step_secs < than.step_secs
    )


def describe_run(views: Sequence[RunView], number: int) -> str:
    """Describes one of several runs by its letter, directory, graph and machine.

    The placer stands before the graph if others placed the same graph on the same machine.
    """
    view = views[number]
    placer = "" if _has_own_title(views, number) else view.placer
    return " · ".join(filter(None, [RUN_NAMES[number], view.name, placer, view.title]))


def title_page(views: Sequence[RunView]) -> str:
    """Titles a page: by the directory of a run and what was searched, or by what runs share."""
    first, *others = views
    if others and first.graph and {view.graph for view in others} == {first.graph}:
        return f"{first.graph}, {len(views)} runs"
    title = f"{first.graph}: {first.title}" if first.graph else first.title
    title = " · ".join(filter(None, [pathlib.PurePath(first.name).name, title]))
    return f"{title} and {len(others)} more" if others else title


def name_run(views: Sequence[RunView], number: int) -> str:
    """Names one of several runs by its letter and what tells it from the others.

    That is its title; its placer, if others have the same title; and its directory, too, if they
    also have the same placer.
    """
    view = views[number]
    if _has_own_title(views, number):
        return f"{RUN_NAMES[number]} · {view.title}"
    alike = [each for each in views if (each.title, each.placer) == (view.title, view.placer)]
    directory = pathlib.PurePath(view.name).name if len(alike) > 1 else ""
    known = list(filter(None, [view.placer, directory])) or [view.title]
    return " · ".join([RUN_NAMES[number], *known])


def _has_own_title(views: Sequence[RunView], number: int) -> bool:
    return [view.title for view in views].count(views[number].title) == 1


def describe_runs(views: Sequence[RunView], machines: Sequence[ComparedMachine]) -> str:
    """Says which of several runs has the shortest step, and which the cheapest.

    Args:
        views: the runs.
        machines: their machines; see `compare_views`.
    """
    titles = _title_runs(views)
    named = list(zip(titles, views, strict=True))
    steps = {name: secs for name, view in named if (secs := _find_step_secs(view)) is not None}
    if not steps:
        return "None of the runs has a step. Nothing that was tried runs or fits"
    fastest = min(steps, key=steps.__getitem__)
    noun = "fastest" if any(view.is_measured for view in views) else "fastest placement"
    limit_secs = AS_WELL_AS * steps[fastest]
    near = [titles[name] for name, secs in steps.items() if name != fastest and secs <= limit_secs]
    also = f"; within 2 % of it: {', '.join(near)}" if near else ""
    sentences = [f"{titles[fastest]} is the {noun}: {format_step(steps[fastest])} a step{also}"]
    shared = {
        name: machine.data_parallel_secs
        for name, machine in zip(titles, machines, strict=True)
        if machine.data_parallel_secs is not None
    }
    if shared and min(shared.values()) < steps[fastest]:
        name, secs = min(shared.items(), key=lambda item: item[1])
        sentences.append(
            "With data parallelism a step may take as little as "
            f"{format_step(secs)}, on {titles[name]}"
        )
    costs = {
        name: cost
        for name, view in named
        if (cost := compute_cost(steps.get(name), view.price_per_hour)) is not None
    }
    if len(costs) > 1:
        cheapest = min(costs, key=costs.__getitem__)
        among = "" if len(costs) == len(steps) else f" of the {len(costs)} with a price"
        price = format_price(costs[cheapest])
        sentences.append(f"{titles[cheapest]} is the cheapest{among}: {price} for a million steps")
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
