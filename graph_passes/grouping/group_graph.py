"""The graph of groups: what a placer knows about what it places."""

from __future__ import annotations

import dataclasses

import numpy as np

__all__ = ["GroupGraph"]


@dataclasses.dataclass(frozen=True)
class GroupGraph:
    """Groups of operations and the tensors between them, free of TensorFlow.

    Groups are numbered in topological order of their earliest operation.

    Attributes:
        names: a name per group (its first operation's).
        kinds: what each group is, such as "rnn_cell", "embedding_lookup" or "operations".
        type_names: the operation types that occur in the graph, sorted.
        type_counts: int32 [num_groups, num_types], operations of each type in each group.
        output_shapes: per group, the shapes of the tensors that leave it, most bytes first; a
            dimension of unknown size is -1, a tensor of unknown rank is the empty shape.
        edges: int32 [num_edges, 2], (producer group, consumer group), unique, sorted, no loops.
        edge_bytes: int64 [num_edges], bytes of the distinct tensors that cross the edge.
        work: float64 [num_groups], estimated work of a step, in floating point operations.
        layers: int32 [num_groups], the layer each group belongs to, counted from the inputs. The
            groups of one layer share its variables.
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
