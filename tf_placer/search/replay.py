"""Resuming a search: what a log says that its placers have proposed and observed."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

import numpy as np
from absl import logging

from tf_placer.environments.environment import Measurement
from tf_placer.placers.placer import Placer
from tf_placer.search.trial_log import ORIGINAL, LogError, Trial, TrialLog

__all__ = ["as_measured", "by_position", "complete", "logged_batches"]


def logged_batches(log: TrialLog, names: Sequence[str]) -> dict[str, list[list[Trial]]]:
    """Splits a log into batches, by placer, and checks that they are such as these stages write.

    Batches of several controllers, which are among each other in the log, are left out.

    Raises:
        LogError: they are not.
    """
    batches: dict[str, list[list[Trial]]] = {}
    if log.trials and (log.trials[0].placer, log.trials[0].assignment) != (ORIGINAL, None):
        raise LogError(f"{log.path}: trial 0 is not the graph as it came")
    stage = 0
    of_one = [trial for trial in log.trials[1:] if trial.controller is None]
    for (placer, batch), group in itertools.groupby(
        of_one, key=lambda trial: (trial.placer, trial.batch)
    ):
        trials = list(group)
        where = f"{log.path}: trial {trials[0].index}"
        if placer not in names[stage:]:
            raise LogError(
                f"{where} is of placer {placer!r}, which does not fit the search {list(names)}"
            )
        stage = names.index(placer)
        if batch != len(batches.setdefault(placer, [])):
            raise LogError(f"{where} is of batch {batch} of {placer!r}, which is out of order")
        if any(trial.assignment is None for trial in trials):
            raise LogError(f"{where} and its batch lack an assignment")
        if len(by_position(trials)) < len(trials):
            raise LogError(f"{where} and its batch have two trials at one position")
        batches[placer].append(trials)
    return batches


def by_position(trials: Sequence[Trial]) -> dict[int, Trial]:
    """Finds the place that each trial of a batch has in it, in the order of the places."""
    placed = {
        number if trial.position is None else trial.position: trial
        for number, trial in enumerate(trials)
    }
    return dict(sorted(placed.items()))


def complete(
    placer: Placer, batch: int, logged: Mapping[int, Trial], proposal: list[tuple[int, ...]]
) -> dict[int, tuple[int, ...]]:
    """Lists the assignments of a batch: those in the log, and what was proposed beside them.

    Args:
        placer: who proposed it.
        batch: its number.
        logged: its trials in the log, by their place in it.
        proposal: what the placer proposes (again) for it.

    Returns:
        The assignments by their place in the batch.
    """
    kept = {n: trial.assignment for n, trial in logged.items() if trial.assignment is not None}
    proposed = dict(enumerate(proposal))
    if any(proposed.get(n) != assignment for n, assignment in kept.items()):
        logging.warning(
            "batch %d of placer %r in the log is not what it proposes now; the log is kept",
            *(batch, placer.name),
        )
    return dict(sorted((proposed | kept).items()))


def as_measured(trials: Sequence[Trial]) -> tuple[np.ndarray, list[Measurement]]:
    """Turns the trials of a batch, in the order of the log, into what its placer observes."""
    ordered = list(by_position(trials).values())
    placements = np.array([trial.assignment for trial in ordered], dtype=np.int32)
    return placements, [trial.measurement for trial in ordered]
