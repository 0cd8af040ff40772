"""Explains what came of a live search."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from graph_passes.grouping.group_graph import GroupGraph
from tf_placer.files import reading
from tf_placer.problem.placement_problem import PlacementProblem
from tf_placer.report.explanation import Explanation, explain
from tf_placer.runs.run_directory import RunDirectory
from tf_placer.runs.run_result import RunResult
from tf_placer.search.trial_log import Trial

__all__ = ["explain_trials", "read_explanation"]

# How many candidates are compared.
_MOST = 12


def explain_trials(
    problem: PlacementProblem,
    groups: GroupGraph,
    trials: Sequence[Trial],
    finalists: Mapping[str, Trial],
    winner: str | None,
    *,
    search_secs: float,
    seed: int,
) -> Explanation:
    """Compares what the search measured of the finalists and the fastest others with predictions.

    Args:
        problem: what was placed, with the costs as they were profiled.
        groups: its groups.
        trials: of the search; one of them ran and is not the graph as it came.
        finalists: by label, the graph as it came first.
        winner: label of what was found; the fastest placement is explained where nothing was.
        search_secs: seconds of searching for a machine with one more device.
        seed: of that search.
    """
    ran = [t for t in trials if t.measurement.median_secs is not None and t.repeats is None]
    ran.sort(key=lambda t: t.measurement.median_secs or math.inf)
    labels = {trial.index: label for label, trial in finalists.items()}
    others = [trial for trial in ran if trial.index not in labels]
    shown = dict(finalists)
    for trial in others[: max(0, _MOST - len(finalists))]:
        labels[trial.index] = f"{trial.placer} (trial {trial.index})"
        shown[labels[trial.index]] = trial
    # The confirmation's steps are of other minutes, in which the machine may be faster or slower.
    measured = {
        label: (trial.assignment, trial.measurement.median_secs) for label, trial in shown.items()
    }
    fastest = next(trial for trial in ran if trial.assignment is not None)
    return explain(
        problem,
        groups,
        measured,
        winner or labels[fastest.index],
        search_secs=search_secs,
        seed=seed,
    )


def read_explanation(directory: RunDirectory, result: RunResult) -> Explanation | None:
    """Reads the explanation of a result; None where it has none.

    Raises:
        ValueError: it is no explanation; the message names the file.
    """
    if result.explanation is None:
        return None
    with reading(directory.result, "the result of a search"):
        return Explanation.from_json(result.explanation)
