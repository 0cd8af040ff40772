"""Explanation of the result of a live search: predicted and measured steps, and limits."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from graph_passes.grouping.group_graph import GroupGraph
from graph_passes.util.json_records import read_record
from tf_placer.placers.auto.cost_fit import CostFactors, fit_factors, scale_costs
from tf_placer.problem.placement_problem import PlacementProblem
from tf_placer.report.limits import Limits, find_limits
from tf_placer.report.what_if import WhatIf, search_changed_machines
from tf_placer.simulation.simulator import Simulator

__all__ = ["Explanation", "MeasuredCandidate", "explain", "fit_corrected_costs"]

_MAX_FITTED_PLACEMENTS = 16


@dataclasses.dataclass(frozen=True)
class MeasuredCandidate:
    """A placement that was measured.

    Attributes:
        label: the name of the placement, for people.
        predicted_secs: the step time in simulation with corrected costs; None if it cannot be
            simulated.
        measured_secs: the step time beside the original; None if it did not run.
    """

    label: str
    predicted_secs: float | None
    measured_secs: float | None


@dataclasses.dataclass(frozen=True)
class Explanation:
    """The explanation of a placement.

    Attributes:
        label: the name of the placement.
        candidates: the measured placements, the original first.
        error: typical relative difference between predicted and measured steps of the candidates,
            as a standard deviation of the logarithm of their ratio, about 0.
        limits: the limits of the placement.
        changes: the steps on other machines.
        compute_factors: a factor for each device, by which profiled costs of operations were
            multiplied; empty if unknown.
        transfer_factor: the factor of all transfers.
    """

    label: str
    candidates: tuple[MeasuredCandidate, ...]
    error: float
    limits: Limits
    changes: tuple[WhatIf, ...]
    # Explanations of older versions lack these fields.
    compute_factors: tuple[float, ...] = ()
    transfer_factor: float = 1.0

    def to_json(self) -> dict[str, Any]:
        """Makes the JSON form."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, value: object) -> Explanation:
        """Reads the JSON form.

        Raises:
            ValueError: the value is no explanation.
        """
        return read_record(cls, value, "explanation")


def fit_corrected_costs(
    problem: PlacementProblem, ran: Sequence[tuple[Sequence[int], float]]
) -> CostFactors:
    """Fits factors that correct the profiled costs to the fastest measured steps.

    Args:
        problem: the problem with the profiled costs.
        ran: placements, a device index per group, and their step times in seconds; at least one.
    """
    fastest = sorted(ran, key=lambda each: each[1])[:_MAX_FITTED_PLACEMENTS]
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
    """Corrects the costs by the measured steps, and explains one of the placements.

    Args:
        problem: the problem with the profiled costs.
        groups: the groups of the problem.
        measured: by label, a device index per group, or None for an original that has no
            placement of groups, and the step time in seconds, or None if it did not run. At least
            one has both.
        label: the placement to explain, which ran.
        search_secs: time limit of the searches for other machines.
        seed: seed of these searches.
    """
    rows = {
        name: np.array(assignment, np.int32)
        for name, (assignment, _) in measured.items()
        if assignment is not None
    }
    ran = [(tuple(rows[name]), secs) for name, (_, secs) in measured.items() if name in rows]
    factors = fit_corrected_costs(problem, [(row, secs) for row, secs in ran if secs is not None])
    corrected = scale_costs(problem, factors.compute, factors.transfer)
    simulated = Simulator(corrected, memory=False).simulate(np.stack(list(rows.values())))
    predicted = {
        name: float(secs)
        for name, secs in zip(rows, simulated.step_secs, strict=True)
        if math.isfinite(secs)
    }
    # Other machines must not be reported as slower than a step that is predicted for this one.
    ran_names = [name for name in predicted if measured[name][1] is not None]
    fastest = min(ran_names, key=lambda name: predicted[name], default=label)
    candidates = tuple(
        MeasuredCandidate(name, predicted.get(name), secs) for name, (_, secs) in measured.items()
    )
    return Explanation(
        label=label,
        candidates=candidates,
        error=_compute_error(candidates),
        limits=find_limits(corrected, rows[label]),
        changes=search_changed_machines(
            corrected,
            groups,
            rows[label],
            running=[] if fastest == label else [rows[fastest]],
            search_secs=search_secs,
            seed=seed,
        ),
        compute_factors=tuple(factors.compute.tolist()),
        transfer_factor=factors.transfer,
    )


def _compute_error(candidates: Sequence[MeasuredCandidate]) -> float:
    """Computes the error of the predictions, of all candidates that have one and ran."""
    logs = [
        math.log(each.measured_secs / each.predicted_secs)
        for each in candidates
        if each.measured_secs and each.predicted_secs
    ]
    return float(np.sqrt(np.mean(np.square(logs)))) if logs else 0.0
