"""Contents of the page about a search, with measured or simulated steps."""

from __future__ import annotations

import dataclasses
import string
from collections.abc import Mapping
from typing import Any

import numpy as np

from tf_placer.placers import make_placer
from tf_placer.problem.placement_problem import PlacementProblem
from tf_placer.problem.problem_groups import group_graph, legal_devices
from tf_placer.report.limits import Limits
from tf_placer.report.memory_curve import MemoryPoint, MoreMemory
from tf_placer.report.what_if import WhatIf
from tf_placer.simulation.simulator import Simulator, StepTrace
from tf_placer.simulation.step_report import StepReport, step_report

__all__ = [
    "BASELINES",
    "ONE_DEVICE",
    "RUN_NAMES",
    "ComparedPlacement",
    "Point",
    "RunView",
    "StepView",
    "baseline_placements",
    "view_step",
]

#: The label of the baseline with everything on one device.
ONE_DEVICE = "one device"
#: The labels of baselines by the names of their placers.
BASELINES = {"single_device": ONE_DEVICE, "expert": "split by layer"}

#: The names of the runs on a page about several.
RUN_NAMES = tuple(string.ascii_uppercase)
# An upper bound of the number of baselines.
_MAX_BASELINES = 1000


@dataclasses.dataclass(frozen=True, eq=False)
class StepView:
    """A simulated step of a placement.

    Attributes:
        label: the name of the placement.
        placement: int32 [num_groups], a device index per group.
        trace: the simulated step.
        report: the use of time and memory in it.
    """

    label: str
    placement: np.ndarray
    trace: StepTrace
    report: StepReport


@dataclasses.dataclass(frozen=True)
class ComparedPlacement:
    """A placement in the comparison.

    Attributes:
        label: the name of the placement, for people.
        step_secs: the step time, measured or, in a plan, simulated; None if it did not run.
        predicted_secs: the predicted step time of a measured placement; None without prediction.
        speedup: step time of the original / of the placement; None if either did not run.
        interval: 95 % confidence interval of the speed-up; None if there is none.
        basis: the source of the numbers, or the reason for their absence.
        is_found: whether it is the result of the search.
        searched_secs: the step time in its trial, before any confirmation; None if unknown.
    """

    label: str
    step_secs: float | None
    predicted_secs: float | None = None
    speedup: float | None = None
    interval: tuple[float, float] | None = None
    basis: str = ""
    is_found: bool = False
    searched_secs: float | None = None


@dataclasses.dataclass(frozen=True)
class Point:
    """A trial, or a sample of a simulated search.

    Attributes:
        number: the number of the trial or sample.
        elapsed_secs: the search time until its end.
        step_secs: the step time; None if it failed.
        placer: the placer that proposed it.
        time: its end, ISO 8601 in UTC; empty if unknown.
        failure: the reason of its failure; empty if it did not fail.
    """

    number: int
    elapsed_secs: float
    step_secs: float | None
    placer: str
    time: str = ""
    failure: str = ""


@dataclasses.dataclass(frozen=True, eq=False)
class RunView:
    """The contents of the page about a search.

    Attributes:
        title: what was searched, and the machine.
        verdict: placed or unchanged, the speed-up with its certainty, and advice.
        is_better: whether a faster placement was found.
        is_measured: whether steps were measured, and not simulated.
        compared: the compared placements, the original first.
        steps: the original, if its placement is known, and the placement found.
        points: the trials or samples of the search.
        best: each improvement of the best step time.
        limits: the limits of the placement found; None if costs are unknown.
        changes: the steps on other machines.
        error: see `describe_gain_here`.
        memory_curve: the steps within less memory.
        problem: the problem with its costs; None if they are unknown.
        notes: further remarks for readers.
        facts: names and values of the settings of the run.
        graph_fingerprint: the fingerprint of the graph; empty if unknown.
        feeds: types and shapes of the fed tensors, as text by name.
        original_id: identifies the graph, step and machine of a measured original; empty if
            unknown.
        has_ended: whether the search has come to its end.
        graph: what people call the graph, and the batch; empty if unknown.
        name: the name of the run, or its directory; empty if it was not named.
        placer: the name of the placer; empty if unknown.
        price_per_hour: the price of its machine; None if it was not given.
        needed: the number of accelerators that were found to be enough for a step at most 2 %
            longer; None if not searched.
        least_memory_bytes: the memory of devices with which a placement was found, where none fits;
            None if not searched.
        more_memory: the memory of GPUs for a shorter step, where a CPU works for want of it; None
            if not searched.
        gpus_only_secs: the step that was found without the work of CPUs; None if not searched.
        num_left_out: the number of placements that are not compared, because others are faster.
        is_slower_than_one_process: whether one process on all cores is faster than the placement.
    """

    title: str
    verdict: str
    is_better: bool
    is_measured: bool
    compared: tuple[ComparedPlacement, ...]
    steps: tuple[StepView, ...] = ()
    points: tuple[Point, ...] = ()
    best: tuple[Point, ...] = ()
    limits: Limits | None = None
    changes: tuple[WhatIf, ...] = ()
    error: float = 0.0
    memory_curve: tuple[MemoryPoint, ...] = ()
    problem: PlacementProblem | None = None
    notes: tuple[str, ...] = ()
    facts: tuple[tuple[str, str], ...] = ()
    graph_fingerprint: str = ""
    feeds: Mapping[str, str] = dataclasses.field(default_factory=dict)
    original_id: tuple[Any, ...] = ()
    has_ended: bool = True
    graph: str = ""
    name: str = ""
    placer: str = ""
    price_per_hour: float | None = None
    needed: int | None = None
    least_memory_bytes: int | None = None
    more_memory: MoreMemory | None = None
    gpus_only_secs: float | None = None
    num_left_out: int = 0
    is_slower_than_one_process: bool = False


def view_step(label: str, problem: PlacementProblem, placement: np.ndarray) -> StepView | None:
    """Simulates a step; None if an operation is on a device that cannot run it."""
    rows = np.asarray(placement, np.int32)
    if not np.isfinite(
        problem.compute_secs[np.arange(len(problem.groups)), rows[problem.groups]]
    ).all():
        return None
    trace = Simulator(problem, threads=1).trace(rows)
    return StepView(label, rows, trace, step_report(trace))


def baseline_placements(problem: PlacementProblem) -> list[tuple[str, np.ndarray]]:
    """Makes the baselines: everything on one device, and splits by layer.

    Returns:
        Labels and placements, int32 [num_groups].
    """
    groups, legal = group_graph(problem), legal_devices(problem)
    found = []
    for name, label in BASELINES.items():
        placer = make_placer(name, groups, legal, seed=0, options={}, problem=problem)
        for placement in placer.propose(_MAX_BASELINES):
            found.append((label, placement))
    return found
