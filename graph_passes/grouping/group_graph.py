"""The graph of groups: what a placer knows about what it places."""

from __future__ import annotations

import dataclasses

import numpy as np

__all__ = ["Crossings", "GroupGraph", "find_crossings"]


@dataclasses.dataclass(frozen=True)
class GroupGraph:
    """Groups of operations and the tensors between them, free of TensorFlow.

    Whoever makes one, of a graph or of a placement problem, says the same of the same groups where
    both know it: only operations count that a step runs, and no tensors that it is fed.

    Placements index groups by their numbers. Groups of a graph, and of a problem that was made of
    one, are in topological order of their earliest operation; those of other problems have any
    numbers, and some of them perhaps no operations. So what looks for an order takes that of the
    layers.

    Attributes:
        names: a name per group (its topologically first operation's).
        kinds: what each group is, such as "rnn_cell" or "embedding_lookup"; "operations" where
            nothing else is known, as in problems.
        type_names: the operation types that occur, sorted; "operation" alone where none is known.
        type_counts: int32 [num_groups, num_types], operations of each type in each group.
        output_shapes: per group, the shapes of the tensors that leave it, most bytes first, of
            equal ones the topologically first; a dimension of unknown size is -1, a tensor of
            unknown rank is the empty shape. Where bytes alone are known, as in problems, the one
            dimension is how many elements of 4 bytes they are.
        edges: int32 [num_edges, 2], (producer group, consumer group), unique, sorted, no loops.
        edge_bytes: int64 [num_edges], bytes of the distinct tensors that cross the edge; those of
            unknown size count none.
        work: float64 [num_groups], what each group has to do in a step. Only ratios mean something:
            of a graph, these are floating point operations; of a problem, the seconds that
            operations take where they are fastest.
        layers: int32 [num_groups], the layer each group belongs to, counted from the inputs. The
            groups of one layer share its variables. Where nothing is known of layers, each group
            is one.
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
        """How many groups there are."""
        return len(self.names)


@dataclasses.dataclass(frozen=True)
class Crossings:
    """The tensors that cross from group to group.

    Attributes:
        edges: as of a `GroupGraph`.
        edge_bytes: as of a `GroupGraph`.
        leaving: for each group the tensors that leave it, in the order of `output_shapes`.
    """

    edges: np.ndarray
    edge_bytes: np.ndarray
    leaving: tuple[tuple[int, ...], ...]


def find_crossings(
    num_groups: int,
    reads: np.ndarray,
    makers: np.ndarray,
    tensor_bytes: np.ndarray,
    positions: np.ndarray,
) -> Crossings:
    """Finds what crosses from group to group.

    Args:
        num_groups: how many groups there are.
        reads: int [num_reads, 2], (tensor, group that reads it); a group may read one again and
            again, but it crosses once.
        makers: int [num_tensors], the group that makes each tensor.
        tensor_bytes: int64 [num_tensors], the size of each; negative where it is not known.
        positions: int [num_tensors], the topological place of the operation that makes each.
    """
    reads, makers = reads.astype(np.int64), makers.astype(np.int64)
    reads = reads[makers[reads[:, 0]] != reads[:, 1]]
    tensors, readers = np.divmod(np.unique(reads @ [num_groups, 1]), max(num_groups, 1))
    edges, edge_of = np.unique(makers[tensors] * num_groups + readers, return_inverse=True)
    edge_bytes = np.zeros(len(edges), np.int64)
    np.add.at(edge_bytes, edge_of, np.maximum(tensor_bytes[tensors], 0))
    sent = np.unique(tensors)
    leaving: list[list[int]] = [[] for _ in range(num_groups)]
    for tensor in sent[np.lexsort([positions[sent], -tensor_bytes[sent]])].tolist():
        leaving[makers[tensor]].append(tensor)
    return Crossings(
        np.stack(np.divmod(edges, max(num_groups, 1)), axis=1).astype(np.int32),
        edge_bytes,
        tuple(map(tuple, leaving)),
    )
