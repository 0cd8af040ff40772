"""Group graphs made by hand for the tests of placers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from graph_passes.grouping.group_graph import GroupGraph

__all__ = ["chain", "group_graph", "two_chains"]


def group_graph(
    num_groups: int,
    edges: Sequence[tuple[int, int]] = (),
    *,
    type_counts: np.ndarray | None = None,
    output_shapes: Sequence[Sequence[Sequence[int]]] | None = None,
    work: Sequence[float] | None = None,
    layers: Sequence[int] | None = None,
) -> GroupGraph:
    """Makes a group graph; by default a group is a layer with one MatMul and an output [8, 16]."""
    if type_counts is None:
        type_counts = np.ones([num_groups, 1], np.int32)
    if output_shapes is None:
        output_shapes = [[[8, 16]]] * num_groups
    num_types = type_counts.shape[1]
    return GroupGraph(
        names=tuple(f"group_{index}" for index in range(num_groups)),
        kinds=("operations",) * num_groups,
        type_names=("MatMul", "Relu", "Softmax")[:num_types],
        type_counts=type_counts.astype(np.int32),
        output_shapes=tuple(tuple(tuple(shape) for shape in shapes) for shapes in output_shapes),
        edges=np.array(sorted(edges), np.int32).reshape(-1, 2),
        edge_bytes=np.full(len(edges), 512, np.int64),
        work=np.array(work if work is not None else [1.0] * num_groups, np.float64),
        layers=np.array(layers if layers is not None else range(num_groups), np.int32),
    )


def chain(num_groups: int) -> GroupGraph:
    """Makes a chain of groups, each a layer."""
    return group_graph(num_groups, [(index, index + 1) for index in range(num_groups - 1)])


def two_chains(length: int) -> GroupGraph:
    """Makes two chains, numbered one after the other; a layer has a group of each chain."""
    return group_graph(
        2 * length,
        [(index, index + 1) for index in range(2 * length - 1) if index != length - 1],
        layers=[index % length for index in range(2 * length)],
    )
