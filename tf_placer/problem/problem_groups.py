"""Views of a placement problem by group, for placers."""

from __future__ import annotations

import dataclasses

import numpy as np

from graph_passes.grouping.group_graph import GroupGraph, find_crossings
from tf_placer.problem.placement_problem import PlacementProblem
from tf_placer.problem.problem_checks import find_legal_devices

__all__ = [
    "device_fill",
    "device_secs",
    "forbid_devices",
    "group_graph",
    "group_layers",
    "legal_devices",
    "running_bytes",
    "topological_groups",
]

# A problem without shapes does not have the type of elements either: assume float32.
_ELEMENT_BYTES = 4


def legal_devices(problem: PlacementProblem) -> np.ndarray:
    """Finds the devices on which all operations of a group may run.

    Returns:
        bool [num_groups, num_devices]; every row has a true entry.
    """
    return find_legal_devices(problem.compute_secs, problem.groups, problem.num_groups)


def forbid_devices(problem: PlacementProblem, devices: np.ndarray) -> PlacementProblem:
    """Keeps the groups off some devices that may go elsewhere.

    Args:
        problem: the problem.
        devices: int [count], indices of devices.
    """
    others = np.setdiff1d(np.arange(problem.num_devices), devices)
    may_leave = legal_devices(problem)[problem.groups][:, others].any(axis=1)
    secs = problem.compute_secs.copy()
    secs[np.ix_(np.flatnonzero(may_leave), devices)] = np.inf
    return dataclasses.replace(problem, compute_secs=secs)


def device_secs(problem: PlacementProblem) -> np.ndarray:
    """Adds up the compute times of each group's operations on each device.

    Returns:
        float64 [num_groups, num_devices], seconds; infinite where an operation may not go.
    """
    secs = np.zeros((problem.num_groups, problem.num_devices))
    np.add.at(secs, problem.groups, problem.compute_secs)
    return secs


def device_fill(problem: PlacementProblem) -> np.ndarray:
    """Computes the share of each device's memory that each group would hold.

    Returns:
        float64 [num_groups, num_devices, 2], shares of the memory: first of resident memory alone,
        then of resident memory and all tensors of the group, as if none were ever freed.
    """
    resident = np.bincount(problem.groups, problem.resident_bytes, problem.num_groups)
    makers = problem.groups[problem.tensor_producers]
    made = np.bincount(makers, problem.local_bytes, problem.num_groups)
    memory = np.array([max(device.memory_bytes, 1) for device in problem.devices], np.float64)
    held = np.stack([resident, resident + made], axis=1)
    return held[:, np.newaxis] / memory[:, np.newaxis]


def running_bytes(problem: PlacementProblem) -> np.ndarray:
    """Finds the least peak memory that each group needs on its device beside resident memory.

    Returns:
        int64 [num_groups], the largest sum of inputs, outputs and temporary memory of one operation
        of the group, wherever its inputs come from. Operations that take no time do not count.
    """
    held = problem.temp_bytes.copy()
    np.add.at(held, problem.tensor_producers, problem.local_bytes)
    tensors = np.repeat(np.arange(problem.num_tensors), np.diff(problem.consumer_start))
    # An operation that reads a tensor twice needs it in memory once.
    reads = np.unique(tensors * problem.num_operations + problem.consumers)
    tensors, readers = np.divmod(reads, problem.num_operations)
    np.add.at(held, readers, problem.local_bytes[tensors])
    held[problem.compute_secs.min(axis=1) == 0.0] = 0
    most = np.zeros(problem.num_groups, np.int64)
    np.maximum.at(most, problem.groups, held)
    return most


def group_graph(problem: PlacementProblem) -> GroupGraph:
    """Sums up the operations of each group and the tensors between groups.

    If the problem has no layers, each group is a layer, in the order of `topological_groups`. A
    group without operations belongs to the last layer.
    """
    count = problem.num_groups
    firsts, sizes = _earliest_operations(problem)
    layers = group_layers(problem)
    if layers is None:
        layers = np.empty(count, np.int32)
        layers[np.argsort(firsts, kind="stable")] = np.arange(count)
        np.minimum(layers, np.count_nonzero(sizes) - 1, out=layers)
    types = problem.operation_types or ("operation",) * problem.num_operations
    type_names, numbers = np.unique(types, return_inverse=True)
    type_counts = np.zeros([count, len(type_names)], np.int32)
    np.add.at(type_counts, (problem.groups, numbers), 1)
    tensors = np.repeat(np.arange(problem.num_tensors), np.diff(problem.consumer_start))
    positions = np.empty(problem.num_operations, np.int64)
    positions[problem.order] = np.arange(problem.num_operations)
    crossings = find_crossings(
        count,
        np.stack([tensors, problem.groups[problem.consumers]], axis=1),
        problem.groups[problem.tensor_producers],
        problem.tensor_bytes,
        positions[problem.tensor_producers],
    )
    shapes = problem.tensor_shapes
    if shapes is None:
        shapes = tuple((each,) for each in (problem.tensor_bytes // _ELEMENT_BYTES).tolist())
    return GroupGraph(
        names=tuple(
            problem.operation_names[problem.order[first]] if size else f"group {group}"
            for group, (first, size) in enumerate(zip(firsts.tolist(), sizes.tolist(), strict=True))
        ),
        kinds=("operations",) * count,
        type_names=tuple(type_names.tolist()),
        type_counts=type_counts,
        output_shapes=tuple(
            tuple(shapes[tensor] for tensor in tensors) for tensors in crossings.leaving
        ),
        edges=crossings.edges,
        edge_bytes=crossings.edge_bytes,
        work=np.bincount(problem.groups, problem.compute_secs.min(axis=1), minlength=count),
        layers=layers,
    )


def group_layers(problem: PlacementProblem) -> np.ndarray | None:
    """Finds the model layer of each group.

    Returns:
        int32 [num_groups], where a group without operations belongs to the last layer; None if the
        problem has no layers.
    """
    if problem.layers is None:
        return None
    layers = np.full(problem.num_groups, problem.layers.max(), np.int32)
    layers[problem.groups] = problem.layers
    return layers


def topological_groups(problem: PlacementProblem) -> np.ndarray:
    """Sorts the groups by their earliest operations in topological order, int64 [num_groups].

    Groups without operations are the last.
    """
    return np.argsort(_earliest_operations(problem)[0], kind="stable")


def _earliest_operations(problem: PlacementProblem) -> tuple[np.ndarray, np.ndarray]:
    """Finds the topological position of each group's earliest operation, and the group sizes.

    A group without operations comes after all others.
    """
    groups = problem.groups[problem.order]
    firsts = np.full(problem.num_groups, problem.num_operations)
    np.minimum.at(firsts, groups, np.arange(problem.num_operations))
    return firsts, np.bincount(groups, minlength=problem.num_groups)
