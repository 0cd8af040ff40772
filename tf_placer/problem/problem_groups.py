"""What a placer sees of a placement problem."""

from __future__ import annotations

import numpy as np

from graph_passes.grouping.group_graph import GroupGraph
from tf_placer.problem.placement_problem import PlacementProblem
from tf_placer.problem.problem_checks import may_go

__all__ = ["device_secs", "group_graph", "legal_devices"]

# Sizes of tensors are told as numbers of float32.
_ELEMENT_BYTES = 4


def legal_devices(problem: PlacementProblem) -> np.ndarray:
    """Where groups may go: where all their operations may.

    Returns:
        bool [num_groups, num_devices]; every row has a true entry.
    """
    return may_go(problem.compute_secs, problem.groups, problem.num_groups)


def device_secs(problem: PlacementProblem) -> np.ndarray:
    """What the operations of each group take on each device.

    Returns:
        float64 [num_groups, num_devices], seconds; infinite where one of them may not go.
    """
    secs = np.zeros((problem.num_groups, problem.num_devices))
    np.add.at(secs, problem.groups, problem.compute_secs)
    return secs


def group_graph(problem: PlacementProblem) -> GroupGraph:
    """Sums up the operations of each group and the tensors between groups.

    Groups keep the numbers of the problem, whatever their order, because an assignment refers to
    them. Their topological order is that of `layers`: every group is a layer, and layers are
    numbered in the order of their groups' earliest operations. A group without operations goes
    with the last of them.

    Returns:
        The graph of groups. `work` is in seconds: the least that the operations of a group take,
        each on its fastest device. A tensor's shape is its number of 4-byte elements.
    """
    count = problem.num_groups
    firsts, sizes = _earliest_operations(problem)
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


def _earliest_operations(problem: PlacementProblem) -> tuple[np.ndarray, np.ndarray]:
    """For each group the place of its earliest operation in the order, and how many it has.

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
