"""What the operations of a live search cost: profiled once, and kept in its directory."""

from __future__ import annotations

import dataclasses
import hashlib
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tf_placer.errors import SearchError, describe_error
from tf_placer.files import read_json, write_json
from tf_placer.problem.placement_problem import PlacementProblem
from tf_placer.problem.problem_error import ProblemError
from tf_placer.problem.problem_file import read_problem, write_problem
from tf_placer.runs.header import select_cost_fields
from tf_placer.runs.run_directory import RunDirectory
from tf_placer.search.config import SearchConfig
from tf_placer.search.log_header import find_subject, upgrade_header
from tf_placer.search.trial_log import Trial
from tf_placer.text.units import format_duration

__all__ = ["LiveCosts", "profile_costs", "read_costs"]

_FORMAT = 1
# As many as the command `profile` traces.
_STEPS = 10


@dataclasses.dataclass(frozen=True, eq=False)
class LiveCosts:
    """What is known of the costs of a graph on the machine that a search places it on.

    Attributes:
        problem: the problem of placing its groups.
        secs: what profiling took, in seconds.
    """

    problem: PlacementProblem
    secs: float


def read_costs(
    directory: RunDirectory, header: Mapping[str, Any]
) -> tuple[LiveCosts | None, str | None]:
    """Reads the costs that an earlier run has left; writes nothing.

    Args:
        directory: of the search.
        header: what the search is of, as `live_header` says it.

    Returns:
        The costs, or None if there are none that can be used; and a line for people on what is
        there, None if nothing is.

    Raises:
        OSError: the files are there and cannot be read.
    """
    # The second is written behind the first: one alone is what a killed search has left.
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
    trials: Sequence[Trial],
) -> LiveCosts:
    """Profiles the graph on the machine of a search and keeps the costs in its directory.

    Args:
        directory: of the search.
        config: how to search, on a machine that was looked up.
        header: what the search is of, as `live_header` says it.
        report: called with lines of text for people.
        make_problem: finds out what the graph costs on the machine, as `Measurer.make_problem`.
        trials: what was measured on the machine already.

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
            steps=_STEPS,
            granularity=header["granularity"],
            report=report,
            known_secs={
                trial.assignment: trial.measurement.median_secs
                for trial in trials
                if trial.assignment is not None and trial.measurement.median_secs is not None
            },
        )
    except SearchError as error:
        raise SearchError(f"{needs}, but {error}") from None
    secs = round(time.monotonic() - start_secs, 3)
    try:
        _keep(directory, problem, secs, header)
        kept = f"the costs are in {directory.problem}"
    except (OSError, ProblemError) as error:
        kept = f"the costs are not kept: {describe_error(error)}"
    report(
        f"profiled {problem.num_operations} operations and {problem.num_tensors} tensors in "
        f"{format_duration(secs)}; {kept}"
    )
    return LiveCosts(problem, secs)


def _keep(
    directory: RunDirectory, problem: PlacementProblem, secs: float, header: Mapping[str, Any]
) -> None:
    directory.profile.unlink(missing_ok=True)
    write_problem(problem, directory.problem)
    profile = {
        "format": _FORMAT,
        **select_cost_fields(header),
        "steps": _STEPS,
        "secs": secs,
        "versions": header["versions"],
        "problem_sha256": _digest(directory),
    }
    write_json(directory.profile, profile)


def _digest(directory: RunDirectory) -> str:
    return hashlib.sha256(directory.problem.read_bytes()).hexdigest()
