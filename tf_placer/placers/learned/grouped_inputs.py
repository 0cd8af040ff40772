"""The inputs of a policy for groups that differ between placements.

References:
    Mirhoseini et al., A Hierarchical Model for Device Placement, ICLR 2018: types, output shapes
    and edges of a group are sums over its operations, divided by the largest sum + 1.
    Lan, Chen and Li, EAGLE: Expedited Device Placement with Automatic Grouping for Large Models,
    for edges weighted by bytes.
"""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from graph_passes.grouping.group_graph import GroupGraph
from tf_placer.placers.learned.embedding import EmbeddingConfig, group_shapes
from tf_placer.placers.learned.policy import GroupInputs
from tf_placer.placers.learned.start import Start

__all__ = ["GroupedInputs"]


class GroupedInputs:
    """Sums the features of units over groups.

    Types, shapes and edges are divided by their own largest sums, so that they have similar ranges.
    Edges inside a group are ignored. An empty group is all zeros and does not count.
    """

    def __init__(
        self,
        units: GroupGraph,
        legal: np.ndarray,
        num_groups: int,
        config: EmbeddingConfig,
        start: Start | None = None,
    ) -> None:
        """Prepares the sums.

        Args:
            units: the units to group.
            legal: bool [num_units, num_devices], true where a unit may go; every row has one.
            num_groups: number of groups.
            config: settings of the features.
            start: the placement that policies start from; None without.
        """
        self._start = start
        self._num_groups = num_groups
        self._log_edges = config.adjacency == "bytes"
        members = np.ones([units.num_groups, 1])
        blocks = [units.type_counts, group_shapes(units, config), legal, members]
        if start is not None:
            blocks.append(np.eye(legal.shape[1])[start.devices])
        self._widths = [block.shape[1] for block in blocks]
        # Join all features in one matrix, so that one segment sum handles them.
        self._units = tf.constant(np.concatenate(blocks, axis=1), tf.float32)
        self._edges = tf.constant(units.edges, tf.int32)
        weights = units.edge_bytes if self._log_edges else np.ones(len(units.edges))
        self._edge_weights = tf.constant(weights, tf.float32)

    def __call__(self, grouping: tf.Tensor) -> GroupInputs:
        """Describes the groups of a batch of placements; traceable, without gradient.

        Args:
            grouping: int32 [count, num_units], the group of each unit.

        Returns:
            One description per placement. A group is legal where all its units are, or else where
            at least one is.
        """

        def sum_units(groups: tf.Tensor) -> tf.Tensor:
            return tf.math.unsorted_segment_sum(self._units, groups, self._num_groups)

        def sum_edges(pairs: tf.Tensor) -> tf.Tensor:
            return tf.math.unsorted_segment_sum(self._edge_weights, pairs, self._num_groups**2)

        sums = tf.map_fn(
            sum_units,
            grouping,
            fn_output_signature=tf.TensorSpec([self._num_groups, sum(self._widths)], tf.float32),
        )
        types, shapes, allowed, members, *placed = tf.split(sums, self._widths, axis=2)
        prior = None
        if self._start is not None:
            prior = tf.math.log(self._start.probabilities(placed[0], members))
        everyone = tf.equal(allowed, members)
        producers, consumers = (
            tf.gather(grouping, end, axis=1) for end in tf.unstack(self._edges, axis=1)
        )
        edges = tf.map_fn(
            sum_edges,
            producers * self._num_groups + consumers,
            fn_output_signature=tf.TensorSpec([self._num_groups**2], tf.float32),
        )
        edges = tf.reshape(edges, [-1, self._num_groups, self._num_groups])
        edges = tf.linalg.set_diag(edges, tf.zeros_like(members[:, :, 0]))
        return GroupInputs(
            types=_scale_rows(types),
            features=_scale_rows(shapes),
            adjacency=_scale_rows(tf.math.log1p(edges) if self._log_edges else edges),
            legal=tf.where(tf.reduce_any(everyone, axis=2, keepdims=True), everyone, allowed > 0),
            counted=tf.cast(members[:, :, 0] > 0, tf.float32),
            prior=prior,
        )


def _scale_rows(sums: tf.Tensor) -> tf.Tensor:
    """Divides rows by their maximum + 1."""
    return sums / (tf.reduce_max(sums, axis=2, keepdims=True) + 1)
