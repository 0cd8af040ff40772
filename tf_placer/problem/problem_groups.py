"""What a placer sees of a placement problem."""

from __future__ import annotations

import numpy as np

from graph_passes.grouping.group_graph import GroupGraph
from tf_placer.problem.placement_problem import PlacementProblem
from tf_placer.problem.problem_checks import may_go

__all__ = [
    "device_fill",
    "device_secs",
    "group_graph",
    "group_layers",
    "legal_devices",
    "running_bytes",
    "topological_groups",
]

# Sizes of tensors are told as numbers of float32.
_ELEMENT_BYTES = 4


def legal_devices(problem: PlacementProblem) -> np.ndarray:
    """Finds where groups may go: where all their operations may.

    Returns:
        bool [num_groups, num_devices]; every row has a true entry.
    """
    return may_go(problem.compute_secs, problem.groups, problem.num_groups)


def device_secs(problem: PlacementProblem) -> np.ndarray:
    """Adds up what the operations of each group take on each device.

    Returns:
        float64 [num_groups, num_devices], seconds; infinite where one of them may not go.
    """
    secs = np.zeros((problem.num_groups, problem.num_devices))
    np.add.at(secs, problem.groups, problem.compute_secs)
    return secs


def device_fill(problem: PlacementProblem) -> np.ndarray:
    """Adds up what each group would hold of the memory of each device.

    Returns:
        float64 [num_groups, num_devices, 2], shares of the memory: what is held for the whole step,
        and that with all that the group makes, as if nothing of it were ever freed.
    """
    resident = np.bincount(problem.groups, problem.resident_bytes, problem.num_groups)
    makers = problem.groups[problem.tensor_producers]
    made = np.bincount(makers, problem.local_bytes, problem.num_groups)
    memory = np.array([max(device.memory_bytes, 1) for device in problem.devices], np.float64)
    held = np.stack([resident, resident + made], axis=1)
    return held[:, np.newaxis] / memory[:, np.newaxis]


def running_bytes(problem: PlacementProblem) -> np.ndarray:
    """Finds what the device of each group holds at least once, beside what is resident there.

    Returns:
        int64 [num_groups], the most that one of its operations reads, makes and needs while it
        runs, wherever what it reads comes from. Operations that take no time do not count.
    """
    held = problem.temp_bytes.copy()
    np.add.at(held, problem.tensor_producers, problem.local_bytes)
    tensors = np.repeat(np.arange(problem.num_tensors), np.diff(problem.consumer_start))
    # A tensor that is read twice by one operation is there once.
    reads = np.unique(tensors * problem.num_operations + problem.consumers)
    tensors, readers = np.divmod(reads, problem.num_operations)
    np.add.at(held, readers, problem.local_bytes[tensors])
    held[problem.compute_secs.min(axis=1) == 0.0] = 0
    most = np.zeros(problem.num_groups, np.int64)
    np.maximum.at(most, problem.groups, held)
    return most


def group_graph(problem: PlacementProblem) -> GroupGraph:
    """Sums up the operations of each group and the tensors between groups.

    Groups keep the numbers of the problem, whatever their order, because an assignment refers to
    them. Where the problem knows no layers, every group is one, in the order of
    `topological_groups`; a group without operations goes with the last of them.

    Returns:
        The graph of groups. `work` is in seconds: the least that the operations of a group take,
        each on its fastest device. A tensor's shape is its number of 4-byte elements.
    """
    count = problem.num_groups
    firsts, sizes = _earliest_operations(problem)
    layers = group_layers(problem)
    if layers is None:
        layers = np.empty(count, np.int32)
        layers[np.argsort(firsts, kind="stable")] = np.arange(count)
        np.minimum(layers, np.count_nonzero(sizes) - 1, out=layers)
    producers = problem.groups[problem.tensor_producers].astype(np.int64)
    tensors = np.repeat(np.arange(problem.num_tensors), np.diff(problem.consumer_start))
    receivers = problem.groups[problem.consumers]
    crosses = producers[tensors] != receivers
    # A tensor crosses to a group once, however many of its operations read it.
    sent = np.unique(tensors[crosses] * count + receivers[crosses])
    tensors, receivers = sent // count, sent % count
    edges, edge_of = np.unique(producers[tensors] * count + receivers, return_inverse=True)
    edge_bytes = np.zeros(len(edges), np.int64)
    np.add.at(edge_bytes, edge_of, problem.tensor_bytes[tensors])
    work = np.bincount(problem.groups, problem.compute_secs.min(axis=1), minlength=count)
    return GroupGraph(
        names=tuple(
            problem.operation_names[problem.order[first]] if size else f"group {group}"
            for group, (first, size) in enumerate(zip(firsts.tolist(), sizes.tolist(), strict=True))
        ),
        kinds=("operations",) * count,
        type_names=("operation",),
        type_counts=sizes[:, None].astype(np.int32),
        output_shapes=_leaving_shapes(problem, np.unique(tensors)),
        edges=np.stack([edges // count, edges % count], axis=1).astype(np.int32),
        edge_bytes=edge_bytes,
        work=work,
        layers=layers,
    )


def group_layers(problem: PlacementProblem) -> np.ndarray | None:
    """Finds the layer of the model that each group is of, if the problem knows.

    Returns:
        int32 [num_groups]; a group without operations goes with the last layer.
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
    """Finds the place of each group's earliest operation in the order, and how many each has.

    A group without operations is behind all others.
    """
    groups = problem.groups[problem.order]
    firsts = np.full(problem.num_groups, problem.num_operations)
    np.minimum.at(firsts, groups, np.arange(problem.num_operations))
    return firsts, np.bincount(groups, minlength=problem.num_groups)


def _leaving_shapes(
    problem: PlacementProblem, tensors: np.ndarray
) -> tuple[tuple[tuple[int, ...], ...], ...]:
    # Most bytes first; ties in the order of the problem.
    by_size = tensors[np.argsort(-problem.tensor_bytes[tensors], kind="stable")]
    shapes: list[list[tuple[int, ...]]] = [[] for _ in range(problem.num_groups)]
    groups = problem.groups[problem.tensor_producers[by_size]].tolist()
    elements = (problem.tensor_bytes[by_size] // _ELEMENT_BYTES).tolist()
    for group, count in zip(groups, elements, strict=True):
        shapes[group].append((count,))
    return tuple(tuple(each) for each in shapes)
