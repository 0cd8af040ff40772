"""What a learned placer is told about each group, as numbers.

The three parts of ColocRL's operation embedding, for groups: operation types, output shapes and
adjacency. The types are only weights here, because their vectors are learned by the policy.

References:
    Mirhoseini et al., Device Placement Optimization with Reinforcement Learning, ICML 2017,
    section 3.2.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable, Sequence
from typing import Literal

import numpy as np

from graph_passes.grouping.group_graph import GroupGraph

__all__ = ["GroupFeatures", "ShapeLayout", "adjacency", "output_shapes", "type_weights"]

ShapeLayout = Literal["slots", "terminated"]


@dataclasses.dataclass(frozen=True)
class GroupFeatures:
    """The input of a policy's encoder, one row per group.

    Attributes:
        type_weights: float32 [num_groups, num_types], the share of each type in each group.
        fixed: float32 [num_groups, num_features], everything that is not learned.
    """

    type_weights: np.ndarray
    fixed: np.ndarray

    @classmethod
    def from_groups(
        cls,
        groups: GroupGraph,
        *,
        shape_dims: int = 5,
        shape_outputs: int = 5,
        shape_layout: ShapeLayout = "slots",
        raw_shapes: bool = False,
        merged_adjacency: bool = False,
    ) -> GroupFeatures:
        """Describes groups by the shapes of their outputs and by their neighbours.

        Args:
            groups: the groups.
            shape_dims: see `output_shapes`.
            shape_outputs: see `output_shapes`.
            shape_layout: see `output_shapes`.
            raw_shapes: see `output_shapes`.
            merged_adjacency: see `adjacency`.
        """
        shapes = output_shapes(
            groups.output_shapes,
            num_dims=shape_dims,
            num_outputs=shape_outputs,
            layout=shape_layout,
            raw=raw_shapes,
        )
        neighbours = adjacency(groups.edges, groups.num_groups, merged=merged_adjacency)
        return cls(type_weights(groups.type_counts), np.concatenate([shapes, neighbours], axis=1))

    @property
    def num_groups(self) -> int:
        """How many groups there are."""
        return self.fixed.shape[0]


def type_weights(type_counts: np.ndarray) -> np.ndarray:
    """The weights with which a group averages the vectors of its operation types.

    Args:
        type_counts: int32 [num_groups, num_types].

    Returns:
        float32 [num_groups, num_types], rows that sum to 1 (to 0 in a group without operations).
    """
    totals = type_counts.sum(axis=1, keepdims=True)
    return (type_counts / np.maximum(totals, 1)).astype(np.float32)


def output_shapes(
    shapes: Sequence[Sequence[Sequence[int]]],
    *,
    num_dims: int = 5,
    num_outputs: int = 5,
    layout: ShapeLayout = "slots",
    raw: bool = False,
) -> np.ndarray:
    """The sizes of each group's output tensors, in one zero-padded list of fixed size.

    Args:
        shapes: per group, the shapes of its outputs; a negative dimension is unknown.
        num_dims: dimensions kept of each output.
        num_outputs: outputs kept of each group.
        layout: "slots" gives every output `num_dims` entries. "terminated" writes the outputs one
            after the other, a zero behind each, and cuts at `num_dims * num_outputs` entries.
        raw: whether sizes stay as they are instead of becoming log(1 + size).

    Returns:
        float32 [num_groups, num_dims * num_outputs]; an unknown dimension is 0.

    Raises:
        ValueError: there is no such layout.

    Example:
        >>> output_shapes([[[20, 40, 20, 30], [20, 30]]], num_dims=4, num_outputs=2,
        ...               layout="terminated", raw=True).astype(int).tolist()
        [[20, 40, 20, 30, 0, 20, 30, 0]]
    """
    if layout not in ("slots", "terminated"):
        raise ValueError(f"no shape layout {layout!r}; there are slots and terminated")
    features = np.zeros([len(shapes), num_dims * num_outputs], np.float32)
    for row, outputs in zip(features, shapes, strict=True):
        sizes: Iterable[int]
        if layout == "slots":
            padding = (0,) * num_dims
            slots = ((*shape, *padding)[:num_dims] for shape in outputs[:num_outputs])
            sizes = itertools.chain.from_iterable(slots)
        else:
            sizes = itertools.chain.from_iterable((*shape, 0) for shape in outputs)
        values = np.fromiter(itertools.islice(sizes, row.size), np.float32)
        row[: values.size] = np.maximum(values, 0)
    return features if raw else np.log1p(features)


def adjacency(edges: np.ndarray, num_groups: int, *, merged: bool = False) -> np.ndarray:
    """Which groups are direct inputs and direct outputs of each group.

    Args:
        edges: int32 [num_edges, 2], (producer group, consumer group).
        num_groups: how many groups there are.
        merged: one block that tells neighbours only, instead of two that tell inputs from outputs.

    Returns:
        float32 [num_groups, 2 * num_groups] of zeros and ones, inputs before outputs, or
        [num_groups, num_groups] if merged.
    """
    feeds = np.zeros([num_groups, num_groups], np.float32)
    feeds[edges[:, 0], edges[:, 1]] = 1
    return np.maximum(feeds, feeds.T) if merged else np.concatenate([feeds.T, feeds], axis=1)
