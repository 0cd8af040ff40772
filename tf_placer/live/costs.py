"""The profiled costs of the operations of a live search, kept in its directory."""

from __future__ import annotations

import dataclasses
import hashlib
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tf_placer.errors import SearchError, describe_error
from tf_placer.files import read_json, write_json
from tf_placer.placers.auto.cost_fit import scale_costs
from tf_placer.problem.placement_problem import PlacementProblem
from tf_placer.problem.problem_error import ProblemError
from tf_placer.problem.problem_file import read_problem, write_problem
from tf_placer.report.explanation import fit_corrected_costs
from tf_placer.runs.header import select_cost_fields
from tf_placer.runs.run_directory import RunDirectory
from tf_placer.search.config import SearchConfig
from tf_placer.search.log_header import find_subject, upgrade_header
from tf_placer.search.trial_log import ORIGINAL, Trial
from tf_placer.simulation.lower_bounds import lower_bounds
from tf_placer.text.units import format_duration

__all__ = ["LiveCosts", "estimate_bound", "profile_costs", "read_costs"]

_FORMAT = 1


@dataclasses.dataclass(frozen=True, eq=False)
class LiveCosts:
    """The costs of a graph on the machine of a search.

    Attributes:
        problem: the placement problem with the costs.
        secs: duration of profiling in seconds.
    """

    problem: PlacementProblem
    secs: float


def estimate_bound(
    costs: LiveCosts, trials: Sequence[Trial], original_assignment: Sequence[int] | None
) -> float | None:
    """Estimates a lower bound of the step time of any placement, in seconds.

    Args:
        costs: the profiled costs, which measurements correct.
        trials: the trials so far.
        original_assignment: the device of each group in the original graph; None if a group has
            several.

    Returns:
        The bound by simulation; None if no placement of groups has run.
    """
    ran = _list_measured(trials, original_assignment)
    if not ran:
        return None
    factors = fit_corrected_costs(costs.problem, ran)
    problem = scale_costs(costs.problem, factors.compute, factors.transfer)
    return float(lower_bounds(problem).step_secs)


def _list_measured(
    trials: Sequence[Trial], original_assignment: Sequence[int] | None
) -> list[tuple[tuple[int, ...], float]]:
    """Lists the placements that ran, the original included, with the seconds of their steps."""
    placed = [
        (original_assignment if trial.placer == ORIGINAL else trial.assignment, trial)
        for trial in trials
    ]
    return [
        (tuple(assignment), trial.measurement.median_secs)
        for assignment, trial in placed
        if assignment is not None and trial.measurement.median_secs is not None
    ]


def read_costs(
    directory: RunDirectory, header: Mapping[str, Any]
) -> tuple[LiveCosts | None, str | None]:
    """Reads the costs of an earlier call; writes nothing.

    Args:
        directory: the directory of the search.
        header: the header of the search; see `live_header`.

    Returns:
        The costs, or None if there are none to reuse; and a line for users about the files there,
        or None if there are none.

    Raises:
        OSError: the files exist and cannot be read.
    """
    # The profile is written after the problem, so a single file is from a killed search.
    if not directory.problem.exists() or not directory.profile.exists():
        return None, None

    def unusable(reason: str) -> tuple[None, str]:
        return None, f"the costs in {directory.problem} are not used: {reason}"

    try:
        profile = upgrade_header(read_json(directory.profile))
        if profile["format"] != _FORMAT:
            return unusable(f"{directory.profile} has format {profile['format']!r}, not {_FORMAT}")
        asked, known = select_cost_fields(header), select_cost_fields(profile)
        for field in asked | known:
            if known.get(field) != asked.get(field):
                return unusable(f"they are of another {find_subject(field)}")
        if profile["problem_sha256"] != _digest(directory):
            return unusable("the file has been changed")
        costs = LiveCosts(read_problem(directory.problem), float(profile["secs"]))
    except (KeyError, TypeError, ValueError) as error:
        return unusable(f"{directory.profile} does not say what they are of ({error!r})")
    took = format_duration(costs.secs)
    return costs, f"the costs are those in {directory.problem}, which took {took} to profile"


def profile_costs(
    directory: RunDirectory,
    config: SearchConfig,
    header: Mapping[str, Any],
    report: Callable[[str], None],
    *,
    make_problem: Callable[..., PlacementProblem],
    steps: int,
    trials: Sequence[Trial],
    original_assignment: Sequence[int] | None,
) -> LiveCosts:
    """Profiles the graph on the machine of a search and keeps the costs in its directory.

    Args:
        directory: the directory of the search.
        config: the settings of the search, with the machine that was found.
        header: the header of the search; see `live_header`.
        report: called with lines for users.
        make_problem: profiles the graph; see `Measurer.make_problem`.
        steps: steps to trace on each kind of device.
        trials: trials that were measured already.
        original_assignment: see `estimate_bound`.

    Returns:
        The costs.

    Raises:
        SearchError, WorkerStartError, MachineError: the graph cannot be profiled.
    """
    needs = f"placer {config.placer!r} needs to know what the operations cost"
    report(f"{needs}: profiling the graph on {config.found_machine.spec}")
    start_secs = time.monotonic()
    try:
        problem = make_problem(
            steps=steps,
            granularity=header["granularity"],
            report=report,
            known_secs=dict(_list_measured(trials, original_assignment)),
        )
    except SearchError as error:
        raise SearchError(f"{needs}, but {error}") from None
    secs = round(time.monotonic() - start_secs, 3)
    try:
        _keep(directory, problem, secs, header, steps)
        kept = f"the costs are in {directory.problem}"
    except (OSError, ProblemError) as error:
        kept = f"the costs are not kept: {describe_error(error)}"
    report(
        f"profiled {problem.num_operations} operations and {problem.num_tensors} tensors in "
        f"{format_duration(secs)}; {kept}"
    )
    return LiveCosts(problem, secs)


def _keep(
    directory: RunDirectory,
    problem: PlacementProblem,
    secs: float,
    header: Mapping[str, Any],
    steps: int,
) -> None:
    directory.profile.unlink(missing_ok=True)
    write_problem(problem, directory.problem)
    profile = {
        "format": _FORMAT,
        **select_cost_fields(header),
        "steps": steps,
        "secs": secs,
        "versions": header["versions"],
        "problem_sha256": _digest(directory),
    }
    write_json(directory.profile, profile)


def _digest(directory: RunDirectory) -> str:
    return hashlib.sha256(directory.problem.read_bytes()).hexdigest()
