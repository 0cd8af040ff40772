"""Why a live search chose what it chose: predicted and measured steps, and what bounds the best."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from graph_passes.grouping.group_graph import GroupGraph
from graph_passes.util.json_records import read_record
from tf_placer.placers.auto.cost_fit import CostFactors, fit_factors, with_factors
from tf_placer.problem.placement_problem import PlacementProblem
from tf_placer.report.limits import Limits, limits_of
from tf_placer.report.what_if import WhatIf, what_if
from tf_placer.simulation.simulator import Simulator

__all__ = ["Candidate", "Explanation", "corrected_costs", "explain"]

# Of more measured placements the fastest are what the costs are corrected by.
_MOST_FITTED = 16


@dataclasses.dataclass(frozen=True)
class Candidate:
    """A placement that was measured.

    Attributes:
        label: for people.
        predicted_secs: what a step takes in simulation, with corrected costs; None if it cannot be
            simulated.
        measured_secs: what it took in the search; None if it did not run.
    """

    label: str
    predicted_secs: float | None
    measured_secs: float | None


@dataclasses.dataclass(frozen=True)
class Explanation:
    """Why this placement.

    Attributes:
        label: the placement that is explained.
        candidates: what was measured, the graph as it came first.
        error: typical relative difference between predicted and measured steps, as a standard
            deviation of the logarithm of their ratio.
        limits: what bounds the placement.
        changes: what a step would take on other machines.
    """

    label: str
    candidates: tuple[Candidate, ...]
    error: float
    limits: Limits
    changes: tuple[WhatIf, ...]

    def to_json(self) -> dict[str, Any]:
        """Makes the JSON form: all fields."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, value: object) -> Explanation:
        """Reads what `to_json` wrote.

        Raises:
            ValueError: the value is no explanation.
        """
        return read_record(cls, value, "explanation")


def corrected_costs(
    problem: PlacementProblem, ran: Sequence[tuple[Sequence[int], float]]
) -> CostFactors:
    """Finds out by how much costs are larger than they were profiled, from the fastest steps.

    Args:
        problem: what was placed, with the costs as they were profiled.
        ran: placements, a device index per group, and the seconds of a step; at least one.
    """
    fastest = sorted(ran, key=lambda each: each[1])[:_MOST_FITTED]
    return fit_factors(
        problem,
        np.array([placement for placement, _ in fastest], np.int32),
        np.array([secs for _, secs in fastest]),
    )


def explain(
    problem: PlacementProblem,
    groups: GroupGraph,
    measured: Mapping[str, tuple[Sequence[int] | None, float | None]],
    label: str,
    *,
    search_secs: float,
    seed: int = 0,
) -> Explanation:
    """Corrects the costs by what was measured, and explains one of the placements.

    Args:
        problem: what was placed, with the costs as they were profiled.
        groups: its groups.
        measured: by label a device index per group, None for a graph as it came, and the seconds
            of a step, None where it did not run. At least one has both.
        label: of a placement that ran, to be explained.
        search_secs: seconds of searching for a machine with one more device.
        seed: of that search.
    """
    rows = {
        name: np.array(assignment, np.int32)
        for name, (assignment, _) in measured.items()
        if assignment is not None
    }
    ran = [(tuple(rows[name]), secs) for name, (_, secs) in measured.items() if name in rows]
    factors = corrected_costs(problem, [(row, secs) for row, secs in ran if secs is not None])
    corrected = with_factors(problem, factors.compute, factors.transfer)
    simulated = Simulator(corrected, memory=False).simulate(np.stack(list(rows.values())))
    predicted = {
        name: float(secs)
        for name, secs in zip(rows, simulated.step_secs, strict=True)
        if math.isfinite(secs)
    }
    return Explanation(
        label=label,
        candidates=tuple(
            Candidate(name, predicted.get(name), secs) for name, (_, secs) in measured.items()
        ),
        error=factors.deviation,
        limits=limits_of(corrected, rows[label]),
        changes=what_if(corrected, groups, rows[label], search_secs=search_secs, seed=seed),
    )
