"""The numeric features of groups that learned placers read.

The three parts of ColocRL's operation embedding, for groups: operation types, output shapes and
adjacency. Types appear as weights only, because the policy learns their vectors.

References:
    Mirhoseini et al., Device Placement Optimization with Reinforcement Learning, ICML 2017,
    section 3.2.
    Lan, Chen and Li, EAGLE: Expedited Device Placement with Automatic Grouping for Large Models,
    for edges weighted by bytes.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable, Sequence
from typing import Annotated, Literal, get_args

import numpy as np
import tensorflow as tf

from graph_passes.grouping.group_graph import GroupGraph
from tf_placer.placers.learned.policy import GroupInputs

__all__ = [
    "AdjacencyKind",
    "EmbeddingConfig",
    "ShapeLayout",
    "adjacency_matrix",
    "build_fixed_inputs",
    "build_legal_inputs",
    "group_shapes",
    "output_shapes",
    "type_weights",
]

ShapeLayout = Literal["slots", "terminated"]
AdjacencyKind = Literal["binary", "bytes"]


@dataclasses.dataclass(frozen=True)
class EmbeddingConfig:
    """Settings of the features of groups, each with its line of help.

    Raises:
        ValueError: a number is not positive, or there is no such layout or adjacency.
    """

    shape_dims: Annotated[int, "dimensions kept of an output shape"] = 5
    shape_outputs: Annotated[int, "output shapes kept of a group"] = 5
    shape_layout: Annotated[ShapeLayout, "slots of shape_dims, or terminated by a zero"] = "slots"
    raw_shapes: Annotated[bool, "whether sizes stay instead of becoming log(1 + size)"] = False
    adjacency: Annotated[
        AdjacencyKind, "binary: every edge counts 1; bytes: log(1 + its bytes), scaled"
    ] = "binary"

    def __post_init__(self) -> None:
        for name in ("shape_dims", "shape_outputs"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be positive, not {getattr(self, name)}")
        if self.shape_layout not in get_args(ShapeLayout):
            raise ValueError(
                f"no shape layout {self.shape_layout!r}; there are slots and terminated"
            )
        if self.adjacency not in get_args(AdjacencyKind):
            raise ValueError(f"adjacency must be binary or bytes, not {self.adjacency!r}")

    @property
    def num_features(self) -> int:
        """The number of features of a group, without its types and its neighbors."""
        return self.shape_dims * self.shape_outputs


def build_fixed_inputs(
    groups: GroupGraph, legal: np.ndarray, config: EmbeddingConfig
) -> GroupInputs:
    """Builds the inputs of a policy for groups that are the same in every placement.

    Args:
        groups: the groups.
        legal: bool [num_groups, num_devices], true where a group may go; every row has one.
        config: settings of the features.

    Returns:
        The shares of the types, the output shapes and the edges of the groups, the same for all
        placements; every group counts.
    """
    return GroupInputs(
        types=tf.constant(type_weights(groups.type_counts)[np.newaxis]),
        features=tf.constant(group_shapes(groups, config)[np.newaxis]),
        adjacency=tf.constant(adjacency_matrix(groups, config.adjacency)[np.newaxis]),
        legal=tf.constant(legal[np.newaxis]),
        counted=tf.ones([1, groups.num_groups]),
    )


def build_legal_inputs(legal: np.ndarray) -> GroupInputs:
    """Builds the inputs of a policy that reads only the legal devices of groups.

    Args:
        legal: bool [num_groups, num_devices], true where a group may go; every row has one.

    Returns:
        Types, features and adjacency without entries; every group counts.
    """
    nothing = tf.zeros([1, len(legal), 0])
    return GroupInputs(
        types=nothing,
        features=nothing,
        adjacency=tf.zeros([1, 0, 0]),
        legal=tf.constant(legal[np.newaxis]),
        counted=tf.ones([1, len(legal)]),
    )


def type_weights(type_counts: np.ndarray) -> np.ndarray:
    """Computes the weights with which a group averages the vectors of its operation types.

    Args:
        type_counts: int32 [num_groups, num_types].

    Returns:
        float32 [num_groups, num_types], rows that sum to 1 (to 0 in a group without operations).
    """
    totals = type_counts.sum(axis=1, keepdims=True)
    return (type_counts / np.maximum(totals, 1)).astype(np.float32)


def group_shapes(groups: GroupGraph, config: EmbeddingConfig) -> np.ndarray:
    """Applies `output_shapes` to groups by settings, float32 [num_groups, config.num_features]."""
    return output_shapes(
        groups.output_shapes,
        num_dims=config.shape_dims,
        num_outputs=config.shape_outputs,
        layout=config.shape_layout,
        raw=config.raw_shapes,
    )


def output_shapes(
    shapes: Sequence[Sequence[Sequence[int]]],
    *,
    num_dims: int = 5,
    num_outputs: int = 5,
    layout: ShapeLayout = "slots",
    raw: bool = False,
) -> np.ndarray:
    """Puts the sizes of each group's output tensors in one zero-padded list of fixed size.

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


def adjacency_matrix(groups: GroupGraph, kind: AdjacencyKind) -> np.ndarray:
    """Builds the adjacency matrix of the groups.

    Args:
        groups: the groups.
        kind: "binary" for a one at every edge, "bytes" for the logarithm of 1 + its bytes, divided
            by the largest such logarithm of the producer.

    Returns:
        float32 [num_groups, num_groups], from 0 to 1; producers are rows.
    """
    producers, consumers = groups.edges.T
    matrix = np.zeros([groups.num_groups, groups.num_groups], np.float32)
    matrix[producers, consumers] = np.log1p(groups.edge_bytes) if kind == "bytes" else 1
    largest = matrix.max(axis=1, keepdims=True, initial=0)
    return matrix / np.where(largest > 0, largest, 1)
