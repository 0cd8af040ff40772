"""The group graph, the input of placers."""

from __future__ import annotations

import dataclasses

import numpy as np

__all__ = ["Crossings", "GroupGraph", "find_crossings"]


@dataclasses.dataclass(frozen=True)
class GroupGraph:
    """Groups of operations and the tensors between them, free of TensorFlow.

    Group graphs of TensorFlow graphs and of placement problems agree on the same groups, as far as
    both have the data. They cover only the operations of the step, and no fed tensors.

    Placements index groups by their numbers. Groups of a graph, or of a problem made from a graph,
    are in topological order of their earliest operation. Groups of other problems have arbitrary
    numbers, and may have no operations, so use the order of the layers where an order is needed.

    Attributes:
        names: the name of each group, which is that of its topologically first operation.
        kinds: the kind of each group, such as "rnn_cell" or "embedding_lookup"; "operations" if it
            is unknown, as in problems.
        type_names: the operation types in the graph, sorted; only "operation" if they are unknown.
        type_counts: int32 [num_groups, num_types], operations of each type in each group.
        output_shapes: per group, the shapes of the tensors that leave it, most bytes first, then in
            topological order; a dimension of unknown size is -1, a tensor of unknown rank has the
            empty shape. If only bytes are known, as in problems without shapes, the single
            dimension is the number of 4-byte elements.
        edges: int32 [num_edges, 2], (producer group, consumer group), unique, sorted, no loops.
        edge_bytes: int64 [num_edges], bytes of the distinct tensors that cross the edge; tensors of
            unknown size count as 0.
        work: float64 [num_groups], the work of each group in a step. Only ratios are meaningful:
            the unit is floating point operations for graphs, and for problems seconds on the
            fastest device.
        layers: int32 [num_groups], the layer of each group, counted from the inputs. The groups of
            a layer share its variables. If layers are unknown, each group is its own layer.
    """

    names: tuple[str, ...]
    kinds: tuple[str, ...]
    type_names: tuple[str, ...]
    type_counts: np.ndarray
    output_shapes: tuple[tuple[tuple[int, ...], ...], ...]
    edges: np.ndarray
    edge_bytes: np.ndarray
    work: np.ndarray
    layers: np.ndarray

    @property
    def num_groups(self) -> int:
        """The number of groups."""
        return len(self.names)


@dataclasses.dataclass(frozen=True)
class Crossings:
    """The tensors between groups.

    Attributes:
        edges: as in `GroupGraph`.
        edge_bytes: as in `GroupGraph`.
        leaving: the tensors that leave each group, in the order of `output_shapes`.
    """

    edges: np.ndarray
    edge_bytes: np.ndarray
    leaving: tuple[tuple[int, ...], ...]


def find_crossings(
    num_groups: int,
    reads: np.ndarray,
    producers: np.ndarray,
    tensor_bytes: np.ndarray,
    positions: np.ndarray,
) -> Crossings:
    """Finds the tensors between groups.

    Args:
        num_groups: the number of groups.
        reads: int [num_reads, 2], (tensor, group that reads it); a tensor crosses only once,
            however often a group reads it.
        producers: int [num_tensors], the group that computes each tensor.
        tensor_bytes: int64 [num_tensors], the size of each tensor; negative if unknown.
        positions: int [num_tensors], the topological position of the producer of each tensor.
    """
    reads, producers = reads.astype(np.int64), producers.astype(np.int64)
    reads = reads[producers[reads[:, 0]] != reads[:, 1]]
    tensors, readers = np.divmod(np.unique(reads @ [num_groups, 1]), max(num_groups, 1))
    edges, edge_of = np.unique(producers[tensors] * num_groups + readers, return_inverse=True)
    edge_bytes = np.zeros(len(edges), np.int64)
    np.add.at(edge_bytes, edge_of, np.maximum(tensor_bytes[tensors], 0))
    sent = np.unique(tensors)
    leaving: list[list[int]] = [[] for _ in range(num_groups)]
    for tensor in sent[np.lexsort([positions[sent], -tensor_bytes[sent]])].tolist():
        leaving[producers[tensor]].append(tensor)
    return Crossings(
        np.stack(np.divmod(edges, max(num_groups, 1)), axis=1).astype(np.int32),
        edge_bytes,
        tuple(map(tuple, leaving)),
    )
