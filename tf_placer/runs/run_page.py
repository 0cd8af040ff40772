"""The contents of the page about a live search, read from the directory of the run."""

from __future__ import annotations

import dataclasses
import math
import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from graph_passes.util.json_records import read_record
from tf_placer.confirmation.confirmation import Confirmation
from tf_placer.files import (
    check_output,
    is_persistent_directory,
    name_file_in_errors,
    read_json,
)
from tf_placer.placers import needs_problem
from tf_placer.placers.auto.cost_fit import scale_costs
from tf_placer.problem.common_operations import describe_difference
from tf_placer.problem.placement_problem import PlacementProblem
from tf_placer.problem.problem_file import read_problem
from tf_placer.report.explanation import Explanation, fit_corrected_costs
from tf_placer.report.limits import find_limits
from tf_placer.report.machine_comparison import MachineComparison
from tf_placer.report.operation_kinds import strip_calls
from tf_placer.report.page.page import require_page_libraries, write_page
from tf_placer.report.page.plan_view import read_plan, view_placement, view_plan
from tf_placer.report.page.run_view import (
    RUN_NAMES,
    ComparedPlacement,
    Point,
    RunView,
    StepView,
    view_step,
)
from tf_placer.report.plan_directory import PlanDirectory
from tf_placer.report.prices import match_prices
from tf_placer.runs.compared_trials import IN_ONE_PROCESS, IN_ONE_PROCESS_BASIS, compare_trials
from tf_placer.runs.explanation import read_explanation
from tf_placer.runs.run_directory import TRIALS, RunDirectory
from tf_placer.runs.run_result import RunResult
from tf_placer.runs.search_state import read_search_state
from tf_placer.runs.verdict import verdict
from tf_placer.search.log_header import HeaderFacts, format_settings
from tf_placer.search.trial_log import ORIGINAL, Trial
from tf_placer.text.units import format_duration, format_step

__all__ = ["check_comparable", "check_number_of_runs", "read_run_view", "write_report"]

_MAX_COMPARED = 20
_MAX_LISTED = 3


@dataclasses.dataclass(frozen=True)
class _DeviceFacts:
    name: str


@dataclasses.dataclass(frozen=True)
class _MachineFacts:
    spec: str
    devices: tuple[_DeviceFacts, ...]


@dataclasses.dataclass(frozen=True, kw_only=True)
class _LiveFacts(HeaderFacts):
    """The fields of the header of a live search that the page shows."""

    machine: _MachineFacts
    fetches: tuple[str, ...] = ()
    pin: Mapping[str, str] = dataclasses.field(default_factory=dict)
    keep_together: tuple[tuple[str, ...], ...] = ()
    graph_fingerprint: str = ""
    feeds: Mapping[str, str] = dataclasses.field(default_factory=dict)


def read_run_view(
    path: str | os.PathLike[str], problem: str | os.PathLike[str] | None = None
) -> RunView:
    """Reads the contents of the page of a search, live or on a problem.

    Args:
        path: the directory of the search, or the file of its result.
        problem: the problem that was placed, for a result of `search` that is not in a directory.

    Raises:
        OSError: a file cannot be read.
        ValueError: there is no search, or a file is damaged; the message names the file.
    """
    path = pathlib.Path(path)
    if path.is_dir():
        if (path / TRIALS).exists():
            return _view_run(RunDirectory(path))
        if PlanDirectory(path).result.exists():
            return read_plan(path)
        raise ValueError(
            f"{os.fspath(path)!r} is no directory of a search: it has neither {TRIALS} nor "
            "result.json"
        )
    value = read_json(path)
    if isinstance(value, dict) and "assignment" in value:
        if problem is not None:
            return view_plan(path, problem)
        directory = PlanDirectory(path.parent)
        if directory.result == path and directory.problem.exists():
            return read_plan(path.parent)
        raise ValueError(
            f"{os.fspath(path)!r} does not say what was placed: give the problem, too (--problem)"
        )
    if isinstance(value, dict) and "outcome" in value and (path.parent / TRIALS).exists():
        return _view_run(RunDirectory(path.parent))
    raise ValueError(f"{os.fspath(path)!r} is not the result of a search")


def check_comparable(a: RunView, b: RunView) -> None:
    """Checks that two searches are of the same graph, or of graphs with common operations.

    Raises:
        ValueError: they are not.
    """
    if a.graph_fingerprint and a.graph_fingerprint == b.graph_fingerprint:
        return
    advice = "make a page of each"
    unknown = [
        dict(view.facts).get("run", RUN_NAMES[number])
        for number, view in enumerate((a, b))
        if view.problem is None
    ]
    if unknown:
        raise ValueError(
            "the two searches are of different graphs, and the operations of "
            f"{' and '.join(unknown)} are not known, so nothing shows that they are alike: {advice}"
        )
    assert a.problem is not None and b.problem is not None
    if (difference := describe_difference(a.problem, b.problem)) is not None:
        raise ValueError(f"the two searches are of different graphs: {difference}: {advice}")


def write_report(
    result: Any, path: str | os.PathLike[str], *, prices: Mapping[str, float] | None = None
) -> None:
    """Writes the page about a search, live or planned, or about several side by side.

    Args:
        result: the result of `optimize`, `plan` or `compare`, or the directory of a search; or
            several of them, in a list, or by the names that the page shows.
        path: the file (.html).
        prices: of the machines per hour, in any currency, by the names of the searches or the last
            parts of their directories, for the cost of a million steps.

    Raises:
        ImportError: a package that the page needs is not installed.
        OSError: a file cannot be read or written.
        TypeError: there is something else among them.
        ValueError: a live search has no directory, or a search is of another graph; there are more
            searches than a page shows; or a file is damaged.
    """
    require_page_libraries()
    names: list[str] | None = None
    needed: dict[str, int | None] = {}
    if isinstance(result, MachineComparison):
        if prices is None:
            found = {each.name: each.price_per_hour for each in result.machines}
            prices = {name: price for name, price in found.items() if price is not None}
        needed = {each.name: each.needed for each in result.machines}
        plans = result.plans
        result = {each.name: plans.get(each.name, each) for each in result.machines}
    if isinstance(result, Mapping):
        names, result = [*map(str, result)], [*result.values()]
    results = result if isinstance(result, list | tuple) else [result]
    check_number_of_runs(len(results))
    views = [_view_result(each) for each in results]
    check_output(path)
    names = names or [each.name for each in views]
    matched = match_prices(prices or {}, names)
    view, *beside = (
        dataclasses.replace(
            each,
            name=name,
            price_per_hour=matched.get(name),
            needed=needed.get(name, each.needed),
        )
        for each, name in zip(views, names, strict=True)
    )
    for other in beside:
        check_comparable(view, other)
    write_page(view, path, beside=beside)


def check_number_of_runs(number: int) -> None:
    """Checks that a page can show so many runs.

    Raises:
        ValueError: it cannot.
    """
    if not 0 < number <= len(RUN_NAMES):
        raise ValueError(f"a page shows at most {len(RUN_NAMES)} runs, not {number}")


def _view_result(result: Any) -> RunView:
    """Makes the contents of the page about a search.

    Raises:
        OSError: a file cannot be read.
        TypeError: it is no search.
        ValueError: it has no directory, or a file there is damaged.
    """
    log_dir = result if isinstance(result, str | os.PathLike) else None
    if log_dir is None:
        if not hasattr(result, "log_dir"):
            raise TypeError(
                "a page is made of the result of `optimize`, `plan` or `compare`, or of the "
                "directory of a search, or of several of them, not of one of type "
                f"{type(result).__name__}"
            )
        log_dir = result.log_dir
    if log_dir is not None:
        # The name of a temporary directory tells people nothing.
        name = "" if is_persistent_directory(log_dir) else os.fspath(log_dir)
        return dataclasses.replace(read_run_view(log_dir), name=name)
    # Only a plan has all that the page needs, but for the curve of the search.
    if not hasattr(result, "to_record"):
        raise ValueError(
            "nothing was kept of the search to make a page of: call it with log_dir=..."
        )
    view = view_placement(
        result.problem, result.assignment, result.outcome.to_json(), result.to_record()
    )
    if view is None:
        raise ValueError("the plan has an operation on a device that cannot run it")
    return view


def _view_run(directory: RunDirectory) -> RunView:
    state = read_search_state(directory.path)
    trials, result = state.trials, state.result
    with name_file_in_errors(directory.trials, "the log of a search"):
        header = read_record(_LiveFacts, state.header)
    if not trials and not state.is_running:
        raise ValueError(f"{directory.trials} has no trials yet")
    confirmation = None
    winner, explanation, is_better, is_slower = None, None, False, False
    text = _describe_progress(trials)
    if result is not None:
        is_better = state.is_placed
        title = "Unchanged" if result.outcome.is_verdict else "No verdict"
        title = "Placed" if is_better else title
        is_slower = is_better and result.is_slower_than_one_process
        if is_slower:
            title = "Placed on workers, slower than one process on all cores"
        text = f"{title}: {verdict(result)}"
        confirmation, winner = result.confirmation, result.winner
        explanation = read_explanation(directory, result)
    finalists = {} if result is None else result.finalists
    labels = {index: label for label, index in finalists.items()}
    found = _find_subject(trials, finalists, confirmation, winner)
    problem, steps, notes = _simulate_steps(directory, trials, found, result, labels, explanation)
    if problem is None:
        notes = (_explain_missing_costs(header.placer, is_running=state.is_running),)
    placement = steps[-1].placement if steps and steps[-1].label != ORIGINAL else None
    options = directory.read_placer_options() if directory.has_request else {}
    settings = format_settings(options)
    return RunView(
        title=f"{header.placer} on {header.machine.spec}",
        verdict=text,
        is_better=is_better,
        is_measured=True,
        compared=tuple(_list_compared(trials, labels, result, explanation)),
        steps=steps,
        points=tuple(_point(trial) for trial in trials),
        best=tuple(_running_best(trials)),
        limits=None if placement is None or problem is None else find_limits(problem, placement),
        changes=() if explanation is None else explanation.changes,
        error=math.inf if explanation is None or winner is None else explanation.error,
        problem=problem,
        notes=notes,
        facts=_facts(directory, header, trials, settings),
        placer=f"{header.placer} with {settings}" if settings else header.placer,
        graph_fingerprint=header.graph_fingerprint,
        feeds=header.feeds,
        original_id=(
            header.graph_fingerprint,
            header.fetches,
            tuple(sorted(header.feeds.items())),
            header.machine,
        ),
        has_ended=result is not None,
        num_left_out=max(0, len(_select_placements(trials)) - _MAX_COMPARED),
        is_slower_than_one_process=is_slower,
    )


def _describe_progress(trials: Sequence[Trial]) -> str:
    if not trials:
        return "The search has begun, and no trial has ended yet"
    ran = [t for t in trials if t.measurement.median_secs is not None]
    if not ran:
        return f"The search has not ended: {len(trials)} trials, none of which ran"
    best = min(ran, key=lambda t: t.measurement.median_secs or math.inf)
    step = format_step(best.measurement.median_secs or 0.0)
    return (
        f"The search has not ended: after {len(trials)} trials the fastest step was {step} (trial "
        f"{best.index}, {best.placer}), which is not confirmed"
    )


def _find_subject(
    trials: Sequence[Trial],
    finalists: Mapping[str, int],
    confirmation: Confirmation | None,
    winner: str | None,
) -> Trial | None:
    """Finds the trial that the page is about, as its verdict is.

    It is the winner, else the finalist that was measured in the rounds of the confirmation, else
    the fastest placement.
    """
    chosen = winner
    if chosen is None and confirmation is not None and confirmation.best != ORIGINAL:
        chosen = confirmation.best
    if chosen is not None and chosen in finalists:
        return trials[finalists[chosen]]
    ran = [t for t in trials if t.assignment is not None and t.measurement.median_secs is not None]
    return min(ran, key=lambda t: t.measurement.median_secs or math.inf, default=None)


def _simulate_steps(
    directory: RunDirectory,
    trials: Sequence[Trial],
    found: Trial | None,
    result: RunResult | None,
    labels: Mapping[int, str],
    explanation: Explanation | None,
) -> tuple[PlacementProblem | None, tuple[StepView, ...], tuple[str, ...]]:
    """Simulates the original and the found placement, with costs corrected by measurements.

    The costs are those of the explanation, so that the timeline agrees with the predictions, the
    limits and the steps on other machines; without an explanation they are fitted to the trials.
    """
    if not directory.problem.exists():
        return None, (), ()
    problem = read_problem(os.fspath(directory.problem))
    ran = [
        (t.assignment, t.measurement.median_secs)
        for t in trials
        if t.assignment is not None and t.measurement.median_secs is not None
    ]
    notes = []
    error = None
    if explanation is not None and len(explanation.compute_factors) == problem.num_devices:
        compute, error = np.array(explanation.compute_factors), explanation.error
        problem = scale_costs(problem, compute, explanation.transfer_factor)
    elif ran:
        factors = fit_corrected_costs(problem, ran)
        problem, error = scale_costs(problem, factors.compute, factors.transfer), factors.deviation
    if error is not None:
        notes.append(
            "Times in a step are simulated, with costs that were profiled and corrected by what "
            f"was measured; predictions of whole steps are off by {error:.0%}."
        )
    given = None if result is None else result.original_assignment
    views = []
    if given is not None:
        views.append(view_step(ORIGINAL, problem, np.array(given, np.int32)))
    elif result is not None:
        notes.append(
            "The step of the original is not shown: its groups are spread over devices, it breaks "
            "a pin, or the run is of an earlier version."
        )
    if found is not None and found.assignment is not None:
        label = labels.get(found.index, f"{found.placer} (trial {found.index})")
        views.append(view_step(label, problem, np.array(found.assignment, np.int32)))
    return problem, tuple(view for view in views if view is not None), tuple(notes)


def _explain_missing_costs(placer: str, *, is_running: bool) -> str:
    """Explains the absence of steps on the page, in one sentence."""
    if is_running:
        return "The page has no steps as long as the costs of the operations are not profiled."
    try:
        is_needless = not needs_problem(placer)
    except (ImportError, ValueError):
        is_needless = False  # Another computer may have other placers.
    if is_needless:
        return (
            f"The placer {placer} needs no costs of operations, so none were profiled: with the "
            "placer auto the page shows the step in time, too."
        )
    return (
        f"The search ended before the placer {placer} had the costs of the operations profiled, so "
        "the page has no steps."
    )


def _list_compared(
    trials: Sequence[Trial],
    labels: Mapping[int, str],
    result: RunResult | None,
    explanation: Explanation | None,
) -> list[ComparedPlacement]:
    """Lists the original, the finalists and the fastest other placements."""
    if not trials:
        return [ComparedPlacement(ORIGINAL, None)]
    confirmation = winner = outcome = None
    if result is not None:
        confirmation, winner, outcome = result.confirmation, result.winner, result.outcome
    predicted = {}
    if explanation is not None:
        predicted = {each.label: each.predicted_secs for each in explanation.candidates}
    others = _select_placements(trials)
    others.sort(key=lambda t: (t.index not in labels, t.measurement.median_secs or math.inf))
    shown = {ORIGINAL: trials[0]} | {
        labels.get(trial.index, f"{trial.placer} (trial {trial.index})"): trial
        for trial in others[:_MAX_COMPARED]
    }
    original, *others_compared = [
        ComparedPlacement(
            each.label,
            each.step_secs,
            predicted.get(each.label),
            each.speedup,
            each.interval,
            each.basis,
            is_found=each.label == winner,
            searched_secs=each.trial.measurement.median_secs,
        )
        for each in compare_trials(shown, confirmation, winner, outcome)
    ]
    references = [original]
    if result is not None and result.one_process_secs is not None:
        secs = result.one_process_secs
        # It has no speed-up, because it is no placement to choose.
        references.append(ComparedPlacement(IN_ONE_PROCESS, secs, basis=IN_ONE_PROCESS_BASIS))
    return [*references, *others_compared]


def _select_placements(trials: Sequence[Trial]) -> list[Trial]:
    """Selects the trials of other placements than the original, each once."""
    return [t for t in trials if t.assignment is not None and t.repeats is None]


def _point(trial: Trial) -> Point:
    failure = trial.measurement.failure
    return Point(
        trial.index,
        trial.elapsed_secs,
        trial.measurement.median_secs,
        trial.placer,
        trial.time,
        "" if failure is None else f"{failure.kind.value}: {failure.message}",
    )


def _running_best(trials: Sequence[Trial]) -> list[Point]:
    best: list[Point] = []
    for trial in trials:
        secs = trial.measurement.median_secs
        if secs is not None and (not best or secs < (best[-1].step_secs or math.inf)):
            best.append(_point(trial))
    return best


def _facts(
    directory: RunDirectory, header: _LiveFacts, trials: Sequence[Trial], settings: str
) -> tuple[tuple[str, str], ...]:
    command = None
    if directory.has_request:
        command = directory.read_command()
    facts = [
        ("run", os.fspath(directory.path)),
        ("command", command),
        ("machine", _list_names([device.name for device in header.machine.devices])),
        ("placer", header.placer),
        ("settings", settings),
        ("seed", None if header.seed is None else str(header.seed)),
        ("fetches", _list_names([strip_calls(name) for name in header.fetches])),
        ("pinned by you", _list_names([f"{name!r} on {on}" for name, on in header.pin.items()])),
        ("kept together", "; ".join(", ".join(map(repr, each)) for each in header.keep_together)),
        (
            "trials",
            trials and f"{len(trials)} in {format_duration(trials[-1].elapsed_secs)} of searching",
        ),
        ("last trial", trials and trials[-1].time),
        ("graph", header.graph_fingerprint[:16]),
        *header.versions.items(),
    ]
    return tuple((name, value) for name, value in facts if value)


def _list_names(names: Sequence[str]) -> str:
    """Lists the first names, and counts the others."""
    shown = ", ".join(names[:_MAX_LISTED])
    others = len(names) - _MAX_LISTED
    return f"{shown} and {others} more" if others > 0 else shown
