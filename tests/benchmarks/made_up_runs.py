"""Runs and problems made by hand, for tests of what is told about them."""

from __future__ import annotations

import pathlib

from benchmarks.harness.placement_runs import Run, RunKey
from benchmarks.harness.timed_search import Found, SearchBudget
from benchmarks.problems.paper import ProblemKey, write_parts
from benchmarks.problems.small import SMALL_PROBLEMS
from tf_placer.problem.problem_groups import group_graph, legal_devices

__all__ = ["BUDGET", "make_failed_run", "run", "write_small_problem"]

BUDGET = SearchBudget(600.0, 2400)


def run(key: RunKey, best_secs: float | None, budget: SearchBudget = BUDGET, **changes) -> Run:
    """A run that found a step, or with None, that found nothing to fit."""
    lower_bound_secs = changes.pop("lower_bound_secs", 0.25)
    digest, losses = changes.pop("problem_digest", "digest"), changes.pop("losses", None)
    commit = changes.pop("commit", None)
    settings = {
        "samples": 100,
        "failures": 100 if best_secs is None else 0,
        "samples_to_best": 0 if best_secs is None else 7,
        "ended": "samples",
        "search_secs": 2.0,
        "make_secs": 0.5,
        "propose_secs": 0.5,
        "observe_secs": 0.5,
        "simulate_secs": 0.5,
        "curve": [] if best_secs is None else [[1, 0.1, 2 * best_secs], [7, 0.2, best_secs]],
        "window": 100,
        "mean_secs": [best_secs],
        "assignment": None if best_secs is None else [0, 1],
    } | changes
    found = Found(best_secs=best_secs, **settings)
    return Run(key, budget, digest, lower_bound_secs, found, None, {}, losses, commit)


def make_failed_run(key: RunKey, failure: str) -> Run:
    """A run that failed."""
    return Run(key, BUDGET, "", None, None, failure, {})


def write_small_problem(key: ProblemKey, problems_dir: pathlib.Path, name: str) -> None:
    """Makes one of the small problems that of a model."""
    problem = SMALL_PROBLEMS[name]
    write_parts(
        key,
        problems_dir,
        group_graph(problem),
        legal_devices(problem),
        problem,
        num_graph_operations=9,
    )
