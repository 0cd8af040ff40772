"""Where a simulated step loses its time."""

from __future__ import annotations

import numpy as np

from tf_placer.placers.auto.moves import HotSpots, make_hot_spots
from tf_placer.simulation.critical_path import critical_jobs
from tf_placer.simulation.simulator import StepTrace

__all__ = ["hot_spots"]


def hot_spots(trace: StepTrace) -> HotSpots:
    """Finds the groups and transfers on the critical path of a step."""
    problem, transfers = trace.problem, trace.transfers
    jobs = np.array([job for job, _ in critical_jobs(trace)])
    is_transfer = jobs >= problem.num_operations
    sent = np.where(is_transfer, jobs - problem.num_operations, 0)
    operations = np.where(is_transfer, 0, jobs)
    if len(transfers.producers):
        operations = np.where(is_transfer, transfers.producers[sent], operations)
        sent_secs = (transfers.end_secs - transfers.start_secs)[sent]
    else:
        sent_secs = np.zeros(len(jobs))
    run_secs = (trace.end_secs - trace.start_secs)[operations]
    secs = np.where(is_transfer, sent_secs, run_secs)
    # What comes behind a transfer is what had to wait for it, on the device that it went to.
    ends = np.flatnonzero(is_transfer[:-1] & ~is_transfer[1:])
    groups = problem.groups[operations].astype(np.int32)
    return make_hot_spots(
        groups,
        secs + 1e-3 * secs.mean() + 1e-300,
        np.stack([groups[ends], groups[ends + 1]], axis=1),
    )
