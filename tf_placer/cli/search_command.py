"""What the command `search` does; free of TensorFlow, unless the placer needs it."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import os
import pathlib
import sys
import time
from collections.abc import Mapping
from typing import Any

import numpy as np

from tf_placer.errors import require_tensorflow
from tf_placer.files import check_output, write_json
from tf_placer.placers import AUTO, check_options, describe_placer, make_placer, units_of
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
from tf_placer.search.log_header import package_versions
from tf_placer.search.loop import Budget
from tf_placer.search.simulated_search import SearchOutcome, search_problem
from tf_placer.search.training_log import TRAINING, TrainingLog
from tf_placer.search.training_recorder import TrainingRecorder
from tf_placer.simulation.lower_bounds import lower_bounds
from tf_placer.text.table import table
from tf_placer.text.terminal_line import TerminalLine
from tf_placer.text.units import format_bytes, format_duration, format_step

__all__ = ["search_file"]

_SAVE_SECS = 1.0
# What of a search by auto is for the question what one more device would bring.
_EXPLAIN_SHARE, _MOST_EXPLAIN_SECS = 0.05, 5.0


def search_file(
    problem_path: str,
    output: str,
    *,
    placer: str,
    placer_options: Mapping[str, str],
    max_trials: int,
    max_secs: float,
    log_dir: str | None,
    seed: int,
) -> None:
    """Searches for the fastest placement of a problem, writes it and prints what it is like.

    The best so far is written whenever there is a better one, at most once a second.

    Args:
        problem_path: the problem.
        output: where the result goes.
        placer: name of the placer.
        placer_options: its settings that are not the defaults.
        max_trials: placements to simulate at most.
        max_secs: seconds of searching.
        log_dir: directory for what the placer learns, or None. It may have that of an earlier run
            of the same search, whose points are not written again.
        seed: of everything random.

    Raises:
        ImportError: the placer needs TensorFlow, which is not installed.
        OSError: a file cannot be read or written.
        ValueError: the problem or a setting is wrong.
    """
    if seed < 0:
        raise ValueError(f"seed must not be negative, but is {seed}")
    Budget(max_trials, max_secs)
    check_output(output, problem_path, log_dir and os.path.join(log_dir, TRAINING))
    problem = read_problem(problem_path)
    if placer == AUTO:
        config = AutoConfig(**check_options(placer, placer_options))
        if log_dir is not None:
            raise ValueError("placer 'auto' learns nothing that --log_dir could keep")
        _search_auto(problem, output, config, max_trials=max_trials, max_secs=max_secs, seed=seed)
        return
    placed, clusters = problem, np.arange(problem.num_groups)
    if units_of(placer, placer_options) == "heuristic":
        placed, clusters = coarse_problem(problem)
    proposer = _placer(placed, placer, placer_options, seed)
    file = _ResultFile(output)
    line = TerminalLine(sys.stderr)

    def of_groups(outcome: SearchOutcome) -> SearchOutcome:
        assignment = np.array(outcome.assignment)[clusters]
        return dataclasses.replace(outcome, assignment=tuple(assignment.tolist()))

    def report(outcome: SearchOutcome, eta_secs: float) -> None:
        file.update(of_groups(outcome))
        line.show(_progress(outcome, eta_secs))

    with contextlib.ExitStack() as stack:
        recorder = None
        if log_dir is not None:
            header = _log_header(problem_path, proposer, placer_options)
            log = stack.enter_context(TrainingLog(log_dir, header))
            recorder = TrainingRecorder(log, log_dir)
        try:
            outcome = of_groups(
                search_problem(
                    placed,
                    proposer,
                    max_trials=max_trials,
                    max_secs=max_secs,
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
    print("result:", output)
    if log_dir is not None:
        print("log:", log_dir)


def _search_auto(
    problem: PlacementProblem,
    output: str,
    config: AutoConfig,
    *,
    max_trials: int,
    max_secs: float,
    seed: int,
) -> None:
    """Searches in simulation with all that there is, and keeps the best so far in the file."""
    groups = group_graph(problem)
    explain_secs = min(_MOST_EXPLAIN_SECS, _EXPLAIN_SHARE * max_secs)
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
        result = refined_search(
            problem,
            groups,
            max_secs=max_secs - explain_secs,
            max_simulated=max_trials,
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
    print(f"\n{auto_table(result, changes, limits)}\n\nresult: {output}")


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


def _log_header(
    problem_path: str, placer: Placer, placer_options: Mapping[str, str]
) -> dict[str, Any]:
    """What the training log of a search says that it is of."""
    settings = describe_placer(placer.name, placer_options).settings
    return {
        "problem": hashlib.sha256(pathlib.Path(problem_path).read_bytes()).hexdigest(),
        "placer": placer.name,
        "configuration": {setting.name: setting.value for setting in settings},
        "seed": placer.seed,
        "versions": package_versions(),
    }


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
    """The outcome of a search for people."""
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
