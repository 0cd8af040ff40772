"""What a page about a search shows, whether steps were measured or simulated."""

from __future__ import annotations

import dataclasses

import numpy as np

from tf_placer.placers import make_placer
from tf_placer.problem.placement_problem import PlacementProblem
from tf_placer.problem.problem_groups import group_graph, legal_devices
from tf_placer.report.limits import Limits
from tf_placer.report.what_if import WhatIf
from tf_placer.simulation.simulator import Simulator, StepTrace
from tf_placer.simulation.step_report import StepReport, step_report

__all__ = ["Compared", "Point", "RunView", "StepView", "baseline_placements", "view_step"]

# More than these propose.
_MANY = 1000


@dataclasses.dataclass(frozen=True, eq=False)
class StepView:
    """One simulated step that the page shows.

    Attributes:
        label: what it is a step of.
        placement: int32 [num_groups].
        trace: the step.
        report: what it spends its time and memory on.
    """

    label: str
    placement: np.ndarray
    trace: StepTrace
    report: StepReport


@dataclasses.dataclass(frozen=True)
class Compared:
    """A placement in the comparison.

    Attributes:
        label: who proposed it, for people.
        step_secs: measured or, in a plan, simulated; None if it did not run.
        predicted_secs: what was predicted of a measured one; None if nothing was.
        speedup: step of the original / its own; None if either did not run.
        interval: 95 % confidence interval of the speed-up; None if there is none.
        basis: what the numbers rest on, or why there are none.
        is_found: whether it is the answer of the search.
    """

    label: str
    step_secs: float | None
    predicted_secs: float | None = None
    speedup: float | None = None
    interval: tuple[float, float] | None = None
    basis: str = ""
    is_found: bool = False


@dataclasses.dataclass(frozen=True)
class Point:
    """A trial, or a sample of a simulated search.

    Attributes:
        number: of the trial or sample.
        elapsed_secs: time spent searching when it ended.
        step_secs: its step; None if it failed.
        placer: who proposed it.
        time: when it ended, ISO 8601 in UTC; empty if not known.
        failure: why it failed; empty if it did not.
    """

    number: int
    elapsed_secs: float
    step_secs: float | None
    placer: str
    time: str = ""
    failure: str = ""


@dataclasses.dataclass(frozen=True, eq=False)
class RunView:
    """Everything that the page about a search shows.

    Attributes:
        title: what was placed where.
        verdict: placed or unchanged, by how much, how sure, and what would help.
        is_better: whether something faster was found.
        is_measured: whether steps were measured; else they were simulated.
        compared: the original first.
        steps: the original, if its placement is known, and what was found.
        points: of the search over time.
        best: the best so far, whenever there was a better one.
        limits: what bounds what was found; None if costs are not known.
        changes: what other machines would bring.
        problem: what was placed, with its costs; None if they are not known.
        notes: what else a reader has to know.
        facts: names and values of what the run is of.
    """

    title: str
    verdict: str
    is_better: bool
    is_measured: bool
    compared: tuple[Compared, ...]
    steps: tuple[StepView, ...] = ()
    points: tuple[Point, ...] = ()
    best: tuple[Point, ...] = ()
    limits: Limits | None = None
    changes: tuple[WhatIf, ...] = ()
    problem: PlacementProblem | None = None
    notes: tuple[str, ...] = ()
    facts: tuple[tuple[str, str], ...] = ()


def view_step(label: str, problem: PlacementProblem, placement: np.ndarray) -> StepView | None:
    """Simulates a step; None if an operation is where it may not go."""
    rows = np.asarray(placement, np.int32)
    if not np.isfinite(
        problem.compute_secs[np.arange(len(problem.groups)), rows[problem.groups]]
    ).all():
        return None
    trace = Simulator(problem, threads=1).trace(rows)
    return StepView(label, rows, trace, step_report(trace))


def baseline_placements(problem: PlacementProblem) -> list[tuple[str, np.ndarray]]:
    """Makes what people would do without a search: one device, or a split by layer.

    Returns:
        Labels and placements, int32 [num_groups].
    """
    groups, legal = group_graph(problem), legal_devices(problem)
    found = []
    for name, label in (("single_device", "one device"), ("expert", "split by layer")):
        placer = make_placer(name, groups, legal, seed=0, options={}, problem=problem)
        for placement in placer.propose(_MANY):
            found.append((label, placement))
    return found
