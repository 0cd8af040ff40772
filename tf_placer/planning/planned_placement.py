"""The placement of a graph's operations that a search on its problem found."""

from __future__ import annotations

from typing import Any

from graph_passes.devices import is_device_name
from graph_passes.placement import Placement
from tf_placer.placers import AUTO
from tf_placer.placers.auto.candidate import Candidate
from tf_placer.problem.placement_problem import PlacementProblem
from tf_placer.search.simulated_search import SearchOutcome

__all__ = ["build_planned_placement", "describe_candidate", "outcome_values"]


def describe_candidate(
    best: Candidate,
    *,
    lower_bound_secs: float,
    trials: int,
    elapsed_secs: float,
    seed: int,
    interrupted: bool,
) -> SearchOutcome:
    """Makes the outcome of a search by `auto`; see `SearchOutcome` for the arguments."""
    return SearchOutcome(
        step_secs=best.step_secs,
        feasible=not best.excess_bytes,
        assignment=tuple(best.placement.tolist()),
        peak_bytes=tuple(best.peak_bytes.tolist()),
        lower_bound_secs=lower_bound_secs,
        trials=trials,
        elapsed_secs=round(elapsed_secs, 3),
        placer=AUTO,
        seed=seed,
        interrupted=interrupted,
    )


def outcome_values(
    problem: PlacementProblem, outcome: SearchOutcome, *, has_ended: bool = True
) -> dict[str, Any]:
    """Makes the JSON form of an outcome with its placement, as the result file has it.

    Args:
        problem: the problem.
        outcome: the best placement so far.
        has_ended: whether the search has ended, so that the outcome is its result.
    """
    placement = build_planned_placement(problem, outcome)
    values = None if placement is None else placement.to_values()
    return {**outcome.to_json(), "has_ended": has_ended, "placement": values}


def build_planned_placement(problem: PlacementProblem, outcome: SearchOutcome) -> Placement | None:
    """Builds the placement of operations from the devices of their groups.

    Args:
        problem: the problem.
        outcome: a placement that was found.

    Returns:
        The placement; None if the problem is not that of a TensorFlow graph, because devices have
        other names than in TensorFlow, or operations have no name of their own.
    """
    names, devices = problem.operation_names, tuple(device.name for device in problem.devices)
    if len(set(names)) < len(names) or not all(map(is_device_name, devices)):
        return None
    return Placement(
        graph_fingerprint="",
        devices=devices,
        assignment={
            name: devices[outcome.assignment[group]]
            for name, group in zip(names, problem.groups.tolist(), strict=True)
        },
        measurement={"simulated_step_secs": outcome.step_secs, "fits": outcome.feasible},
        provenance={
            "placer": outcome.placer,
            "seed": outcome.seed,
            "batch_size": problem.batch_size,
        },
    )
