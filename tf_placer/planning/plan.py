"""The search for a placement by simulation, without the machine."""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
import math
import os
import pathlib
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from graph_passes.grouping.group_graph import GroupGraph
from tf_placer.errors import describe_error, require_tensorflow
from tf_placer.files import check_output
from tf_placer.former_keywords import accept_former_keywords
from tf_placer.placers import (
    AUTO,
    GIVEN,
    ORIGINAL_START,
    find_granularity,
    find_start_source,
    is_learned,
)
from tf_placer.placers.auto.auto_config import AutoConfig
from tf_placer.placers.auto.auto_search import AutoProgress, AutoResult
from tf_placer.placers.auto.candidate import simulate_candidates
from tf_placer.placers.auto.coarse_to_fine_search import coarse_to_fine_search
from tf_placer.placers.placer import Placer
from tf_placer.planning.deadline import Deadline
from tf_placer.planning.gpu_placement import prefer_gpus, replace_best, search_on_gpus
from tf_placer.planning.island_plan import search_on_islands
from tf_placer.planning.plan_files import PlanLog, ResultFile
from tf_placer.planning.plan_result import PlanResult, UnwrittenPlanError
from tf_placer.planning.planned_placement import describe_candidate
from tf_placer.problem.assignment_file import read_assignment
from tf_placer.problem.coarse_groups import coarse_assignment, coarse_problem
from tf_placer.problem.memory_limits import limit_problem
from tf_placer.problem.placement_problem import PlacementProblem
from tf_placer.problem.problem_file import read_problem
from tf_placer.problem.problem_groups import group_graph, legal_devices
from tf_placer.report.controllers_table import staleness_line
from tf_placer.report.least_memory import find_least_memory
from tf_placer.report.limits import LEAST_DISPLACED_SHARE, Limits, find_limits
from tf_placer.report.memory_curve import (
    MemoryPoint,
    MoreMemory,
    search_memory_curve,
    search_more_memory,
)
from tf_placer.report.one_device import place_on_one_of_each_kind
from tf_placer.report.plan_directory import PlanDirectory
from tf_placer.report.progress import format_simulated_progress
from tf_placer.report.what_if import WhatIf, search_changed_machines
from tf_placer.search.concurrent import ConcurrentPlacer
from tf_placer.search.config import (
    SearchConfig,
    explain_unexpected_keyword,
    override_config,
)
from tf_placer.search.distributed.placer_setup import PlacerSetup
from tf_placer.search.distributed.ray_backend import connect_to_ray
from tf_placer.search.distributed.ray_controllers import ray_controllers
from tf_placer.search.log_header import continue_options
from tf_placer.search.simulated_search import SIMULATED_TRIALS, SearchOutcome, search_problem
from tf_placer.search.training_log import TrainingLog
from tf_placer.search.training_recorder import TrainingRecorder
from tf_placer.search.trial_log import TrialLog
from tf_placer.simulation.host_offload import HostOffload, find_offload
from tf_placer.simulation.lower_bounds import lower_bounds
from tf_placer.simulation.recomputation import Recomputation, find_recomputation
from tf_placer.simulation.simulator import Simulator
from tf_placer.temporary_directory import temporary_directory
from tf_placer.text.progress_line import ProgressLine
from tf_placer.text.units import format_step

__all__ = ["DEFAULT_SECS", "plan"]

#: The default time limit of a search without a maximum number of trials.
DEFAULT_SECS = 60.0
# The fields of `SearchConfig` that `plan` uses and has no keywords for.
_CONFIG_FIELDS = (
    "placer_options",
    "objective",
    "max_memory",
    "headroom",
    "workers",
    "num_workers",
    "controllers",
)
# Share of the time of `auto` for the gains on other machines, and the time where there is no limit.
_EXPLANATION_SHARE, _UNLIMITED_EXPLANATION_SECS = 0.2, 30.0
# The analysis takes so many times as long as a search that its number of trials ended, and no less
# than these seconds.
_EXPLANATION_RATIO, _MIN_EXPLANATION_SECS = 2.0, 5.0
# The analysis may take as long as a search that ends early, up to this.
_MAX_EARLY_EXPLANATION_SECS = 30.0
# Share of that for placements with less memory, which get no more time than the search needed.
_MEMORY_SHARE, _MIN_MEMORY_SECS = 0.3, 1.0
# Share of it for a placement without work on CPUs.
_GPU_SHARE = 0.3
# Share of it for estimates with activations on the CPU where nothing fits.
_OFFLOAD_SHARE = 0.3
# A shorter wait needs no word.
_LEAST_SAID_SECS = 5.0
# The names of an earlier search's placement and of that of option `start` among the candidates.
_EARLIER_START, _GIVEN_START = "earlier search", "given"
# Most of the estimates of recomputation for the same problem agree.
_MAX_RECOMPUTATION_SECS = 3.0


@accept_former_keywords(report="progress")
def plan(
    problem: PlacementProblem | str | os.PathLike[str],
    *,
    placer: str | Callable[..., Placer] | None = None,
    max_trials: int | None = None,
    max_secs: float | None = None,
    log_dir: str | os.PathLike[str] | None = None,
    seed: int | None = None,
    stop_at_gap: float | None = None,
    config: SearchConfig | None = None,
    output: str | os.PathLike[str] | None = None,
    progress: Callable[[SearchOutcome, float], bool | None] | None = None,
    say: Callable[[str], None] | None = None,
    start_secs: float | None = None,
    verbose: bool = True,
    **others: Any,
) -> PlanResult:
    """Finds a fast placement of a problem by simulating steps on all cores.

    The machine need not be there, and TensorFlow is needed only by placers that learn. `auto`
    has its own search loop (`coarse_to_fine_search`); any other placer runs in the loop of all
    searches, `tf_placer.search.driver.drive`. An interrupt from the keyboard ends the search with
    the best so far.

    Args:
        problem: the placement problem, or its file, as `profile` writes it.
        placer: the placer, by default "auto": one that `python -m tf_placer placers` lists, a name
            that a package registers, "module:name", or a subclass of `tf_placer.placers.Placer`.
        max_trials: maximum number of simulated placements; no limit by default.
        max_secs: time limit in seconds; 60 by default, and no limit if `max_trials` is given.
        log_dir: a directory for the data of `write_report` and for the training of a placer. If it
            has the same search by a learned placer, this search is resumed; `auto` goes on from the
            placement that it left there.
        seed: seed of all random choices; 0 by default. The same seed gives the same result if
            `max_trials` ends the search; with workers, if their number is the same.
        stop_at_gap: the search ends once the step is at most this share above the lower bound.
        config: all settings; the arguments above override it. Settings of the machine of a live
            search are ignored.
        output: a file that always has the best placement so far, also while the search runs.
        progress: called with the best placement so far, and the seconds until the budget ends, in
            place of printing them, some fifty times a second. If it returns true, the search ends
            as by an interrupt.
        say: called with lines for users, in place of printing them.
        start_secs: start of the time limit, by `time.monotonic`; now by default.
        verbose: whether to print these lines to the standard error.
        others: keywords that `plan` does not have, for an error that says what it has instead.

    Returns:
        The best placement, and its limits.

    Raises:
        ImportError: the placer needs TensorFlow, which is not installed.
        KeyboardInterrupt: the search was interrupted before there was a placement.
        LogError: the directory is that of another search.
        SearchError: workers or controllers are lost repeatedly.
        TypeError: there is no such keyword, or `progress` or `say` cannot be called.
        UnwrittenPlanError: a file cannot be written; the error has the result.
        OSError: a file is missing or cannot be read.
        ValueError: the problem or a setting is wrong.

    Example:
        >>> result = tf_placer.plan("problem.json", max_secs=30)
        >>> print(result)
    """
    _check_keywords(progress, say, others)
    given: dict[str, Any] = {"placer": placer, "max_trials": max_trials, "max_secs": max_secs}
    given |= {"log_dir": log_dir, "seed": seed, "stop_at_gap": stop_at_gap}
    config = _make_config(config, {name: v for name, v in given.items() if v is not None})
    if output is not None and pathlib.Path(output).parent != pathlib.Path(config.log_dir or ""):
        check_output(output)
    deadline = Deadline(time.monotonic() if start_secs is None else start_secs, config.max_secs)
    given_problem = problem if isinstance(problem, PlacementProblem) else read_problem(problem)
    placed = limit_problem(given_problem, *config.memory_limits)
    deadline.end_reading()
    config = _continue_search(config)
    # The directory keeps the problem that was searched.
    log = PlanLog(problem if placed is given_problem else placed, config)
    file = ResultFile(output, log, placed)

    path = None if isinstance(problem, PlacementProblem) else problem

    def on_best(outcome: SearchOutcome, eta_secs: float | None) -> None:
        file.update(outcome, at_once=eta_secs is None)
        if eta_secs is not None and show(outcome, eta_secs):
            # Every search loop ends with the best so far on an interrupt.
            raise KeyboardInterrupt

    with contextlib.closing(log):
        with ProgressLine(sys.stderr if verbose else None) as line:
            show = progress or (lambda *state: line.show(format_simulated_progress(*state)))
            write = say or (line.say if verbose else _ignore)
            if file.kept_secs is not None:
                write(_describe_kept(config, file.kept_secs))
            if config.placer == AUTO:
                starts = _list_starts(file.kept, _read_start(placed, path, config, write))
                result = _plan_by_auto(placed, config, deadline, log, on_best, write, starts)
                recomputation = _estimate_recomputation(result)
                result = dataclasses.replace(result, recomputation=recomputation)
            else:
                outcome = _plan_by_placer(placed, path, config, deadline, log, on_best, write)
                result = PlanResult(
                    placed, outcome, limits=_find_limits(placed, outcome), log_dir=config.log_dir
                )
        try:
            try:
                log.write(result)
            finally:
                file.finish(result.outcome)
        except OSError as error:
            raise UnwrittenPlanError(describe_error(error), result) from error
    if (excess := deadline.describe_excess()) is not None:
        write(excess)
    return result


def _describe_kept(config: SearchConfig, secs: float) -> str:
    """Describes the placement that an earlier search left in the directory."""
    use = "which stays there until a faster one is found"
    if config.placer == AUTO:
        use = "from which this one goes on"
    return f"{config.log_dir} has a placement of {format_step(secs)} of an earlier search, {use}"


def _ignore(line: str) -> None:
    del line


def _check_keywords(progress: object, say: object, others: Mapping[str, object]) -> None:
    """Checks the keywords of `plan`.

    Raises:
        TypeError: a keyword is unknown, or `progress` or `say` cannot be called.
    """
    if "callbacks" in others:
        raise TypeError(
            "plan() takes no callbacks, which follow live searches: it calls the function progress="
            "... with the best placement so far and the seconds that are left"
        )
    keywords = inspect.signature(plan).parameters.keys() - {"others"}
    for name in others:
        raise TypeError(explain_unexpected_keyword("plan", name, keywords, _CONFIG_FIELDS))
    if progress is not None and not callable(progress):
        raise TypeError(
            "plan() calls progress=..., which is a function of the best so far and the seconds "
            f"left, not of type {type(progress).__name__}: for a page call "
            "tf_placer.write_report(log_dir, path) after plan(..., log_dir=log_dir)"
        )
    if say is not None and not callable(say):
        raise TypeError(
            f"plan() calls say=..., which is a function of a line, not of type {type(say).__name__}"
        )


def _make_config(config: SearchConfig | None, given: dict[str, Any]) -> SearchConfig:
    """Completes the settings of a plan.

    Raises:
        ValueError: the placer does not gain by workers, answers are asked for, which are of live
            searches, or there are pins, which a problem has already.
    """
    if config is not None:
        # Those of live searches are no defaults for a plan.
        if config.has_max_trials:
            given.setdefault("max_trials", config.max_trials)
        if config.has_max_secs:
            given.setdefault("max_secs", config.max_secs)
        given.setdefault("max_secs", math.inf if "max_trials" in given else DEFAULT_SECS)
        config = override_config(config, {"max_trials": sys.maxsize, **given})
    else:
        given.setdefault("max_secs", math.inf if "max_trials" in given else DEFAULT_SECS)
        config = SearchConfig(**{"max_trials": sys.maxsize, **given})
    if config.answers is not None:
        raise ValueError(
            "answers and require_answer are settings of live searches: a plan is always searched"
        )
    if config.pin or config.keep_together:
        raise ValueError(
            "pin and keep_together are settings of profile: the groups of a problem have the "
            "devices that it allows"
        )
    workers = config.wanted_workers
    if workers is not None and workers.controllers == 1 and config.placer != AUTO:
        raise ValueError(
            f"placer {config.placer!r} simulates a batch in less time than it takes to send it to "
            "workers: --workers is for 'auto', and for placers that learn by --controllers"
        )
    return config


def _continue_search(config: SearchConfig) -> SearchConfig:
    """Keeps the settings of the search in the directory if an earlier version began it."""
    record = None if config.log_dir is None else PlanDirectory(config.log_dir).read_record()
    if record is None:
        return config
    options = continue_options(config.placer, config.placer_options, record.header)
    return dataclasses.replace(config, placer_options=options)


def _plan_by_auto(
    problem: PlacementProblem,
    config: SearchConfig,
    deadline: Deadline,
    log: PlanLog,
    report: Callable[[SearchOutcome, float | None], None],
    say: Callable[[str], None],
    starts: list[tuple[str, np.ndarray]],
) -> PlanResult:
    """Searches by `auto`, also from given placements, and explains the limits."""
    groups, bound_secs = group_graph(problem), float(lower_bounds(problem).step_secs)
    log.begin()
    deadline.begin_search()
    log.sampled.start()
    explain_secs = _UNLIMITED_EXPLANATION_SECS
    if config.max_secs < math.inf:
        explain_secs = _EXPLANATION_SHARE * config.max_secs

    def summarize(state: AutoProgress | AutoResult, interrupted: bool = False) -> SearchOutcome:
        outcome = describe_candidate(
            state.best,
            lower_bound_secs=bound_secs,
            trials=state.num_simulated,
            elapsed_secs=state.elapsed_secs,
            seed=config.seed,
            interrupted=interrupted,
        )
        if outcome.feasible and outcome.step_secs is not None:
            log.sampled.add_best(outcome.trials, outcome.step_secs)
        return outcome

    def on_progress(progress: AutoProgress) -> None:
        # The first of several workers to end a round has used a small share.
        eta_secs = progress.elapsed_secs * (1.0 / max(progress.share, 1e-3) - 1.0)
        report(summarize(progress), min(eta_secs, deadline.compute_secs_left()))

    budget: dict[str, Any] = {
        "stop_secs": _find_stop_secs(bound_secs, config),
        "max_secs": deadline.compute_secs_left(explain_secs + deadline.preparing_secs),
        "max_simulated": config.max_trials,
    }
    auto = AutoConfig(**config.placer_options)
    if config.wanted_workers is None:
        result = coarse_to_fine_search(
            problem,
            groups,
            config=auto,
            starts=starts,
            seed=config.seed,
            report=on_progress,
            **budget,
        )
    else:
        result = search_on_islands(
            problem,
            auto,
            config.wanted_workers,
            config.seed,
            [placement for _, placement in starts],
            on_progress,
            say,
            **budget,
        )
    outcome = summarize(result, result.interrupted)
    report(outcome, None)
    if outcome.trials >= config.max_trials:
        # The time limit did not end the search, so it says little about the time that is wanted.
        wanted_secs = max(_EXPLANATION_RATIO * result.elapsed_secs, _MIN_EXPLANATION_SECS)
        explain_secs = min(explain_secs, wanted_secs, _UNLIMITED_EXPLANATION_SECS)
    # Reserve time for writing, which takes about as long as preparing.
    left_secs = min(
        max(explain_secs, min(result.elapsed_secs, _MAX_EARLY_EXPLANATION_SECS)),
        deadline.compute_secs_left(deadline.preparing_secs / 2),
    )
    if left_secs >= _LEAST_SAID_SECS and not result.interrupted:
        say(f"the search has ended; other memory and machines take up to {left_secs:.0f} s more")
    gpus_only_secs: float | None = None
    # A number of trials is meant for comparisons, which more of them would not be.
    if not result.interrupted and not config.is_fit and config.max_trials == sys.maxsize:
        gpu_secs = _GPU_SHARE * left_secs
        try:
            result, gpus_only_secs = _prefer_gpus(
                problem, groups, result, max_secs=gpu_secs, seed=config.seed
            )
        except KeyboardInterrupt:
            result = dataclasses.replace(result, interrupted=True)
        outcome = summarize(result, result.interrupted)
        report(outcome, None)
        left_secs -= gpu_secs
    limits = _find_limits(problem, outcome)
    curve: tuple[MemoryPoint, ...] = ()
    changes: tuple[WhatIf, ...] = ()
    least_bytes: int | None = None
    more: MoreMemory | None = None
    offload: HostOffload | None = None
    best = result.best.placement
    others = [*result.finalists, *(found for _, found in result.starts)]
    known = [each.placement for each in others]
    end_secs = time.monotonic() + left_secs

    def on_explanation(_: object = None) -> None:
        report(outcome, max(0.0, end_secs - time.monotonic()))

    try:
        if outcome.feasible and not result.interrupted:
            memory_secs = max(result.elapsed_secs, _MIN_MEMORY_SECS)
            memory_secs = min(_MEMORY_SHARE * left_secs, memory_secs)
            curve = search_memory_curve(
                problem,
                groups,
                best,
                known=others,
                search_secs=memory_secs,
                seed=config.seed,
            )
            on_explanation()
            if limits is not None and limits.displaced_share >= LEAST_DISPLACED_SHARE:
                displaced_secs = _MEMORY_SHARE * left_secs
                left_secs -= displaced_secs
                more = search_more_memory(
                    problem,
                    groups,
                    best,
                    known=others,
                    search_secs=displaced_secs,
                    seed=config.seed,
                )
            on_explanation()
            changes = search_changed_machines(
                problem,
                groups,
                best,
                known=[*known, *([] if more is None else [np.array(more.assignment, np.int32)])],
                search_secs=left_secs - memory_secs,
                seed=config.seed,
                progress=on_explanation,
            )
        elif not result.interrupted:
            least_bytes = find_least_memory(
                problem,
                groups,
                best,
                search_secs=(1.0 - _OFFLOAD_SHARE) * left_secs,
                seed=config.seed,
            )
            on_explanation()
            crowded = [*place_on_one_of_each_kind(problem)]
            crowded += [each.placement for each in [result.best, *others]]
            placements = {placement.tobytes(): placement for placement in crowded}
            offload = find_offload(
                problem, placements.values(), max_secs=_OFFLOAD_SHARE * left_secs
            )
    except KeyboardInterrupt:
        outcome = dataclasses.replace(outcome, interrupted=True)
    return PlanResult(
        problem,
        outcome,
        result,
        limits,
        changes,
        config.log_dir,
        least_bytes,
        curve,
        more,
        offload,
        gpus_only_secs=gpus_only_secs,
    )


def _prefer_gpus(
    problem: PlacementProblem,
    groups: GroupGraph,
    result: AutoResult,
    *,
    max_secs: float,
    seed: int,
) -> tuple[AutoResult, float | None]:
    """Replaces the best placement by one without work on CPUs, if that is little slower.

    Returns:
        The result; and, where CPUs keep work, the step that was found without it, in seconds.
    """
    placement = search_on_gpus(problem, groups, result.best, max_secs=max_secs, seed=seed)
    if placement is None:
        return result, None
    [found] = simulate_candidates(problem, Simulator(problem), placement[np.newaxis])
    best = prefer_gpus(problem, result.best, [found])
    if best is result.best:
        return result, None if found.excess_bytes else found.step_secs
    return replace_best(result, best), None


def _estimate_recomputation(result: PlanResult) -> Recomputation | None:
    """Estimates the step of placements that do not fit, if activations are computed again."""
    if result.auto is None or result.feasible or result.auto.interrupted:
        return None
    tried = [result.auto.best, *result.auto.finalists, *(each for _, each in result.auto.starts)]
    # The fastest may need too much; those that lack the least come first.
    tried.sort(key=lambda each: each.rank)
    placements = {each.placement.tobytes(): each.placement for each in tried}
    return find_recomputation(result.problem, placements.values(), max_secs=_MAX_RECOMPUTATION_SECS)


def _find_stop_secs(bound_secs: float, config: SearchConfig) -> float:
    """Finds the step time at which a search ends; 0 if it uses its whole budget."""
    if config.is_fit:
        return math.inf
    return 0.0 if config.stop_at_gap is None else (1.0 + config.stop_at_gap) * bound_secs


def _find_limits(problem: PlacementProblem, outcome: SearchOutcome) -> Limits | None:
    """Finds the limits of a placement; None if it does not fit."""
    if not outcome.feasible:
        return None
    return find_limits(problem, np.array(outcome.assignment, np.int32))


def _plan_by_placer(
    problem: PlacementProblem,
    path: str | os.PathLike[str] | None,
    config: SearchConfig,
    deadline: Deadline,
    log: PlanLog,
    report: Callable[[SearchOutcome, float | None], None],
    say: Callable[[str], None],
) -> SearchOutcome:
    """Searches with a placer that proposes placements, or with several controllers of it."""
    # The bound of coarse groups is no bound of the groups in them, which other placers place.
    bound_secs = float(lower_bounds(problem).step_secs)
    placed, clusters = problem, np.arange(problem.num_groups)
    if find_granularity(config.placer, config.placer_options) == "coarse":
        placed, clusters = coarse_problem(problem)
        if placed.num_groups < problem.num_groups:
            say(
                f"placer {config.placer!r} places coarse groups: {placed.num_groups:,} of the "
                f"{problem.num_groups:,} groups of the problem"
            )
    start = _read_start(problem, path, config, say)
    if start is not None:
        start = coarse_assignment(start, clusters, placed.num_groups, problem.num_devices)
    setup = PlacerSetup(
        config.placer,
        group_graph(placed),
        legal_devices(placed),
        config.seed,
        config.placer_options,
        placed,
        start,
        # Controllers may resume with another limit, and must sample the same placements again.
        None if config.wanted_workers or config.max_trials == sys.maxsize else config.max_trials,
    )

    def expand(outcome: SearchOutcome) -> SearchOutcome:
        assignment = np.array(outcome.assignment)[clusters]
        return dataclasses.replace(
            outcome, assignment=tuple(assignment.tolist()), lower_bound_secs=bound_secs
        )

    with contextlib.ExitStack() as stack:
        recorder = training = None
        if config.log_dir is not None:
            training = stack.enter_context(TrainingLog(config.log_dir, log.header))
            recorder = TrainingRecorder(training, config.log_dir, say)
            if training.num_updates:
                say(
                    f"{config.log_dir} has {training.num_updates:,} updates of the placer, which "
                    "it first learns again, from the same samples"
                )
        log.begin()
        trials: TrialLog | None = None
        placer: Placer | ConcurrentPlacer
        if config.wanted_workers is None:
            placer = _make_placer(setup)
            if is_learned(config.placer):
                say("TensorFlow compiles the policy, so that the first samples take up to a minute")
        else:
            trials, placer = _start_controllers(setup, config, log, training, stack, say)
        deadline.begin_search()
        log.sampled.start()
        outcome = search_problem(
            placed,
            placer,
            max_trials=config.max_trials,
            max_secs=deadline.compute_secs_left(),
            stop_secs=_find_stop_secs(float(lower_bounds(placed).step_secs), config),
            seed=config.seed,
            log=trials,
            report=lambda outcome, eta_secs: report(expand(outcome), eta_secs),
            observed=None if recorder is None else recorder.record,
            sampled=log.sampled.add,
        )
        if recorder is not None and not (config.wanted_workers and outcome.interrupted):
            recorder.finish()
        if training is not None and (stale := staleness_line(training.updates)):
            say(stale)
    return expand(outcome)


def _read_start(
    problem: PlacementProblem,
    path: str | os.PathLike[str] | None,
    config: SearchConfig,
    say: Callable[[str], None],
) -> np.ndarray | None:
    """Reads the placement that option `start` names, int32 [num_groups]; None without one."""
    source = find_start_source(config.placer, config.placer_options)
    if source is None:
        return None
    if source == ORIGINAL_START:
        raise ValueError(
            f"start {ORIGINAL_START!r} is for `optimize`, because a problem does not say where its "
            "graph was: give a file with the device of every group, as `search` writes it"
        )
    name = "the problem" if path is None else os.fspath(path)
    row = read_assignment(source, problem, name, None if config.placer == GIVEN else say)
    groups = np.arange(problem.num_groups)
    illegal = np.flatnonzero(~legal_devices(problem)[groups, row])
    if len(illegal):
        group = int(illegal[0])
        operation = problem.operation_names[int(np.flatnonzero(problem.groups == group)[0])]
        raise ValueError(
            f"option 'start': {source!r} has {operation!r} on {problem.devices[row[group]].name}, "
            "where it may not go"
        )
    return row


def _list_starts(kept: np.ndarray | None, given: np.ndarray | None) -> list[tuple[str, np.ndarray]]:
    """Lists the placements that `auto` starts from beside those of the heuristics."""
    named = ((_GIVEN_START, given), (_EARLIER_START, kept))
    return [(name, placement) for name, placement in named if placement is not None]


def _make_placer(setup: PlacerSetup) -> Placer:
    try:
        return setup.make_placer()
    except ImportError as error:
        # Errors about other packages already name the package and its installation.
        if error.name in ("keras", "tensorflow"):
            require_tensorflow()
        raise


def _start_controllers(
    setup: PlacerSetup,
    config: SearchConfig,
    log: PlanLog,
    training: TrainingLog | None,
    stack: contextlib.ExitStack,
    say: Callable[[str], None],
) -> tuple[TrialLog, ConcurrentPlacer]:
    """Starts controllers, and opens the log of their trials; the stack ends both.

    Without a directory for the log, the log is temporary.
    """
    workers = config.wanted_workers
    assert workers is not None
    directory = config.log_dir or stack.enter_context(temporary_directory())
    trials = stack.enter_context(
        TrialLog(os.path.join(directory, SIMULATED_TRIALS), log.header or {"seed": config.seed})
    )
    if training is not None and not trials.trials:
        training.restart()
    say(f"starting {workers.controllers} controllers")
    stack.enter_context(connect_to_ray(workers))
    controllers = ray_controllers(
        workers,
        setup,
        directory=config.log_dir,
        updates=() if training is None else training.updates,
        say=say,
    )
    return trials, stack.enter_context(controllers)
