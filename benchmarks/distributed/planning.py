"""How long a search takes with more workers than there are here, on paper.

Controllers of K workers each work in two phases: all K placements are measured, and the workers
wait for the slowest; then the controller learns and samples, and they wait for that. The parameter
server takes updates one after the other. So C controllers make C updates in the time of both
phases, unless the server is slower.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

__all__ = ["Plan", "plan", "slowest_share"]


@dataclasses.dataclass(frozen=True)
class Plan:
    """What a number of workers is expected to do.

    Attributes:
        workers: how many.
        updates_per_sec: that the server is given.
        server_load: the share of its time in which the parameter server is busy.
        idle_share: the share of their time in which workers wait.
        wall_secs: until all samples are measured.
    """

    workers: int
    updates_per_sec: float
    server_load: float
    idle_share: float
    wall_secs: float


def slowest_share(trial_secs: Sequence[float], batch_size: int) -> float:
    """Computes how many times as long as a mean trial the slowest of a batch takes.

    Args:
        trial_secs: in the order of the search, so that neighbours come from much the same policy.
        batch_size: trials per batch; those left over at the end are not looked at.
    """
    count = len(trial_secs) // batch_size
    batches = np.reshape(trial_secs[: count * batch_size], (count, batch_size))
    return float(batches.max(axis=1).mean() / batches.mean())


def plan(
    workers: int,
    batch_size: int,
    samples: float,
    *,
    trial_secs: float,
    slowest: float,
    learn_secs: float,
    apply_secs: float,
) -> Plan:
    """Computes how long a search takes.

    Args:
        workers: how many: `batch_size` for each controller, or a single one, which measures the
            placements of a batch one after the other.
        batch_size: placements per batch.
        samples: placements that are measured.
        trial_secs: of a mean trial.
        slowest: how many times as long the slowest of a batch takes.
        learn_secs: from the end of a batch until the first placement of the next one starts.
        apply_secs: how long the parameter server has for one update.
    """
    controllers = workers // batch_size if workers > 1 else 1
    measuring_secs = trial_secs * (slowest if workers > 1 else batch_size)
    rate = min(controllers / (measuring_secs + learn_secs), 1.0 / apply_secs)
    return Plan(
        workers,
        rate,
        rate * apply_secs,
        1.0 - rate * batch_size * trial_secs / workers,
        samples / batch_size / rate,
    )
