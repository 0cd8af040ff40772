"""Features of a graph for policies that fit any graph: numbers that mean the same in every graph.

The features do not depend on the numbers of groups, devices or operation types: the unit of time is
the mean time of a group, that of bytes the mean edge, and positions in the graph are fractions.

References:
    Addanki et al., Placeto: Learning Generalizable Device Placement Algorithms for Distributed
    Machine Learning, NeurIPS 2019, and Zhou et al., GDP: Generalized Device Placement for Dataflow
    Graphs, 2019, for policies that are carried over to unseen graphs. The features are ours.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from graph_passes.grouping.group_graph import GroupGraph
from graph_passes.util.topological_order import compute_longest_paths, topological_order

__all__ = [
    "NUM_DEVICE_FEATURES",
    "NUM_GROUP_FEATURES",
    "GraphFeatures",
    "compute_shares",
    "measure_longest_paths",
    "order_groups",
]

#: Columns of `GraphFeatures.group_features` and of the last axis of `device_features`.
NUM_GROUP_FEATURES = 16
NUM_DEVICE_FEATURES = 5

# Policies need not tell apart devices over e^6 = 400 times slower than the fastest.
_MAX_LOG_RATIO = 6.0


@dataclasses.dataclass(frozen=True, eq=False)
class GraphFeatures:
    """One graph on one machine.

    Groups are numbered in the order in which they are placed. The unit of time is the mean time of
    a group on its fastest device.

    Attributes:
        order: int32 [num_groups], the group that is placed first, second and so on.
        group_features: float32 [num_groups, NUM_GROUP_FEATURES].
        device_features: float32 [num_groups, num_devices, NUM_DEVICE_FEATURES].
        device_secs: float32 [num_groups, num_devices], the time of each group on each device; 0
            where not legal.
        device_fill: float32 [num_groups, num_devices, 2], the share of each group in the memory
            of each device; see `problem_groups.device_fill`.
        edges: int32 [num_edges, 2], (producer, consumer).
        edge_bytes: float32 [num_edges], relative to the mean; positive.
        edge_secs: float32 [num_edges], the time to send each edge to another device.
    """

    order: np.ndarray
    group_features: np.ndarray
    device_features: np.ndarray
    device_secs: np.ndarray
    device_fill: np.ndarray
    edges: np.ndarray
    edge_bytes: np.ndarray
    edge_secs: np.ndarray

    @classmethod
    def from_groups(
        cls,
        groups: GroupGraph,
        legal: np.ndarray,
        *,
        device_secs: np.ndarray | None = None,
        edge_secs: np.ndarray | None = None,
        device_fill: np.ndarray | None = None,
    ) -> GraphFeatures:
        """Describes groups on a machine.

        Args:
            groups: the groups.
            legal: bool [num_groups, num_devices], true where a group may go; every row has one.
            device_secs: float64 [num_groups, num_devices], seconds of each group on each device;
                ignored where not legal. By default all devices take `work` seconds for a group.
            edge_secs: float64 [num_edges], seconds to send each edge from device to device; by
                default 0.
            device_fill: float64 [num_groups, num_devices, 2], the share of each group in the memory
                of each device; by default 0.

        Raises:
            ValueError: an array does not fit the groups, or a number is negative or not finite.
        """
        count, num_devices = legal.shape
        if device_secs is None:
            device_secs = np.repeat(groups.work[:, None], num_devices, axis=1)
        if edge_secs is None:
            edge_secs = np.zeros(len(groups.edges))
        if device_fill is None:
            device_fill = np.zeros([*legal.shape, 2])
        for name, values, shape in (
            ("legal", legal, (groups.num_groups, num_devices)),
            ("device_secs", device_secs, legal.shape),
            ("edge_secs", edge_secs, groups.edge_bytes.shape),
            ("device_fill", device_fill, (*legal.shape, 2)),
        ):
            if values.shape != shape:
                raise ValueError(f"{name} must be {list(shape)}, not {list(values.shape)}")
        device_secs = np.where(legal, device_secs, 0.0)
        for name, values in (
            ("device_secs", device_secs),
            ("edge_secs", edge_secs),
            ("device_fill", device_fill),
        ):
            if not (np.isfinite(values) & (values >= 0)).all():
                raise ValueError(f"{name} must be finite and not negative")

        order = order_groups(groups.edges, groups.layers)
        positions = np.empty(count, np.int32)
        positions[order] = np.arange(count)
        edges = positions[groups.edges]
        legal, device_secs = legal[order], device_secs[order]
        fastest = np.where(legal, device_secs, np.inf).min(axis=1)
        unit = _positive_mean(fastest)
        device_secs, fastest, edge_secs = device_secs / unit, fastest / unit, edge_secs / unit
        # Add 1, so that edges without bytes or of unknown size have a weight.
        edge_bytes = 1.0 + groups.edge_bytes
        edge_bytes = edge_bytes / _positive_mean(edge_bytes)
        return cls(
            order=order,
            group_features=_group_features(
                operations=groups.type_counts.sum(axis=1)[order],
                layers=groups.layers[order],
                secs=fastest,
                edges=edges,
                edge_bytes=edge_bytes,
                edge_secs=edge_secs,
                num_devices=num_devices,
            ),
            device_features=_device_features(legal, device_secs, fastest),
            device_secs=device_secs.astype(np.float32),
            device_fill=device_fill[order].astype(np.float32),
            edges=edges,
            edge_bytes=edge_bytes.astype(np.float32),
            edge_secs=edge_secs.astype(np.float32),
        )


def order_groups(edges: np.ndarray, layers: np.ndarray) -> np.ndarray:
    """Orders groups topologically; among ready groups, the lowest layer, then number, goes first.

    A cycle is broken at its group of lowest layer, then lowest number.

    Args:
        edges: int32 [num_edges, 2], (producer, consumer).
        layers: int32 [num_groups].

    Returns:
        int32 [num_groups].

    Example:
        >>> order_groups(np.array([[2, 0], [0, 1]]), np.zeros(3, np.int32)).tolist()
        [2, 0, 1]
    """
    by_rank = np.lexsort([np.arange(len(layers)), layers])
    ranks = np.empty(len(layers), np.int32)
    ranks[by_rank] = np.arange(len(layers))
    order = topological_order(len(layers), ranks[edges], breaks_cycles=True)
    return by_rank[order].astype(np.int32)


def measure_longest_paths(edges: np.ndarray, secs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Measures the longest paths to and from each group.

    Args:
        edges: int32 [num_edges, 2], (producer, consumer); edges that lead back to a lower number
            are ignored.
        secs: float64 [num_groups], the time of each group.

    Returns:
        The lengths of the longest path that ends before each group and of the longest path that
        starts with it, each float64 [num_groups].
    """
    edges = edges[edges[:, 0] < edges[:, 1]]
    order = np.arange(len(secs))
    before = compute_longest_paths(order, edges, secs)
    return before, secs + compute_longest_paths(order[::-1], edges[:, ::-1], secs)


def compute_shares(rows: np.ndarray, amounts: np.ndarray, num_rows: int) -> np.ndarray:
    """Computes the share of each amount in the sum of its row.

    Args:
        rows: int32 [num_amounts].
        amounts: floating [num_amounts], positive.
        num_rows: number of rows.

    Returns:
        float32 [num_amounts].
    """
    totals = np.bincount(rows, amounts, num_rows)
    return (amounts / totals[rows]).astype(np.float32)


def _group_features(
    *,
    operations: np.ndarray,
    layers: np.ndarray,
    secs: np.ndarray,
    edges: np.ndarray,
    edge_bytes: np.ndarray,
    edge_secs: np.ndarray,
    num_devices: int,
) -> np.ndarray:
    """Collects the features of each group; features of the whole graph repeat in every row."""
    count = len(secs)
    producers, consumers = edges.T

    def per_group(ends: np.ndarray, amounts: np.ndarray | None = None) -> np.ndarray:
        return np.log1p(np.bincount(ends, amounts, count))

    before, after = measure_longest_paths(edges, secs)
    critical_secs = float((before + after).max()) or 1.0
    parallelism = secs.sum() / critical_secs
    features = np.broadcast_arrays(
        np.log1p(secs),
        np.log1p(operations / _positive_mean(operations)),
        per_group(consumers),
        per_group(producers),
        per_group(consumers, edge_bytes),
        per_group(producers, edge_bytes),
        per_group(consumers, edge_secs),
        per_group(producers, edge_secs),
        np.arange(count) / count,
        _rank_fractions(layers),
        before / critical_secs,
        after / critical_secs,
        np.log1p(parallelism),
        min(parallelism / num_devices, 1.0),
        np.log1p(edge_secs.sum() / (secs.sum() or 1.0)),
        1.0 / num_devices,
    )
    return np.stack(features, axis=1).astype(np.float32)


def _device_features(legal: np.ndarray, device_secs: np.ndarray, fastest: np.ndarray) -> np.ndarray:
    """Collects the features of each group on each device."""
    tiny = np.finfo(np.float32).tiny
    ratios = np.log(np.maximum(device_secs, tiny) / np.maximum(fastest, tiny)[:, None])
    ratios = np.where(legal, np.minimum(ratios, _MAX_LOG_RATIO), 0.0)
    num_legal = legal.sum(axis=0)
    features = np.broadcast_arrays(
        legal,
        ratios,
        np.log1p(device_secs),
        ratios.sum(axis=0) / np.maximum(num_legal, 1),
        num_legal / len(legal),
    )
    return np.stack(features, axis=2).astype(np.float32)


def _rank_fractions(layers: np.ndarray) -> np.ndarray:
    distinct, ranks = np.unique(layers, return_inverse=True)
    return ranks / len(distinct)


def _positive_mean(values: np.ndarray) -> float:
    """Computes the mean as a divisor: 1 if it is 0 or there are no values."""
    return float(np.mean(values)) or 1.0 if len(values) else 1.0
