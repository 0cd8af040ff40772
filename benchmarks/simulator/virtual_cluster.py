"""TensorFlow's own simulator of a step: a cluster of described devices.

`VirtualCluster` is the analytical simulator inside TensorFlow's graph optimizer. It finds the cost
of an operation from its type, its shapes and the properties of its device, and schedules each
device as one stream: first ready, first run, ties by name. By itself it has tensors travel from
device to device within a nanosecond; `benchmarks.simulator.virtual_problems` and
`benchmarks.simulator.virtual_graphs` make graphs in which transfers take their time.

A process has one cluster at a time.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping, Sequence
from types import TracebackType

import tensorflow as tf
from tensorflow.core.protobuf.device_properties_pb2 import DeviceProperties, NamedDevice
from tensorflow.python.grappler import cluster as grappler_cluster
from tensorflow.python.grappler import item as grappler_item

__all__ = [
    "VirtualCluster",
    "VirtualStep",
    "one_cpu_and_k80s",
    "plain_device",
    "virtual_cluster_secs",
]

_DEVICE = "/job:localhost/replica:0/task:0/device:"
# No tensor is too large: what fits is not what this is asked.
_MEMORY_BYTES = 1 << 50


@dataclasses.dataclass(frozen=True)
class VirtualStep:
    """A step as TensorFlow simulates it.

    Attributes:
        step_nanos: the end of the last operation.
        devices: where each operation ran.
        start_nanos: when each operation started.
        nanos: how long each operation took.
        output_bytes: the sizes of the outputs of each operation.
    """

    step_nanos: int
    devices: dict[str, str]
    start_nanos: dict[str, int]
    nanos: dict[str, int]
    output_bytes: dict[str, tuple[int, ...]]


class VirtualCluster:
    """A simulated machine; a context manager.

    Args:
        devices: its devices, and those that stand for channels.
    """

    def __init__(self, devices: Sequence[NamedDevice]) -> None:
        self._cluster = grappler_cluster.Cluster(
            devices=list(devices), disable_detailed_stats=False, disable_timeline=False
        )

    def __enter__(self) -> VirtualCluster:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._cluster.Shutdown()

    def measure(self, graph_def: tf.compat.v1.GraphDef, fetches: Sequence[str]) -> VirtualStep:
        """Simulates a step.

        Args:
            graph_def: the graph, with a device of the cluster on every node.
            fetches: the operations that the step is for.

        Returns:
            What happens in the step.
        """
        item = grappler_item.Item(_meta_graph(graph_def, fetches))
        _, _, stats = self._cluster.MeasureCosts(item)
        devices, start, nanos, output_bytes = {}, {}, {}, {}
        for device in stats.dev_stats:
            for node in device.node_stats:
                devices[node.node_name] = device.device
                start[node.node_name] = node.all_start_nanos
                nanos[node.node_name] = node.all_end_rel_nanos
                output_bytes[node.node_name] = tuple(
                    output.tensor_description.allocation_description.requested_bytes
                    for output in node.output
                )
        # The run time that the cluster gives is rounded to microseconds.
        step_nanos = max(start[name] + nanos[name] for name in start)
        return VirtualStep(step_nanos, devices, start, nanos, output_bytes)


def one_cpu_and_k80s(num_gpus: int) -> tuple[NamedDevice, ...]:
    """Makes a CPU of 16 cores and so many halves of a Tesla K80.

    Returns:
        The devices, the CPU first.
    """
    cpu = DeviceProperties(
        type="CPU", frequency=2300, num_cores=16, memory_size=_MEMORY_BYTES, bandwidth=60_000_000
    )
    gpu = DeviceProperties(
        type="GPU",
        model="Tesla K80",
        environment={"architecture": "3.7"},
        frequency=823,
        num_cores=13,
        memory_size=_MEMORY_BYTES,
        bandwidth=240_000_000,
    )
    gpus = [NamedDevice(name=f"{_DEVICE}GPU:{i}", properties=gpu) for i in range(num_gpus)]
    return (NamedDevice(name=f"{_DEVICE}CPU:0", properties=cpu), *gpus)


def plain_device(number: int) -> NamedDevice:
    """Makes a device for operations whose cost does not depend on the device."""
    properties = DeviceProperties(
        type="CPU", frequency=1000, num_cores=1, memory_size=_MEMORY_BYTES, bandwidth=1_000_000
    )
    return NamedDevice(name=f"{_DEVICE}CPU:{number}", properties=properties)


def virtual_cluster_secs(
    graph_def: tf.compat.v1.GraphDef,
    fetches: Sequence[str],
    placement: Mapping[str, str],
    devices: Sequence[NamedDevice],
) -> float:
    """Measures how long TensorFlow takes to simulate a step of a placed graph.

    The graph is as it is, without operations for transfers, and the cluster collects no
    statistics: what it is fastest at. What a placement needs besides, to write the devices into
    the graph and to hand it over, is not counted.

    Args:
        graph_def: the graph.
        fetches: the operations that the step is for.
        placement: the device of each operation.
        devices: the devices of the cluster.
    """
    meta_graph = _meta_graph(graph_def, fetches)
    for node in meta_graph.graph_def.node:
        node.device = placement[node.name]
    cluster = grappler_cluster.Cluster(devices=list(devices), disable_timeline=True)
    try:
        item = grappler_item.Item(meta_graph)
        start = time.perf_counter()
        cluster.MeasureCosts(item)
        return time.perf_counter() - start
    finally:
        cluster.Shutdown()


def _meta_graph(
    graph_def: tf.compat.v1.GraphDef, fetches: Sequence[str]
) -> tf.compat.v1.MetaGraphDef:
    meta_graph = tf.compat.v1.MetaGraphDef()
    meta_graph.graph_def.CopyFrom(graph_def)
    meta_graph.collection_def["train_op"].node_list.value.extend(fetches)
    return meta_graph
