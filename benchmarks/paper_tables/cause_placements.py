"""Placements of the tables, taken apart: what each placer makes of a problem, and why so."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence

import numpy as np

from benchmarks.harness.placement_runs import Run
from benchmarks.harness.run_placers import make_run_placer
from benchmarks.paper_tables.published_tables import TABLES
from benchmarks.paper_tables.step_causes import StepCauses, break_even_factor, step_causes
from benchmarks.problems.paper import PaperProblem, ProblemKey
from tf_placer.environments.environment import Failure, FailureKind, Measurement
from tf_placer.problem.problem_groups import group_graph, legal_devices
from tf_placer.simulation.lower_bounds import lower_bounds
from tf_placer.simulation.simulator import Simulator

__all__ = [
    "FOUND",
    "ONE_GPU",
    "Against",
    "Placed",
    "against_published",
    "backward_on_first",
    "place_all",
    "proposals",
    "single_operations",
]

ONE_GPU = "single_gpu"
"""The placement that others are compared with."""

FOUND = "found"
"""What the placement of a saved run is called."""


_FIRST_GPU = 1
# More than the papers' own placements have.
_MAX_PROPOSALS = 16
_NOT_MEASURED = Measurement(failure=Failure(FailureKind.TIMEOUT, "not measured"))


@dataclasses.dataclass(frozen=True)
class Placed:
    """A placement of a model on a machine, taken apart.

    Attributes:
        model: of the catalogue.
        machine: name of a described machine.
        parts: what the placement is made of.
        placer: whose placement it is, or `FOUND`.
        found_by: of `FOUND`, the placer of the run.
        failure: why there is no placement; else None.
        causes: of its step; None if there is no placement.
        break_even: how many times longer transfers may take until one GPU is as fast; None if it
            is already, or if the placement does not fit.
    """

    model: str
    machine: str
    parts: str
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

    def of(self, key: ProblemKey) -> bool:
        """Says whether it is a placement of this model on this machine."""
        return (self.model, self.machine) == (key.model, key.machine)


@dataclasses.dataclass(frozen=True)
class Against:
    """A published step by that on one GPU, and ours.

    Attributes:
        table: name of the table.
        problem: for people: "nmt_2 on 4xK80".
        method: title of the column.
        published: the published step by the published step on one GPU.
        ours: our step by ours on one GPU.
        factor: how many times longer all transfers would have to take for ours to be as much;
            None if it is more already.
    """

    table: str
    problem: str
    method: str
    published: float
    ours: float
    factor: float | None


def proposals(
    placer: str, model: str, problem: PaperProblem, options: Mapping[str, str] | None = None
) -> np.ndarray:
    """Collects what a placer proposes: all that it knows, or one placement if it is random.

    Args:
        placer: one of `run_placers.ALL_PLACERS`.
        model: of the catalogue.
        problem: the model on a machine.
        options: of the placer.

    Returns:
        int32 [num_placements, num_groups].

    Raises:
        ImportError, OSError: something that the placer needs is not installed.
        ValueError: the placer refuses the problem.
    """
    made = make_run_placer(placer, options or {}, model, problem, seed=0)
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
    parts: str = "groups",
) -> list[Placed]:
    """Takes apart what each placer makes of a problem.

    Args:
        key: which problem.
        problem: the model on the machine.
        placers: whose placements; `ONE_GPU` is what the others are compared with.
        found: a run whose placement is taken apart, too.
        parts: what the placements are made of, for people.
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
        about = Placed(key.model, key.machine, parts, placer)
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


def against_published(key: ProblemKey, problem: PaperProblem) -> list[Against]:
    """Sets published steps of splits, divided by those of one GPU, beside ours.

    Args:
        key: which problem; of which nothing was published, there are none.
        problem: the model on the machine.
    """
    simulator = Simulator(problem.problem, threads=1)
    one_gpu = proposals(ONE_GPU, key.model, problem)[0]
    against = []
    for table in (TABLES["colocrl_2"], TABLES["post_1"]):
        rows = [row for row in table.rows if (row.model, row.machine) == (key.model, key.machine)]
        for row in rows:
            titles = {column.placer: column for column in table.columns}
            of_one = table.published(row, titles[ONE_GPU])
            for column in table.columns:
                known, published = column.placer_for(row), table.published(row, column)
                if not (column.is_baseline and known and known[0] not in (ONE_GPU, "single_cpu")):
                    continue
                if not (of_one and of_one.value and published and published.value):
                    continue
                ratio = published.value / of_one.value
                try:
                    placements = proposals(known[0], key.model, problem, dict(known[1]))
                except (ImportError, OSError):
                    continue
                placement = _fastest(simulator, placements)
                secs = simulator.simulate(np.stack([placement, one_gpu])).step_secs
                if (placement == one_gpu).all():
                    continue
                factor = break_even_factor(problem.problem, placement, one_gpu, ratio)
                against.append(
                    Against(
                        table.name,
                        f"{key.model} on {key.machine}",
                        column.title,
                        ratio,
                        float(secs[0] / secs[1]),
                        factor,
                    )
                )
    return against


def single_operations(problem: PaperProblem) -> PaperProblem:
    """Makes every operation a group of its own, as TensorFlow would not have it."""
    alone = dataclasses.replace(
        problem.problem, groups=np.arange(problem.problem.num_operations, dtype=np.int32)
    )
    return dataclasses.replace(
        problem, problem=alone, groups=group_graph(alone), legal=legal_devices(alone)
    )


def backward_on_first(key: ProblemKey, problem: PaperProblem, alone: PaperProblem) -> Placed:
    """Puts the backward pass of the papers' placement on the first GPU, as without colocation.

    Args:
        key: which problem.
        problem: the problem.
        alone: the same with single operations as groups.
    """
    expert = proposals("model_expert", key.model, problem)[0][problem.problem.groups]
    backward = [name.startswith("gradients/") for name in problem.problem.operation_names]
    wanted = np.where(backward, _FIRST_GPU, expert)
    allowed = alone.legal[np.arange(len(wanted)), wanted]
    placement = np.where(allowed, wanted, alone.legal.argmax(axis=1)).astype(np.int32)
    bound_secs = lower_bounds(problem.problem).step_secs
    return Placed(
        key.model,
        key.machine,
        "single operations",
        "model_expert, backward pass on GPU 0",
        causes=step_causes(alone.problem, placement, bound_secs),
    )
