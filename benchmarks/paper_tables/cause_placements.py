"""Placements of the tables, taken apart: what each placer makes of a problem, and why so."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import numpy as np

from benchmarks.harness.placement_runs import Run
from benchmarks.harness.run_placers import make_run_placer
from benchmarks.paper_tables.step_causes import StepCauses, break_even_factor, step_causes
from benchmarks.problems.paper import PaperProblem, ProblemKey
from tf_placer.environments.environment import Failure, FailureKind, Measurement
from tf_placer.simulation.lower_bounds import lower_bounds
from tf_placer.simulation.simulator import Simulator

__all__ = ["FOUND", "ONE_GPU", "Placed", "place_all", "proposals"]

ONE_GPU = "single_gpu"
"""The placement that others are compared with."""

FOUND = "found"
"""What the placement of a saved run is called."""

# More than the papers' own placements have.
_MAX_PROPOSALS = 16
_NOT_MEASURED = Measurement(failure=Failure(FailureKind.TIMEOUT, "not measured"))


@dataclasses.dataclass(frozen=True)
class Placed:
    """A placement of a model on a machine, taken apart.

    Attributes:
        model: of the catalogue.
        machine: name of a described machine.
        placer: whose placement it is, or `FOUND`.
        found_by: of `FOUND`, the placer of the run.
        failure: why there is no placement; else None.
        causes: of its step; None if there is no placement.
        break_even: how many times longer transfers may take until one GPU is as fast; None if it
            is already, or if the placement does not fit.
    """

    model: str
    machine: str
    placer: str
    found_by: str | None = None
    failure: str | None = None
    causes: StepCauses | None = None
    break_even: float | None = None

    @property
    def problem(self) -> str:
        """For people: "nmt_2 on 4xK80"."""
        return f"{self.model} on {self.machine}"

    @property
    def label(self) -> str:
        """The placer, for people."""
        return f"{self.placer} by {self.found_by}" if self.found_by else self.placer

    @property
    def to_bound(self) -> float:
        """The step by the lower bound; infinite without a placement."""
        if self.causes is None:
            return math.inf
        return self.causes.step_secs / self.causes.bound_secs if self.causes.bound_secs else 1.0

    @property
    def fits(self) -> bool:
        """Whether there is a placement, and it fits."""
        return self.causes is not None and self.causes.fits


def proposals(placer: str, model: str, problem: PaperProblem) -> np.ndarray:
    """Collects what a placer proposes: all that it knows, or one placement if it is random.

    Args:
        placer: one of `run_placers.ALL_PLACERS`.
        model: of the catalogue.
        problem: the model on a machine.

    Returns:
        int32 [num_placements, num_groups].

    Raises:
        ImportError, OSError: something that the placer needs is not installed.
        ValueError: the placer refuses the problem.
    """
    made = make_run_placer(placer, {}, model, problem, seed=0)
    found: list[np.ndarray] = []
    while len(found) < (1 if placer == "random" else _MAX_PROPOSALS):
        proposed = made.propose(1)
        if not len(proposed):
            break
        found += list(proposed)
        made.observe(proposed, [_NOT_MEASURED])
    return np.array(found, np.int32)


def place_all(
    key: ProblemKey,
    problem: PaperProblem,
    placers: Sequence[str],
    found: Run | None = None,
) -> list[Placed]:
    """Takes apart what each placer makes of a problem.

    Args:
        key: which problem.
        problem: the model on the machine.
        placers: whose placements; `ONE_GPU` is what the others are compared with.
        found: a run whose placement is taken apart, too.
    """
    bound_secs = lower_bounds(problem.problem).step_secs
    simulator = Simulator(problem.problem, threads=1)
    one_gpu = proposals(ONE_GPU, key.model, problem)[0]
    wanted: list[tuple[str, np.ndarray | str]] = []
    for placer in placers:
        try:
            of_placer = proposals(placer, key.model, problem)
        except (ImportError, OSError, ValueError) as error:
            wanted.append((placer, " ".join(str(error).split())))
            continue
        wanted.append((placer, _fastest(simulator, of_placer)))
    if found is not None and found.found is not None and found.found.assignment is not None:
        wanted.append((FOUND, np.array(found.found.assignment, np.int32)))
    placed = []
    for placer, placement in wanted:
        about = Placed(key.model, key.machine, placer)
        if isinstance(placement, str):
            placed.append(dataclasses.replace(about, failure=placement))
            continue
        causes = step_causes(problem.problem, placement, bound_secs)
        factor = break_even_factor(problem.problem, placement, one_gpu) if causes.fits else None
        placed.append(
            dataclasses.replace(
                about,
                found_by=found.key.label if found and placer == FOUND else None,
                causes=causes,
                break_even=factor,
            )
        )
    return placed


def _fastest(simulator: Simulator, placements: np.ndarray) -> np.ndarray:
    """Picks the fastest that fits, and if none does, the fastest."""
    batch = simulator.simulate(placements)
    fastest: np.ndarray = placements[np.lexsort([batch.step_secs, ~batch.feasible])[0]]
    return fastest
