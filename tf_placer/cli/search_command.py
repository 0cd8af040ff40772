"""The command `search`: finds a fast placement of a problem by simulating steps.

Free of TensorFlow, unless the placer needs it.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import functools
import hashlib
import math
import os
import pathlib
import sys
import time
from collections.abc import Callable, Mapping

import numpy as np

from graph_passes.grouping.group_graph import GroupGraph
from tf_placer.cli.arguments import (
    PROBLEM_HELP,
    add_placer,
    add_workers,
    placer_options,
    placers_help,
)
from tf_placer.errors import require_tensorflow
from tf_placer.files import check_output, write_json
from tf_placer.placers import AUTO, check_options, granularity_of, make_placer
from tf_placer.placers.auto.auto_config import AutoConfig
from tf_placer.placers.auto.auto_search import AutoProgress, AutoResult
from tf_placer.placers.auto.refined_search import refined_search
from tf_placer.placers.placer import Placer
from tf_placer.problem.coarse_groups import coarse_problem
from tf_placer.problem.placement_problem import PlacementProblem
from tf_placer.problem.problem_file import read_problem
from tf_placer.problem.problem_groups import group_graph, legal_devices
from tf_placer.report.auto_table import auto_table
from tf_placer.report.limits import limits_of
from tf_placer.report.what_if import WhatIf, what_if
from tf_placer.search.distributed.island_search import IslandWorker, island_search
from tf_placer.search.distributed.ray_fleet import RayFleet, connected
from tf_placer.search.distributed.workers import Workers, find_workers
from tf_placer.search.log_header import search_header
from tf_placer.search.loop import Budget
from tf_placer.search.simulated_search import SearchOutcome, search_problem
from tf_placer.search.training_log import TRAINING, TrainingLog
from tf_placer.search.training_recorder import TrainingRecorder
from tf_placer.simulation.lower_bounds import lower_bounds
from tf_placer.text.table import table
from tf_placer.text.terminal_line import TerminalLine
from tf_placer.text.units import format_bytes, format_duration, format_step

__all__ = ["DESCRIPTION", "add_arguments", "run"]

DESCRIPTION = (
    "Simulates what a placer proposes, on all cores, and keeps the fastest "
    "placement that fits the memory of the devices. The result file always has the best so "
    "far, also while the search runs; Ctrl-C ends the search with it."
)
_DEFAULT_SECS = 60.0
_SAVE_SECS = 1.0
# What of a search by auto is for the question what one more device would bring.
_EXPLAIN_SHARE, _MOST_EXPLAIN_SECS = 0.05, 5.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds what the command takes."""
    parser.epilog = placers_help() + ". Those that learn need TensorFlow."
    parser.add_argument("--problem", required=True, help=PROBLEM_HELP)
    parser.add_argument(
        "--output",
        required=True,
        help="where the result goes (.json): step_secs, feasible, assignment (a device index per "
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
        help="directory for what a placer that learns has learned: training.jsonl, curves for "
        "TensorBoard, and the policy; nothing of this is kept by default",
    )
    parser.add_argument(
        "--seed",
        type=int,
        default=0,
        help="of everything random (default 0). The same seed gives the same result where "
        "--max_trials ends the search, with --workers on the same number of workers",
    )
    add_workers(parser)


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
    if args.seed < 0:
        raise ValueError(f"seed must not be negative, but is {args.seed}")
    max_secs = args.max_secs
    if max_secs is None:
        max_secs = _DEFAULT_SECS if args.max_trials == sys.maxsize else math.inf
    budget = Budget(args.max_trials, max_secs)
    options = placer_options(args.placer_option)
    check_output(args.output, args.problem, args.log_dir and os.path.join(args.log_dir, TRAINING))
    workers = find_workers(args.workers, args.num_workers)
    if workers is not None and args.placer != AUTO:
        raise ValueError(
            f"placer {args.placer!r} simulates a batch in less time than it takes to send it to "
            "workers: --workers is for 'auto'"
        )
    problem = read_problem(args.problem)
    if args.placer == AUTO:
        config = AutoConfig(**check_options(args.placer, options))
        if args.log_dir is not None:
            raise ValueError("placer 'auto' learns nothing that --log_dir could keep")
        _search_auto(problem, args.output, config, budget, args.seed, workers)
    else:
        _search_placer(problem, args, options, budget)


def _search_placer(
    problem: PlacementProblem,
    args: argparse.Namespace,
    options: Mapping[str, str],
    budget: Budget,
) -> None:
    """Searches with a placer that is asked for proposals, and keeps the best so far in the file."""
    placed, clusters = problem, np.arange(problem.num_groups)
    if granularity_of(args.placer, options) == "coarse":
        placed, clusters = coarse_problem(problem)
    proposer = _placer(placed, args.placer, options, args.seed)
    file = _ResultFile(args.output)
    line = TerminalLine(sys.stderr)

    def of_groups(outcome: SearchOutcome) -> SearchOutcome:
        assignment = np.array(outcome.assignment)[clusters]
        return dataclasses.replace(outcome, assignment=tuple(assignment.tolist()))

    def report(outcome: SearchOutcome, eta_secs: float) -> None:
        file.update(of_groups(outcome))
        line.show(_progress(outcome, eta_secs))

    with contextlib.ExitStack() as stack:
        recorder = None
        if args.log_dir is not None:
            problem_sha256 = hashlib.sha256(pathlib.Path(args.problem).read_bytes()).hexdigest()
            header = search_header({"problem": problem_sha256}, args.placer, options, args.seed)
            log = stack.enter_context(TrainingLog(args.log_dir, header))
            recorder = TrainingRecorder(log, args.log_dir)
        try:
            outcome = of_groups(
                search_problem(
                    placed,
                    proposer,
                    max_trials=budget.max_trials,
                    max_secs=budget.max_secs,
                    report=report,
                    observed=None if recorder is None else recorder.observed,
                )
            )
        finally:
            line.clear()
        file.write(outcome)
        if recorder is not None:
            recorder.finish()
    print(_search_table(problem, outcome))
    print("result:", args.output)
    if args.log_dir is not None:
        print("log:", args.log_dir)


def _search_auto(
    problem: PlacementProblem,
    output: str,
    config: AutoConfig,
    budget: Budget,
    seed: int,
    workers: Workers | None,
) -> None:
    """Searches in simulation with all that there is, and keeps the best so far in the file."""
    groups = group_graph(problem)
    explain_secs = min(_MOST_EXPLAIN_SECS, _EXPLAIN_SHARE * budget.max_secs)
    file = _ResultFile(output)
    line = TerminalLine(sys.stderr)
    bound_secs = float(lower_bounds(problem).step_secs)

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
            max_secs=budget.max_secs - explain_secs,
            max_simulated=budget.max_trials,
            config=config,
            seed=seed,
            report=report,
        )
    finally:
        line.clear()
    found = outcome(result, result.interrupted)
    file.write(found)
    changes: tuple[WhatIf, ...] = ()
    limits = limits_of(problem, result.best.placement) if found.feasible else None
    if found.feasible and not result.interrupted:
        changes = what_if(
            problem, groups, result.best.placement, search_secs=explain_secs, seed=seed
        )
    print(_search_table(problem, found))
    if result.is_optimal:
        print("              no placement is better")
    elif result.is_near_bound:
        print("              no placement is better by more than 1 %: the search ended early")
    print(f"\n{auto_table(result, changes, limits)}\n\nresult: {output}")


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
            say=lambda line: print(f"tf_placer: {line}", file=sys.stderr, flush=True),
        )


def _progress(outcome: SearchOutcome, eta_secs: float) -> str:
    return (
        f"{outcome.trials:,} trials | best {_step(outcome)} | "
        f"elapsed {format_duration(outcome.elapsed_secs)} | ETA {format_duration(eta_secs)}"
    )


def _placer(problem: PlacementProblem, name: str, options: Mapping[str, str], seed: int) -> Placer:
    groups = group_graph(problem)
    try:
        return make_placer(
            name,
            groups,
            legal_devices(problem),
            seed=seed,
            options=options,
            problem=problem,
        )
    except ImportError as error:
        # Others name themselves and how they are installed.
        if error.name in ("keras", "tensorflow"):
            require_tensorflow()
        raise


class _ResultFile:
    """The file of the best placement so far."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._saved: tuple[int, ...] | None = None
        self._saved_secs = 0.0

    def update(self, outcome: SearchOutcome) -> None:
        """Writes the outcome if its placement is new, and the last one is not as new."""
        now_secs = time.monotonic()
        is_due = self._saved is None or now_secs - self._saved_secs >= _SAVE_SECS
        if is_due and outcome.assignment != self._saved:
            self.write(outcome)
            self._saved, self._saved_secs = outcome.assignment, now_secs

    def write(self, outcome: SearchOutcome) -> None:
        """Writes the outcome."""
        write_json(self._path, outcome.to_json())


def _step(outcome: SearchOutcome) -> str:
    if outcome.step_secs is None:
        return "none that may run"
    return format_step(outcome.step_secs) + ("" if outcome.feasible else " (does not fit)")


def _search_table(problem: PlacementProblem, outcome: SearchOutcome) -> str:
    """Shows the outcome of a search for people."""
    counts = np.bincount(outcome.assignment, minlength=problem.num_devices).tolist()
    rows = [
        [device.name, count, format_bytes(peak), format_bytes(device.memory_bytes)]
        for device, count, peak in zip(problem.devices, counts, outcome.peak_bytes, strict=True)
    ]
    bound_secs = outcome.lower_bound_secs
    lines = [
        table(["device", "groups", "peak memory", "memory"], rows, "lrrr"),
        "",
        f"step:         {_step(outcome)}",
        f"lower bound:  {format_step(bound_secs)}",
        f"trials:       {outcome.trials:,} of {outcome.placer} in "
        f"{format_duration(outcome.elapsed_secs)}"
        + (", interrupted" if outcome.interrupted else ""),
    ]
    return "\n".join(lines)
