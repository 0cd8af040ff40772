"""The command `search`: finds a fast placement of a problem by simulating steps.

Free of TensorFlow, unless the placer needs it.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import functools
import math
import os
import pathlib
import sys
import time
from collections.abc import Callable, Mapping

import numpy as np

from graph_passes.grouping.group_graph import GroupGraph
from tf_placer.cli.answer import add_json, answer, check_standard_output
from tf_placer.cli.arguments import (
    PROBLEM_HELP,
    add_placer,
    add_workers,
    placer_options,
    placers_help,
)
from tf_placer.cli.search_files import ResultFile, SearchLog
from tf_placer.errors import require_tensorflow
from tf_placer.files import check_output
from tf_placer.placers import (
    AUTO,
    ORIGINAL_START,
    check_options,
    granularity_of,
    start_source,
)
from tf_placer.placers.auto.auto_config import AutoConfig
from tf_placer.placers.auto.auto_search import AutoProgress, AutoResult
from tf_placer.placers.auto.refined_search import refined_search
from tf_placer.placers.placer import Placer
from tf_placer.problem.assignment_file import read_assignment
from tf_placer.problem.coarse_groups import coarse_assignment, coarse_problem
from tf_placer.problem.placement_problem import PlacementProblem
from tf_placer.problem.problem_file import read_problem
from tf_placer.problem.problem_groups import group_graph, legal_devices
from tf_placer.report.auto_table import auto_table
from tf_placer.report.controllers_table import staleness_line
from tf_placer.report.limits import limits_of
from tf_placer.report.plan_directory import PlanDirectory
from tf_placer.report.search_table import format_outcome, search_table, search_values
from tf_placer.report.what_if import WhatIf, what_if
from tf_placer.scratch import scratch_directory
from tf_placer.search.budget import Budget
from tf_placer.search.concurrent import ConcurrentPlacer
from tf_placer.search.config import check_seed
from tf_placer.search.distributed.controllers import Controllers
from tf_placer.search.distributed.island_search import IslandWorker, island_search
from tf_placer.search.distributed.placer_setup import PlacerSetup
from tf_placer.search.distributed.ray_controllers import ray_controllers
from tf_placer.search.distributed.ray_fleet import RayFleet, connected
from tf_placer.search.distributed.workers import Workers, check_is_for_controllers, find_workers
from tf_placer.search.simulated_search import SIMULATED_TRIALS, SearchOutcome, search_problem
from tf_placer.search.training_log import TrainingLog
from tf_placer.search.training_recorder import TrainingRecorder
from tf_placer.search.trial_log import TrialLog
from tf_placer.simulation.lower_bounds import lower_bounds
from tf_placer.text.notes import say
from tf_placer.text.terminal_line import TerminalLine
from tf_placer.text.units import format_duration

__all__ = ["DESCRIPTION", "add_arguments", "run"]

DESCRIPTION = (
    "Simulates what a placer proposes, on all cores, and keeps the fastest "
    "placement that fits the memory of the devices. The result file always has the best so "
    "far, also while the search runs; Ctrl-C ends the search with it."
)
_DEFAULT_SECS = 60.0
# What of a search by auto is for the question what other machines would bring.
_EXPLAIN_SHARE, _MOST_EXPLAIN_SECS = 0.1, 20.0
# A search must have some time, even where reading its problem took all that there is.
_LEAST_SECS = 1e-3
# Longer than this beyond its time a search is not, without saying why.
_TOLERATED_SECS = 1.0


class _Deadline:
    """The end of the time of a command, which begins with the call."""

    def __init__(self, start_secs: float, max_secs: float) -> None:
        """Takes over a budget.

        Args:
            start_secs: when the command was called, by `time.monotonic`.
            max_secs: seconds that it may take; infinite without a limit.
        """
        self.max_secs = max_secs
        self._start_secs = start_secs
        self._prepared_secs = 0.0

    def used_secs(self) -> float:
        """Computes how long the command has taken so far."""
        return time.monotonic() - self._start_secs

    def left_secs(self, reserved_secs: float = 0.0) -> float:
        """Computes the time that is left for a search, but for some: positive in any case."""
        return max(_LEAST_SECS, self.max_secs - reserved_secs - self.used_secs())

    def begin_search(self) -> None:
        """Notes that all before the search is done."""
        self._prepared_secs = self.used_secs()

    def say_if_exceeded(self) -> None:
        """Says what a command took that was not over in time, and what none of its time covers."""
        if self.used_secs() > self.max_secs + _TOLERATED_SECS:
            say(
                f"{format_duration(self.used_secs())} were used where "
                f"{format_duration(self.max_secs)} are allowed: reading and preparing the problem "
                f"takes {format_duration(self._prepared_secs)} here, whatever is allowed"
            )


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds what the command takes."""
    parser.epilog = placers_help() + ". Those that learn need TensorFlow."
    parser.add_argument("--problem", required=True, help=PROBLEM_HELP)
    parser.add_argument(
        "--output",
        help="where the result goes (.json; - is standard output), which --json does not need: "
        "step_secs, feasible, assignment (a device index per "
        "group), peak_bytes (per device), lower_bound_secs, trials, elapsed_secs, placer, seed. "
        "If nothing fits, feasible is false and step_secs that of the closest placement",
    )
    add_placer(parser, AUTO)
    parser.add_argument(
        "--max_trials",
        type=int,
        default=sys.maxsize,
        help="placements to simulate at most (default: no limit)",
    )
    parser.add_argument(
        "--max_secs",
        type=float,
        help=f"seconds at most (default: no limit with --max_trials, {_DEFAULT_SECS:g} without)",
    )
    parser.add_argument(
        "--log_dir",
        help="directory for what `report` makes a page of: the problem, the result, and how it was "
        "searched; and for what a placer that learns has learned: training.jsonl, curves for "
        "TensorBoard, and the policy; nothing of this is kept by default",
    )
    parser.add_argument(
        "--seed",
        type=int,
        default=0,
        help="of everything random (default 0). The same seed gives the same result where "
        "--max_trials ends the search, with --workers on the same number of workers",
    )
    add_workers(parser, controlled="none is used: the search simulates what they sample by itself")
    add_json(parser)


def run(args: argparse.Namespace) -> None:
    """Searches for the fastest placement of a problem, writes it and prints what it is like.

    The best so far is written whenever there is a better one, at most once a second. The directory
    for what the placer learns may have that of an earlier run of the same search, whose points are
    not written again.

    Raises:
        ImportError: the placer needs TensorFlow, which is not installed.
        OSError: a file cannot be read or written.
        ValueError: the problem or a setting is wrong.
    """
    check_seed(args.seed)
    max_secs = args.max_secs
    if max_secs is None:
        max_secs = _DEFAULT_SECS if args.max_trials == sys.maxsize else math.inf
    if args.output is None and not args.json:
        raise ValueError("--output or --json is needed: else nobody gets the placement")
    check_standard_output(args)
    budget = Budget(args.max_trials, max_secs)
    options = placer_options(args)
    if args.output is not None:
        check_output(args.output, args.problem, *_own_paths(args.log_dir))
    if args.log_dir is not None and args.problem == "-":
        raise ValueError("--problem must be a file for --log_dir, which says what the log is of")
    workers = find_workers(args.workers, args.num_workers, args.controllers)
    check_is_for_controllers(workers, args.placer, options)
    if workers is not None and workers.controllers == 1 and args.placer != AUTO:
        raise ValueError(
            f"placer {args.placer!r} simulates a batch in less time than it takes to send it to "
            "workers: --workers is for 'auto', and for placers that learn by --controllers"
        )
    deadline = _Deadline(args.start_secs, max_secs)
    problem = read_problem(args.problem)
    if args.placer == AUTO:
        config = AutoConfig(**check_options(args.placer, options))
        _search_auto(problem, args, options, config, budget, deadline, workers)
    else:
        _search_placer(problem, args, options, budget, deadline, workers)
    deadline.say_if_exceeded()


def _own_paths(log_dir: str | None) -> list[pathlib.Path]:
    """Lists what a search writes in its directory beside the result, which may be the output."""
    if log_dir is None:
        return []
    directory = PlanDirectory(log_dir)
    return [directory.path / name for name in directory.names if name != directory.result.name]


def _search_placer(
    problem: PlacementProblem,
    args: argparse.Namespace,
    options: Mapping[str, str],
    budget: Budget,
    deadline: _Deadline,
    workers: Workers | None,
) -> None:
    """Searches with a placer that is asked for proposals, and keeps the best so far in the file."""
    placed, clusters = problem, np.arange(problem.num_groups)
    if granularity_of(args.placer, options) == "coarse":
        placed, clusters = coarse_problem(problem)
    setup = PlacerSetup(
        args.placer,
        group_graph(placed),
        legal_devices(placed),
        args.seed,
        options,
        placed,
        _start(problem, clusters, args, options),
    )
    log = SearchLog(args, options)
    file = ResultFile(args.output, log)
    line = TerminalLine(sys.stderr)

    def of_groups(outcome: SearchOutcome) -> SearchOutcome:
        assignment = np.array(outcome.assignment)[clusters]
        return dataclasses.replace(outcome, assignment=tuple(assignment.tolist()))

    def report(outcome: SearchOutcome, eta_secs: float) -> None:
        file.update(of_groups(outcome))
        line.show(_progress(outcome, eta_secs))

    with contextlib.ExitStack() as stack:
        recorder = training = None
        if args.log_dir is not None:
            training = stack.enter_context(TrainingLog(args.log_dir, log.header))
            recorder = TrainingRecorder(training, args.log_dir, say)
        log.begin()
        stack.callback(line.clear)
        trials: TrialLog | None = None
        placer: Placer | ConcurrentPlacer
        if workers is None:
            placer = _placer(setup)
        else:
            trials, placer = _controllers(workers, setup, args, log, training, stack)
        deadline.begin_search()
        outcome = search_problem(
            placed,
            placer,
            max_trials=budget.max_trials,
            max_secs=deadline.left_secs(),
            seed=args.seed,
            log=trials,
            report=report,
            observed=None if recorder is None else recorder.observed,
            sampled=log.sampled.add,
        )
        line.clear()
        outcome = of_groups(outcome)
        if recorder is not None and not (workers and outcome.interrupted):
            recorder.finish()
        if training is not None and (stale := staleness_line(training.updates)):
            say(stale)
    lines = [search_table(problem, outcome), *_places(args)]
    values = {"output": args.output, "log_dir": args.log_dir}
    # It is of use where a file cannot be written, too.
    answer(args, "\n".join(lines), search_values(problem, outcome) | values)
    try:
        log.write()
    finally:
        file.finish(outcome)


def _places(args: argparse.Namespace) -> list[str]:
    """Says where what is written goes."""
    places = {"result": args.output, "log": args.log_dir}
    return [f"{what}: {path}" for what, path in places.items() if path is not None]


def _search_auto(
    problem: PlacementProblem,
    args: argparse.Namespace,
    options: Mapping[str, str],
    config: AutoConfig,
    budget: Budget,
    deadline: _Deadline,
    workers: Workers | None,
) -> None:
    """Searches in simulation with all that there is, and keeps the best so far in the file."""
    read_secs = deadline.used_secs()
    groups, seed = group_graph(problem), args.seed
    explain_secs = min(_MOST_EXPLAIN_SECS, _EXPLAIN_SHARE * budget.max_secs)
    log = SearchLog(args, options)
    log.begin()
    file = ResultFile(args.output, log)
    line = TerminalLine(sys.stderr)
    bound_secs = float(lower_bounds(problem).step_secs)
    deadline.begin_search()
    # What bounds the result is found out, and everything written, in about the time that it took to
    # prepare the search.
    after_secs = deadline.used_secs() - read_secs

    def outcome(state: AutoProgress | AutoResult, interrupted: bool = False) -> SearchOutcome:
        return SearchOutcome(
            step_secs=state.best.step_secs,
            feasible=not state.best.excess_bytes,
            assignment=tuple(state.best.placement.tolist()),
            peak_bytes=tuple(state.best.peak_bytes.tolist()),
            lower_bound_secs=bound_secs,
            trials=state.num_simulated,
            elapsed_secs=round(state.elapsed_secs, 3),
            placer=AUTO,
            seed=seed,
            interrupted=interrupted,
        )

    def report(progress: AutoProgress) -> None:
        now = outcome(progress)
        if now.feasible and now.step_secs is not None:
            log.sampled.add_best(now.trials, now.step_secs)
        file.update(now)
        eta_secs = progress.elapsed_secs * (1.0 / max(progress.share, 1e-3) - 1.0)
        line.show(_progress(now, eta_secs))

    try:
        search = refined_search
        if workers is not None:
            search = functools.partial(_search_by_workers, workers)
        result = search(
            problem,
            groups,
            max_secs=deadline.left_secs(explain_secs + after_secs),
            max_simulated=budget.max_trials,
            config=config,
            seed=seed,
            report=report,
        )
    finally:
        line.clear()
    found = outcome(result, result.interrupted)
    file.update(found, at_once=True)
    changes: tuple[WhatIf, ...] = ()
    limits = limits_of(problem, result.best.placement) if found.feasible else None
    if found.feasible and not result.interrupted:
        # Writing is still to come.
        left_secs = deadline.left_secs(after_secs / 2)
        changes = what_if(
            *(problem, groups, result.best.placement),
            search_secs=min(explain_secs, left_secs),
            seed=seed,
        )
    if found.feasible and found.step_secs is not None:
        log.sampled.add_best(found.trials, found.step_secs)
    lines = [search_table(problem, found)]
    if result.is_optimal:
        lines.append("              no placement is better")
    elif result.is_near_bound:
        lines.append(
            "              no placement is better by more than 1 %: the search ended early"
        )
    lines += ["", auto_table(result, changes, limits)]
    if found.feasible and not result.interrupted and not changes:
        lines.append("what other machines would bring is left out: there is no time for it")
    places = _places(args)
    if places:
        lines += ["", *places]
    values = {"output": args.output, "log_dir": args.log_dir}
    answer(args, "\n".join(lines), search_values(problem, found, result, limits, changes) | values)
    try:
        log.write(result, changes)
    finally:
        file.finish(found)


def _search_by_workers(
    workers: Workers,
    problem: PlacementProblem,
    groups: GroupGraph,
    *,
    max_secs: float,
    max_simulated: float,
    config: AutoConfig,
    seed: int,
    report: Callable[[AutoProgress], None],
) -> AutoResult:
    """Searches as `refined_search` does, on several workers."""
    del groups  # Each worker finds them.
    start_secs = time.monotonic()
    with connected(workers):
        # On one computer the workers share the cores.
        cores = len(os.sched_getaffinity(0))
        threads = max(1, cores // (workers.count or 1)) if workers.are_here else None
        fleet = RayFleet(workers, IslandWorker, problem, config, threads)
        return island_search(
            fleet,
            fleet.wanted(),
            max_secs=max(1.0, max_secs - (time.monotonic() - start_secs)),
            max_simulated=max_simulated,
            seed=seed,
            report=report,
            say=say,
        )


def _progress(outcome: SearchOutcome, eta_secs: float) -> str:
    return (
        f"{outcome.trials:,} trials | best {format_outcome(outcome)} | "
        f"elapsed {format_duration(outcome.elapsed_secs)} | ETA {format_duration(eta_secs)}"
    )


def _start(
    problem: PlacementProblem,
    clusters: np.ndarray,
    args: argparse.Namespace,
    options: Mapping[str, str],
) -> np.ndarray | None:
    """Reads the placement that a policy starts from, the device that most of each group is on."""
    source = start_source(args.placer, options)
    if source is None:
        return None
    if source == ORIGINAL_START:
        raise ValueError(
            f"start {ORIGINAL_START!r} is for `optimize`, because a problem does not say where its "
            "graph was: give a file with the device of every group, as `search` writes it"
        )
    row = read_assignment(source, problem, args.problem)
    return coarse_assignment(row, clusters, int(clusters.max(initial=-1)) + 1, problem.num_devices)


def _placer(setup: PlacerSetup) -> Placer:
    try:
        return setup.make_placer()
    except ImportError as error:
        # Others name themselves and how they are installed.
        if error.name in ("keras", "tensorflow"):
            require_tensorflow()
        raise


def _controllers(
    workers: Workers,
    setup: PlacerSetup,
    args: argparse.Namespace,
    log: SearchLog,
    training: TrainingLog | None,
    stack: contextlib.ExitStack,
) -> tuple[TrialLog, Controllers]:
    """Starts controllers, and opens the log of what they propose; the stack ends both.

    Without a directory for the log, it is gone at the end.
    """
    directory = args.log_dir or stack.enter_context(scratch_directory())
    trials = stack.enter_context(
        TrialLog(os.path.join(directory, SIMULATED_TRIALS), log.header or {"seed": args.seed})
    )
    if training is not None and not trials.trials:
        training.restart()
    say(f"starting {workers.controllers} controllers")
    stack.enter_context(connected(workers))
    controllers = ray_controllers(
        workers,
        setup,
        directory=args.log_dir,
        updates=() if training is None else training.updates,
        say=say,
    )
    return trials, stack.enter_context(controllers)
