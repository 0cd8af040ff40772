"""Lower bounds on the start of operations, and on the time from their end to the end of the step.

The inputs of an operation are computed on its own device, one after the other, or are transferred
from other devices. Both take time that the longest chain of operations does not include.
"""

from __future__ import annotations

import ctypes

import numpy as np

from tf_placer.native.library import Struct, array_of, core, int64, pointer_to
from tf_placer.problem.placement_problem import PlacementProblem
from tf_placer.problem.problem_groups import legal_devices

__all__ = ["earliest_starts", "latest_rests"]


class _JoinTables(Struct):
    """The struct `JoinTables` of `native/joins.h`."""

    _fields_ = (
        ("order", array_of(np.int32)),
        ("first_edge", array_of(np.int64)),
        ("sources", array_of(np.int32)),
        ("transfer_secs", array_of(np.float64)),
        ("is_forced", array_of(np.uint8)),
        ("least_secs", array_of(np.float64)),
        ("secs", array_of(np.float64)),
        ("slots", array_of(np.int64)),
        ("num_operations", int64),
        ("num_kinds", int64),
    )


def earliest_starts(problem: PlacementProblem) -> np.ndarray:
    """Computes a lower bound on the start of each operation, for every placement.

    Returns:
        float64 [num_operations], seconds.
    """
    return _starts(problem, *_edges(problem), problem.order)


def latest_rests(problem: PlacementProblem) -> np.ndarray:
    """Computes a lower bound on the time from the end of each operation to the end of the step.

    This is `earliest_starts` of the reversed graph: the consumers of an operation run on its own
    device, one after the other, or on other devices after a transfer.

    Returns:
        float64 [num_operations], seconds.
    """
    edges, secs = _edges(problem)
    return _starts(problem, edges[:, ::-1], secs, problem.order[::-1])


def _edges(problem: PlacementProblem) -> tuple[np.ndarray, np.ndarray]:
    """Lists the dependencies of operations, and the shortest possible transfer of each.

    Returns:
        int64 [num_edges, 2], distinct pairs (before, after); float64 [num_edges], seconds.
    """
    sizes = np.repeat(problem.tensor_bytes, np.diff(problem.consumer_start))
    sizes = np.concatenate([sizes, np.zeros(len(problem.control_edges), np.int64)])
    count = problem.num_operations
    pairs, pair_of = np.unique(problem.edges.astype(np.int64) @ [count, 1], return_inverse=True)
    most_bytes = np.zeros(len(pairs), np.int64)
    np.maximum.at(most_bytes, pair_of, sizes)
    secs = np.full(len(pairs), np.inf)
    for latency, bandwidth in {
        (link.latency_secs, link.bandwidth_bytes_per_sec) for link in problem.links
    }:
        np.minimum(secs, latency + most_bytes / bandwidth, out=secs)
    return np.stack([pairs // count, pairs % count], axis=1), secs


def _starts(
    problem: PlacementProblem, edges: np.ndarray, secs: np.ndarray, order: np.ndarray
) -> np.ndarray:
    count = problem.num_operations
    legal = legal_devices(problem)[problem.groups]
    compute_secs = np.where(legal, problem.compute_secs, np.inf)
    slots = np.array([device.slots for device in problem.devices], np.int64)
    kinds = np.unique(slots)
    sources, targets = edges.T
    by_target = np.lexsort([sources, targets])
    sources, targets, secs = sources[by_target], targets[by_target], secs[by_target]
    together = problem.groups[sources] == problem.groups[targets]
    apart = ~(legal[sources] & legal[targets]).any(axis=1)
    tables = _JoinTables(
        order=np.ascontiguousarray(order, np.int32),
        first_edge=np.searchsorted(targets, np.arange(count + 1)).astype(np.int64),
        sources=sources.astype(np.int32),
        transfer_secs=np.where(together, np.inf, secs),
        is_forced=apart.astype(np.uint8),
        least_secs=compute_secs.min(axis=1),
        secs=np.stack([compute_secs[:, slots == kind].min(axis=1) for kind in kinds]),
        slots=kinds,
        num_operations=count,
        num_kinds=len(kinds),
    )
    starts = np.zeros(count)
    if core().tf_placer_earliest_starts(ctypes.byref(tables), pointer_to(starts, np.float64)):
        raise MemoryError(f"no memory for the bounds of {count:,} operations")
    return starts
