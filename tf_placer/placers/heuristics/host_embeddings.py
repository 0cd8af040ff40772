"""A placer that keeps embedding tables on the CPU, where memory is plenty."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import connected_components

from graph_passes.grouping.group_graph import GroupGraph
from tf_placer.placers.heuristics.contiguous import cut_equally
from tf_placer.placers.heuristics.list_scheduler import ListScheduler
from tf_placer.problem.accelerators import is_gpu
from tf_placer.problem.placement_problem import PlacementProblem

__all__ = ["HostEmbeddings", "find_table_groups"]

_LOOKUPS = frozenset(["Gather", "GatherV2", "GatherNd", "ResourceGather", "ResourceGatherNd"])
# A smaller table takes hardly any memory of an accelerator.
_MIN_TABLE_BYTES = 1 << 20
# The smallest tables may stay on the accelerators: this many sets are tried.
_MAX_TABLE_SETS = 4


class HostEmbeddings(ListScheduler):
    """Puts embedding tables on the CPU, and all else on one accelerator or on all by layers.

    A table takes with it all that is computed of whole tables: its lookups, sparse updates, and an
    optimizer's slots. Proposes all tables on the CPU first, then the larger ones alone. Proposes
    nothing without tables, or without an accelerator.
    """

    name = "host_embeddings"

    def _generate_placements(
        self, groups: GroupGraph, legal: np.ndarray, problem: PlacementProblem
    ) -> Iterator[np.ndarray]:
        accelerators = [n for n, device in enumerate(problem.devices) if is_gpu(device)]
        hosts = [n for n, device in enumerate(problem.devices) if not is_gpu(device)]
        tables = find_table_groups(problem)
        if not (hosts and accelerators and tables):
            return
        layer_numbers, layers = np.unique(groups.layers, return_inverse=True)
        for count in range(len(tables), max(0, len(tables) - _MAX_TABLE_SETS), -1):
            on_host = np.logical_or.reduce(tables[:count])
            for device in accelerators:
                yield np.where(on_host, hosts[0], device)
            if len(accelerators) > 1:
                work = np.bincount(layers, np.where(on_host, 0.0, groups.work), len(layer_numbers))
                parts = np.array(accelerators)[cut_equally(work, len(accelerators))[layers]]
                yield np.where(on_host, hosts[0], parts)


def find_table_groups(problem: PlacementProblem) -> list[np.ndarray]:
    """Finds embedding tables and the groups that belong to each.

    A table is a variable or constant of at least 1 MiB from which an operation looks up rows. To it
    belong its own group and all groups that hand over tensors of the size of the whole table.

    Args:
        problem: the placement problem, with the types of its operations.

    Returns:
        bool [num_groups] for each table, the largest table first; a table that belongs to a larger
        one is part of it. Empty if the types are unknown.
    """
    if problem.operation_types is None:
        return []
    held_bytes = np.zeros(problem.num_groups, np.int64)
    np.maximum.at(held_bytes, problem.groups, problem.resident_bytes)
    tensors = np.repeat(np.arange(problem.num_tensors), np.diff(problem.consumer_start))
    sources = problem.groups[problem.tensor_producers[tensors]]
    destinations = problem.groups[problem.consumers]
    read_bytes = problem.tensor_bytes[tensors]
    is_lookup = np.array([kind in _LOOKUPS for kind in problem.operation_types])
    # A lookup is colocated with the variable, or reads the whole value of it.
    is_table = np.zeros(problem.num_groups, np.bool_)
    is_table[problem.groups[is_lookup]] = True
    is_table[sources[is_lookup[problem.consumers] & (read_bytes == held_bytes[sources])]] = True
    is_table &= held_bytes >= _MIN_TABLE_BYTES
    found: list[np.ndarray] = []
    for table in sorted(np.flatnonzero(is_table).tolist(), key=lambda each: -held_bytes[each]):
        if not any(larger[table] for larger in found):
            whole = read_bytes == held_bytes[table]
            ends = (sources[whole], destinations[whole])
            matrix = coo_matrix((np.ones(len(ends[0])), ends), shape=[problem.num_groups] * 2)
            _, part_of = connected_components(matrix, directed=False)
            found.append(part_of == part_of[table])
    return found
