"""Replay of a log, which gives placers their earlier observations when a search resumes."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

import numpy as np
from absl import logging

from tf_placer.environments.environment import Measurement
from tf_placer.placers.placer import Placer
from tf_placer.search.trial_log import ORIGINAL, LogError, Trial, TrialLog

__all__ = ["build_observation", "complete_batch", "find_logged_batches", "index_by_position"]


def find_logged_batches(log: TrialLog, names: Sequence[str]) -> dict[str, list[list[Trial]]]:
    """Splits a log into batches, by placer, and checks that these stages can have written it.

    Batches of controllers, which are interleaved in the log, are left out.

    Raises:
        LogError: the log has batches that these stages do not write.
    """
    batches: dict[str, list[list[Trial]]] = {}
    if log.trials and (log.trials[0].placer, log.trials[0].assignment) != (ORIGINAL, None):
        raise LogError(f"{log.path}: trial 0 is not the original graph")
    stage = 0
    sequential = [trial for trial in log.trials[1:] if trial.controller is None]
    for (placer, batch), group in itertools.groupby(
        sequential, key=lambda trial: (trial.placer, trial.batch)
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
        if len(index_by_position(trials)) < len(trials):
            raise LogError(f"{where} and its batch have two trials at one position")
        batches[placer].append(trials)
    return batches


def index_by_position(trials: Sequence[Trial]) -> dict[int, Trial]:
    """Indexes the trials of a batch by their position in it, in increasing order."""
    indexed = {
        number if trial.position is None else trial.position: trial
        for number, trial in enumerate(trials)
    }
    return dict(sorted(indexed.items()))


def complete_batch(
    placer: Placer, batch: int, logged: Mapping[int, Trial], proposal: list[tuple[int, ...]]
) -> dict[int, tuple[int, ...]]:
    """Lists the assignments of a batch: the logged ones, and the proposed ones that are missing.

    Args:
        placer: the placer that proposed the batch.
        batch: the number of the batch.
        logged: the trials of the batch in the log, by position.
        proposal: the repeated proposal of the placer for the batch.

    Returns:
        The assignments by position.
    """
    kept = {n: trial.assignment for n, trial in logged.items() if trial.assignment is not None}
    proposed = dict(enumerate(proposal))
    if any(proposed.get(n) != assignment for n, assignment in kept.items()):
        logging.warning(
            "batch %d of placer %r in the log differs from its proposal now; the log is kept",
            *(batch, placer.name),
        )
    return dict(sorted((proposed | kept).items()))


def build_observation(trials: Sequence[Trial]) -> tuple[np.ndarray, list[Measurement]]:
    """Builds the placements and measurements that a placer observes from a batch of trials."""
    ordered = list(index_by_position(trials).values())
    placements = np.array([trial.assignment for trial in ordered], dtype=np.int32)
    return placements, [trial.measurement for trial in ordered]
