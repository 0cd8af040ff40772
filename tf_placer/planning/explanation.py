"""The explanation of a placement: the limits of its simulated step, and possible gains."""

from __future__ import annotations

import dataclasses
import os
import sys
from collections.abc import Mapping, Sequence

import numpy as np

from tf_placer.environments.simulated import SimulatedEnvironment
from tf_placer.interrupts import shorten_interrupts
from tf_placer.planning.simulated_step import check_assignment
from tf_placer.problem.placement_problem import PlacementProblem
from tf_placer.problem.problem_file import read_problem
from tf_placer.problem.problem_groups import group_graph
from tf_placer.report.auto_table import changes_table, limits_table
from tf_placer.report.limits import Limits, find_limits
from tf_placer.report.what_if import WhatIf, search_changed_machines
from tf_placer.text.progress_line import ProgressLine
from tf_placer.text.shown_table import ShownTable
from tf_placer.text.units import format_step

__all__ = ["PlacementExplanation", "explain"]


@dataclasses.dataclass(frozen=True, repr=False)
class PlacementExplanation(ShownTable):
    """The limits of a placement, and its gains on other machines.

    Attributes:
        limits: the lower bounds of its step.
        changes: the gains on other machines; empty if there was no time to compute them.
    """

    limits: Limits
    changes: tuple[WhatIf, ...]

    def table(self) -> str:
        """Shows the limits and the changes, without a final newline."""
        parts = [limits_table(self.limits, "the placement")]
        if self.changes:
            parts.append(changes_table(self.changes, self.limits.step_secs))
        return "\n\n".join(parts)

    def __repr__(self) -> str:
        step, bound = format_step(self.limits.step_secs), format_step(self.limits.lower_bound_secs)
        return f"<PlacementExplanation: step {step}, lower bound {bound}>"


@shorten_interrupts
def explain(
    problem: PlacementProblem | str | os.PathLike[str],
    assignment: Sequence[int] | np.ndarray | Mapping[str, str],
    *,
    max_secs: float = 20.0,
    seed: int = 0,
    verbose: bool = True,
) -> PlacementExplanation:
    """Finds the limits of the simulated step of a placement, and the gains on other machines.

    Args:
        problem: the placement problem, or its file.
        assignment: as `simulate` takes it.
        max_secs: seconds for the searches on other machines.
        seed: seed of these searches.
        verbose: whether to show on the standard error which of them runs.

    Raises:
        OSError: the file cannot be read.
        ValueError: the file is wrong, or the placement does not fit, or does not belong to the
            problem.
    """
    if not isinstance(problem, PlacementProblem):
        problem = read_problem(os.fspath(problem))
    placement = check_assignment(problem, assignment)
    [measurement] = SimulatedEnvironment(problem, threads=1).measure(placement[None])
    if measurement.failure is not None:
        raise ValueError(f"the placement does not run: {measurement.failure.message}")
    groups = group_graph(problem)
    with ProgressLine(sys.stderr if verbose else None) as line:
        changes = search_changed_machines(
            *(problem, groups, placement), search_secs=max_secs, seed=seed, progress=line.show
        )
    return PlacementExplanation(find_limits(problem, placement), changes)
