"""Runs of graphs on several logical CPU devices, where TensorFlow rejects illegal placements."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import numpy as np
import tensorflow as tf

from tests.graph_parts import TestGraph

tf1 = tf.compat.v1

__all__ = ["Run", "device_names", "run_steps"]


@dataclasses.dataclass(frozen=True)
class Run:
    """Fetched values and devices of the steps of a graph.

    Attributes:
        values: per step, the value of each fetched tensor.
        devices: the device of each operation that ran, by name.
    """

    values: list[dict[str, np.ndarray]]
    devices: Mapping[str, str]


def device_names(count: int) -> tuple[str, ...]:
    """Returns the full names of the first logical CPU devices of a local session."""
    return tuple(f"/job:localhost/replica:0/task:0/device:CPU:{i}" for i in range(count))


def run_steps(graph_def: tf1.GraphDef, made: TestGraph, *, devices: int, steps: int = 2) -> Run:
    """Runs steps of a graph in a fresh session without soft placement or optimization.

    Args:
        graph_def: the graph of `made`, possibly with devices.
        made: the fetches, feeds and initializers.
        devices: the number of logical CPU devices.
        steps: the number of steps.

    Raises:
        tf.errors.OpError: TensorFlow refuses the placement, or an operation fails.
    """
    config = tf1.ConfigProto(
        device_count={"CPU": devices},
        allow_soft_placement=False,
        inter_op_parallelism_threads=2,
        intra_op_parallelism_threads=1,
    )
    config.graph_options.rewrite_options.disable_meta_optimizer = True
    options = tf1.RunOptions(output_partition_graphs=True)
    metadata = tf1.RunMetadata()
    with tf.Graph().as_default() as graph:
        tf.graph_util.import_graph_def(graph_def, name="")
    for node in graph_def.node:
        # The import gives colocated operations the same device, which hides illegal placements.
        graph.get_operation_by_name(node.name)._set_device(node.device)
    tensors = {name: name for name in made.fetches if ":" in name}
    operations = [name for name in made.fetches if ":" not in name]
    values = []
    with tf1.Session(graph=graph, config=config) as session:
        session.run(list(made.initializers))
        for _ in range(steps):
            fetches, feeds = (tensors, operations), dict(made.feeds)
            values.append(session.run(fetches, feeds, options, metadata)[0])
    ran = {node.name: node.device for part in metadata.partition_graphs for node in part.node}
    return Run(values, ran)
