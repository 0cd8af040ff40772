"""The learned grouper: a feed-forward network that chooses a group for each unit.

References:
    Mirhoseini et al., A Hierarchical Model for Device Placement, ICLR 2018.
    Lan, Chen and Li, EAGLE: Expedited Device Placement with Automatic Grouping for Large Models:
    two layers, 64 hidden units, 256 groups.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Annotated, Any, Literal, get_args

import numpy as np
import tensorflow as tf
from absl import logging

from graph_passes.grouping.group_graph import GroupGraph
from tf_placer.placers.learned.embedding import EmbeddingConfig, group_shapes, type_weights
from tf_placer.placers.learned.weights import glorot, seeds
from tf_placer.placers.validators import check_fields

__all__ = [
    "BridgeKind",
    "FeedForwardConfig",
    "FeedForwardGrouper",
    "GrouperStart",
    "compute_neighbor_positions",
]

BridgeKind = Literal["none", "concat", "replace"]
GrouperStart = Literal["none", "metis", "fluid"]


@dataclasses.dataclass(frozen=True)
class FeedForwardConfig:
    """Settings of the learned grouper, each with its line of help.

    Raises:
        ValueError: a number is not positive, or there is no such bridge.
    """

    num_groups: Annotated[int, "groups to choose from; one per unit at most"] = 256
    grouper_units: Annotated[int, "size of the grouper's hidden layers"] = 64
    grouper_layers: Annotated[int, "hidden layers of the grouper"] = 1
    neighbors: Annotated[int, "neighbors of a unit that the grouper is told"] = 20
    grouper_start: Annotated[
        GrouperStart,
        "groups that are sampled at first, mostly: those of METIS or fluid communities; none to "
        "start with any",
    ] = "none"
    grouper_uniform: Annotated[
        float, "with grouper_start: share of the units that are in any group at first"
    ] = 0.01
    grouper_start_rate: Annotated[
        float,
        "with grouper_start: learning rate of the scores of the start, in plain steps along the "
        "gradient; 0 for a start that stays, from which only the network moves units",
    ] = 0.0
    bridge: Annotated[
        BridgeKind,
        "whether a recurrent network over the grouper's weights adds to the features of the "
        "groups, or replaces them",
    ] = "none"
    bridge_units: Annotated[int, "size of what it tells of a group"] = 64

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if isinstance(value, int) and value < 1:
                raise ValueError(f"{field.name} must be positive, not {value}")
        check_fields(self, ("grouper_uniform",), lambda share: 0 < share <= 1, "above 0, at most 1")
        check_fields(self, ("grouper_start_rate",), lambda rate: 0 <= rate < math.inf, "at least 0")
        if self.grouper_start not in get_args(GrouperStart):
            raise ValueError(
                f"grouper_start must be none, metis or fluid, not {self.grouper_start!r}"
            )
        if self.bridge not in get_args(BridgeKind):
            raise ValueError(f"bridge must be none, concat or replace, not {self.bridge!r}")

    def num_features(self, embedding: EmbeddingConfig) -> int:
        """Computes the width of a group's features as a policy reads them.

        Args:
            embedding: settings of the features of groups.
        """
        own = 0 if self.bridge == "replace" else embedding.num_features
        return own + (0 if self.bridge == "none" else self.bridge_units)


class FeedForwardGrouper(tf.keras.Model):
    """A distribution over the group of each unit, independent of the groups of the others.

    Attributes:
        num_units: number of units to group.
        num_groups: number of groups to choose from.
        column_size: number of weights of the last layer per group.
    """

    def __init__(
        self,
        units: GroupGraph,
        config: FeedForwardConfig,
        embedding: EmbeddingConfig,
        *,
        start: np.ndarray | None = None,
        seed: int = 0,
    ) -> None:
        """Creates the network with its initial weights.

        Args:
            units: the units to group.
            config: settings of the network.
            embedding: settings of the features of output shapes.
            start: int32 [num_units], the most probable group of each unit at first; None for none.
            seed: of the initial weights.
        """
        super().__init__(name="feed_forward")
        self.num_units = units.num_groups
        self.num_groups = min(config.num_groups, self.num_units)
        if self.num_groups < config.num_groups:
            logging.info(
                "%d groups instead of %d: there are no more units to group",
                self.num_groups,
                config.num_groups,
            )
        features = np.concatenate(
            [
                type_weights(units.type_counts),
                group_shapes(units, embedding),
                compute_neighbor_positions(units, config.neighbors),
            ],
            axis=1,
        )
        self._features = tf.constant(features, tf.float32)
        own_seeds = seeds(seed)
        self._hidden = []
        width = features.shape[1]
        for _ in range(config.grouper_layers):
            layer = tf.keras.layers.Dense(
                config.grouper_units, activation="relu", kernel_initializer=glorot(own_seeds)
            )
            layer.build((self.num_units, width))
            self._hidden.append(layer)
            width = config.grouper_units
        self._logits = tf.keras.layers.Dense(self.num_groups, kernel_initializer=glorot(own_seeds))
        self._logits.build((self.num_units, width))
        self._start: Any = None
        self._start_rate = config.grouper_start_rate
        if start is not None:
            elsewhere = config.grouper_uniform / self.num_groups
            start_logit = math.log((1 - config.grouper_uniform + elsewhere) / elsewhere)
            logits = start_logit * np.eye(self.num_groups, dtype=np.float32)[start]
            self._start = tf.constant(logits)
            if config.grouper_start_rate:
                self._start = self.add_weight(
                    name="start", shape=logits.shape, initializer=lambda shape, dtype: logits
                )
        self.column_size = width + 1
        self.built = True

    @property
    def plain_steps(self) -> tuple[tuple[tf.Variable, float], ...]:
        """The scores of the start, if they are trained; see `Agent.plain_steps`."""
        has_weights = self._start is not None and self._start_rate > 0
        return ((self._start, self._start_rate),) if has_weights else ()

    def log_dists(self) -> tf.Tensor:
        """Computes the distributions of the units' groups; traceable, differentiable.

        Returns:
            float32 [num_units, num_groups], log-probabilities.
        """
        hidden = self._features
        for layer in self._hidden:
            hidden = layer(hidden)
        logits = self._logits(hidden)
        if self._start is not None:
            logits += tf.convert_to_tensor(self._start)
        return tf.nn.log_softmax(logits)

    def columns(self) -> tf.Tensor:
        """Joins the last layer's weights and bias, by group; traceable, differentiable.

        Returns:
            float32 [num_groups, column_size].
        """
        kernel = tf.convert_to_tensor(self._logits.kernel)
        bias = tf.convert_to_tensor(self._logits.bias)
        return tf.concat([tf.transpose(kernel), bias[:, tf.newaxis]], axis=1)


def compute_neighbor_positions(units: GroupGraph, num_neighbors: int) -> np.ndarray:
    """Builds the bounded adjacency of units: the topological positions of their neighbors.

    The first half of the entries is for producers, the rest, longer by one if the number is odd,
    for consumers. Each half is sorted by decreasing bytes and truncated.

    Args:
        units: the units.
        num_neighbors: number of entries per unit.

    Returns:
        float32 [num_units, num_neighbors]: (number of the neighbor + 1) / num_units, or 0 for
        none.
    """
    num_producers = num_neighbors // 2
    positions = np.zeros([units.num_groups, num_neighbors], np.float32)
    producers, consumers = units.edges.T
    for own, other, first, room in (
        (consumers, producers, 0, num_producers),
        (producers, consumers, num_producers, num_neighbors - num_producers),
    ):
        order = np.lexsort((other, -units.edge_bytes, own))
        own, other = own[order], other[order]
        rank = np.arange(len(own)) - np.searchsorted(own, own)
        fits = rank < room
        positions[own[fits], first + rank[fits]] = (other[fits] + 1) / units.num_groups
    return positions
