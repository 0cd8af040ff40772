"""The log of a search, for people and for programs."""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from tf_placer.files import name_file_in_errors, read_json
from tf_placer.problem.problem_file import read_problem
from tf_placer.report.auto_table import limits_table
from tf_placer.report.controllers_table import controllers_table, staleness_line
from tf_placer.report.limits import find_limits
from tf_placer.report.plan_directory import PlanDirectory, PlanRecord
from tf_placer.report.problem_table import problem_values
from tf_placer.report.search_table import search_table
from tf_placer.report.training_table import training_table
from tf_placer.report.trials_table import log_table
from tf_placer.runs.run_directory import TRIALS, RunDirectory
from tf_placer.runs.search_state import SearchState, read_search_state
from tf_placer.search.distributed.worker_statistics import format_workers_table
from tf_placer.search.log_header import format_settings
from tf_placer.search.simulated_search import SearchOutcome
from tf_placer.search.training_log import TRAINING, read_training_log
from tf_placer.search.trial_log import Trial
from tf_placer.text.table import table, terminal_width
from tf_placer.text.units import format_step

__all__ = [
    "describe_costs",
    "describe_plan_request",
    "describe_request",
    "describe_search",
    "trial_values",
    "verdict_line",
]


def describe_search(log_dir: str) -> tuple[str, dict[str, Any]]:
    """Shows the trials of a search, the training of its placer, and the verdict.

    Args:
        log_dir: the directory of the search.

    Returns:
        Tables without a final newline, and JSON values.

    Raises:
        LogError: the log is damaged.
        OSError: the log cannot be read.
    """
    trials, training = (os.path.join(log_dir, name) for name in (TRIALS, TRAINING))
    learned, updates = _describe_training(log_dir) if os.path.exists(training) else (None, [])
    plan = PlanDirectory(log_dir)
    directory = RunDirectory(log_dir)
    values: dict[str, Any] = {
        "header": None,
        "request": describe_request(directory),
        "trials": [],
        "updates": updates,
        "verdict": None,
        "plan": None,
    }
    is_kept = directory.has_request and not os.path.exists(trials)
    kept = directory.read_result() if is_kept else None
    if kept is not None:
        state = SearchState({}, (), is_running=False, result=kept)
        parts = [f"the answer of an earlier search, without its trials\n{verdict_line(state)}"]
        values["verdict"] = state.to_json()
    # A search on a problem keeps samples and its best placement, but no log of trials.
    elif not os.path.exists(trials) and (record := plan.read_record()) is not None:
        shown, values["plan"] = _describe_plan(plan, record)
        values["header"] = record.header
        values["request"] = describe_plan_request(record)
        parts = [shown]
    elif os.path.exists(trials) or not os.path.exists(training):
        state = read_search_state(log_dir)
        header = describe_costs(state.header, directory)
        shown = log_table(header, state.trials, width=terminal_width())
        by_worker = format_workers_table(state.trials)
        tables = [shown, *([f"\n{by_worker}\n"] if by_worker else [])]
        parts = ["\n".join([*tables, verdict_line(state)])]
        values |= {
            "header": state.header,
            "trials": [trial_values(trial) for trial in state.trials],
            "verdict": state.to_json(),
        }
    else:
        parts = []
        learned = learned or "no update of the placer so far"
    parts += [learned] if learned else []
    return "\n\n".join(parts), values


def describe_costs(header: Mapping[str, Any], directory: RunDirectory) -> Mapping[str, Any]:
    """Returns the header for people, which tells costs that are known from those to profile."""
    if "costs" not in header or directory.problem.exists():
        return header
    return {**header, "costs": "not profiled"}


def describe_request(directory: RunDirectory) -> dict[str, Any] | None:
    """Makes the JSON form of what a live search was asked for; None if that is not known.

    Raises:
        OSError: the file of the request cannot be read.
        ValueError: the file is damaged; the message names it.
    """
    if not directory.has_request:
        return None
    budget = directory.read_budget()
    return {
        "command": directory.read_command(),
        "max_trials": budget.max_trials,
        "max_secs": budget.max_secs if math.isfinite(budget.max_secs) else None,
    }


def describe_plan_request(record: PlanRecord) -> dict[str, Any]:
    """Makes the JSON form of what a search on a problem was asked for."""
    return {
        "command": record.command,
        "max_trials": record.max_trials,
        "max_secs": record.max_secs,
    }


def _describe_plan(directory: PlanDirectory, record: PlanRecord) -> tuple[str, dict[str, Any]]:
    """Shows the result of a search on a problem, and what its record has beside it.

    Raises:
        OSError, ValueError: the problem or the result cannot be read.
    """
    values = {"is_running": directory.is_running} | dataclasses.asdict(record)
    for name in ("header", "max_trials", "max_secs"):
        del values[name]
    # As in the JSON of `search`.
    values["candidates"] = [
        {"name": each.label, "step_secs": each.step_secs, "fits": each.fits}
        for each in record.candidates
    ]
    if not directory.result.exists():
        state = "runs" if values["is_running"] else "was stopped"
        missing = {"result": None, "devices": None}
        return f"no result yet: the search {state}", {**values, **missing}
    problem = read_problem(directory.problem)
    values["devices"] = problem_values(problem)["devices"]
    result = read_json(directory.result)
    with name_file_in_errors(directory.result, "the result of a search"):
        names = {field.name for field in dataclasses.fields(SearchOutcome)} & result.keys()
        outcome = SearchOutcome(**{name: result[name] for name in names})
        lines = [search_table(problem, outcome)]
        if outcome.feasible:
            limits = find_limits(problem, np.array(outcome.assignment, np.int32))
            lines = [
                search_table(problem, outcome, limits=limits),
                "",
                limits_table(limits, "found"),
            ]
    if record.num_failed:
        lines[0] += f"\nfailed:       {record.num_failed:,} of the samples do not fit"
    if settings := format_settings(record.placer_options):
        lines[0] += f"\nsettings:     {settings}"
    if values["is_running"]:
        lines.insert(0, "the search runs; its best placement so far:\n")
    if record.candidates:
        rows = [
            [
                each.label,
                "-" if each.step_secs is None else format_step(each.step_secs),
                "yes" if each.fits else "no",
            ]
            for each in record.candidates
        ]
        lines += ["", table(["candidate", "step", "fits"], rows, "lrl")]
    return "\n".join([*lines, *record.remarks]), {**values, "result": result}


def _describe_training(log_dir: str) -> tuple[str | None, list[dict[str, Any]]]:
    """Shows the updates of the placer; None if there are none."""
    _, updates = read_training_log(log_dir)
    shown = training_table(updates, width=terminal_width()) if updates else None
    if shown is not None and (by_controller := controllers_table(updates)):
        shown = "\n\n".join([shown, f"{by_controller}\n\n{staleness_line(updates)}"])
    missing = dict.fromkeys(("controller", "version", "staleness"))
    return shown, [{**missing, **update.to_json()} for update in updates]


def trial_values(trial: Trial) -> dict[str, Any]:
    """Makes the JSON form of a trial, with the same entries for all trials, unlike the log."""
    missing = dict.fromkeys(
        ("reference_secs", "drift", "position", "worker", "controller", "version")
    )
    return {**missing, **trial.to_json()}


def verdict_line(state: SearchState) -> str:
    """Formats the verdict, or the reason why there is none, as one line."""
    if state.result is None:
        return f"verdict: {state.reason}"
    outcome = state.result.outcome
    return f"verdict: {outcome.title if outcome.is_verdict else 'none'}: {state.reason}"
