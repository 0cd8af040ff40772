"""The explanation of the result of a live search."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from graph_passes.grouping.group_graph import GroupGraph
from tf_placer.confirmation.confirmation import Confirmation
from tf_placer.files import name_file_in_errors
from tf_placer.problem.placement_problem import PlacementProblem
from tf_placer.report.explanation import Explanation, explain
from tf_placer.runs.compared_trials import compare_trials
from tf_placer.runs.run_directory import RunDirectory
from tf_placer.runs.run_result import RunResult
from tf_placer.search.trial_log import ORIGINAL, Trial

__all__ = ["explain_trials", "read_explanation"]

_MAX_CANDIDATES = 12


def explain_trials(
    problem: PlacementProblem,
    groups: GroupGraph,
    trials: Sequence[Trial],
    finalists: Mapping[str, Trial],
    confirmation: Confirmation | None,
    winner: str | None,
    *,
    original_assignment: Sequence[int] | None,
    search_secs: float,
    seed: int,
) -> Explanation:
    """Compares predicted and measured step times of the finalists and the fastest other trials.

    Args:
        problem: the placement problem, with the profiled costs.
        groups: its groups.
        trials: all trials of the search, at least one of which ran and is not the original.
        finalists: by label, the original first.
        confirmation: the measurements of finalists side by side, or None.
        winner: the label of the winner; without one, the original is explained if it ran and its
            groups have one device each, else the fastest placement.
        original_assignment: the device of each group in the original graph; None if a group has
            several.
        search_secs: seconds for the search on a machine with one more device.
        seed: seed of that search.
    """
    ran = [t for t in trials if t.measurement.median_secs is not None and t.repeats is None]
    ran.sort(key=lambda t: t.measurement.median_secs or math.inf)
    labels = {trial.index: label for label, trial in finalists.items()}
    others = [trial for trial in ran if trial.index not in labels]
    shown = dict(finalists)
    for trial in others[: max(0, _MAX_CANDIDATES - len(finalists))]:
        labels[trial.index] = f"{trial.placer} (trial {trial.index})"
        shown[labels[trial.index]] = trial
    measured = {
        each.label: (
            original_assignment if each.label == ORIGINAL else each.trial.assignment,
            each.step_secs,
        )
        for each in compare_trials(shown, confirmation, winner)
    }
    explained = winner
    if explained is None and None not in measured.get(ORIGINAL, (None,)):
        explained = ORIGINAL
    fastest = next(trial for trial in ran if trial.assignment is not None)
    return explain(
        problem,
        groups,
        measured,
        explained or labels[fastest.index],
        search_secs=search_secs,
        seed=seed,
    )


def read_explanation(directory: RunDirectory, result: RunResult) -> Explanation | None:
    """Reads the explanation of a result; None if it has none.

    Raises:
        ValueError: the explanation is invalid; the message names the file.
    """
    if result.explanation is None:
        return None
    with name_file_in_errors(directory.result, "the result of a search"):
        return Explanation.from_json(result.explanation)
