"""Graphs in which TensorFlow's own simulator sees what transfers cost.

The operations are the graph's own, with what TensorFlow thinks that they cost; transfers are added
as in `benchmarks.simulator.virtual_problems`. The problem that goes with such a graph has the same
costs, so that what two simulators say of the two differs by how they schedule and by nothing else.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping, Sequence

import numpy as np
import tensorflow as tf
from tensorflow.core.protobuf.device_properties_pb2 import NamedDevice

from benchmarks.simulator.virtual_cluster import VirtualCluster, VirtualStep, plain_device
from benchmarks.simulator.virtual_problems import set_nanos, transfers
from graph_passes.op_graph import OpGraph
from tf_placer.machines.machine import Link
from tf_placer.problem.placement_problem import PlacementProblem, ProblemDevice

__all__ = ["VirtualGraph", "graph_with_transfers", "virtual_graph"]


@dataclasses.dataclass(frozen=True, eq=False)
class VirtualGraph:
    """A graph and what TensorFlow thinks that its operations cost.

    Attributes:
        graph: the graph in columns.
        fetches: the operations that a step is for.
        problem: its operations in the order of their names, which is how the cluster breaks ties.
        tensors: int32 [problem.num_tensors], each tensor's number in the graph.
        devices: the simulated devices, in the order of the problem's.
    """

    graph: OpGraph
    fetches: tuple[str, ...]
    problem: PlacementProblem
    tensors: np.ndarray
    devices: tuple[NamedDevice, ...]


def virtual_graph(
    graph: OpGraph,
    fetches: Sequence[str],
    groups: np.ndarray,
    devices: Sequence[NamedDevice],
    bandwidth_bytes_per_sec: float,
) -> VirtualGraph:
    """Asks TensorFlow what every operation costs on every device.

    Args:
        graph: the graph, with what the step needs marked.
        fetches: the operations that the step is for.
        groups: int32 [graph.num_operations], the group of each operation.
        devices: the devices of the cluster.
        bandwidth_bytes_per_sec: of the link between any two of them, which has no latency.

    Returns:
        The graph with a problem that has these costs and sizes.
    """
    operations = np.flatnonzero(graph.needed)
    operations = np.array(sorted(operations.tolist(), key=graph.names.__getitem__), np.int32)
    number = np.full(graph.num_operations, -1, np.int32)
    number[operations] = np.arange(len(operations), dtype=np.int32)
    names = tuple(graph.names[i] for i in operations)
    steps: dict[bytes, VirtualStep] = {}
    for device in devices:
        kind = device.properties.SerializeToString(deterministic=True)
        if kind not in steps:
            graph_def = _placed(graph, names, {name: device.name for name in names})
            with VirtualCluster([device]) as cluster:
                steps[kind] = cluster.measure(graph_def, fetches)
    columns = [steps[d.properties.SerializeToString(deterministic=True)] for d in devices]

    # Reads, sorted by tensor as the problem numbers them: by the producer's name, then by port.
    producers, consumers = number[graph.edge_producer], number[graph.edge_consumer]
    reads = np.stack([producers, graph.edge_tensor, consumers], axis=1)
    reads = np.unique(reads[(producers >= 0) & (consumers >= 0)], axis=0)
    _, first, counts = np.unique(reads[:, :2], axis=0, return_index=True, return_counts=True)
    tensors, tensor_producers = reads[first, 1], reads[first, 0]
    ports = tensors - graph.output_start[operations[tensor_producers]]
    sizes = [columns[0].output_bytes[name] for name in names]
    control = number[graph.control_edges].reshape(-1, 2)
    problem = PlacementProblem(
        devices=tuple(ProblemDevice(d.name, d.properties.type, 1 << 50) for d in devices),
        links=tuple(
            Link(a.name, b.name, 0.0, bandwidth_bytes_per_sec)
            for a, b in itertools.permutations(devices, 2)
        ),
        operation_names=names,
        compute_secs=np.array([[s.nanos[name] * 1e-9 for s in columns] for name in names]),
        resident_bytes=np.zeros(len(names), np.int64),
        temp_bytes=np.zeros(len(names), np.int64),
        groups=groups[operations].astype(np.int32),
        tensor_producers=tensor_producers.astype(np.int32),
        tensor_bytes=np.array(
            [sizes[i][k] for i, k in zip(tensor_producers, ports, strict=True)], np.int64
        ),
        consumer_start=np.concatenate([[0], np.cumsum(counts)]).astype(np.int32),
        consumers=reads[:, 2].astype(np.int32),
        control_edges=control[(control >= 0).all(axis=1)].astype(np.int32),
    )
    return VirtualGraph(graph, tuple(fetches), problem, tensors.astype(np.int32), tuple(devices))


def graph_with_transfers(
    virtual: VirtualGraph, placement: np.ndarray
) -> tuple[tf.compat.v1.GraphDef, tuple[NamedDevice, ...]]:
    """Makes the placed graph with an operation for every transfer.

    A transfer is an Identity, so that what is known of the value of a tensor, on which the shapes
    and with them the costs of later operations depend, is still known behind it. The cluster adds
    a _Send and a _Recv of 1 ns before and behind it; the last _Recv waits for the receiving
    device like any operation. A control edge needs no data, so nothing is added around its
    transfer.

    Args:
        virtual: the graph.
        placement: int32 [num_groups], a device index per group.

    Returns:
        The graph, and the devices of a cluster for it.
    """
    graph, problem = virtual.graph, virtual.problem
    names, on = problem.operation_names, placement[problem.groups]
    graph_def = _placed(
        graph, names, {n: virtual.devices[d].name for n, d in zip(names, on, strict=True)}
    )
    arrivals: dict[tuple[str, int], str] = {}
    channels = {}
    for (tensor, producer, destination), name, channel, secs in transfers(problem, on):
        node = graph_def.node.add(name=name, op="NoOp", input=["^" + names[producer]])
        if tensor >= 0:
            number = virtual.tensors[tensor]
            port = number - graph.output_start[graph.tensor_producer[number]]
            node.op, node.input[0] = "Identity", f"{names[producer]}:{port}".removesuffix(":0")
            node.attr["T"].type = int(graph.tensor_dtypes[number])
            set_nanos(node, max(1, round(secs * 1e9)))
        channels[channel] = plain_device(channel)
        node.device = channels[channel].name
        arrivals[node.input[0], destination] = name
    for node, device in zip(graph_def.node, on.tolist(), strict=False):
        for k, name in enumerate(node.input):
            arrival = arrivals.get((name.removesuffix(":0"), device))
            if arrival is not None:
                node.input[k] = "^" * name.startswith("^") + arrival
    return graph_def, (*virtual.devices, *channels.values())


def _placed(
    graph: OpGraph, names: Sequence[str], devices: Mapping[str, str]
) -> tf.compat.v1.GraphDef:
    """Copies these operations of a graph, each on its device."""
    graph_def = tf.compat.v1.GraphDef(
        versions=graph.graph_def.versions, library=graph.graph_def.library
    )
    for name in names:
        node = graph_def.node.add()
        node.CopyFrom(graph.graph_def.node[graph.index[name]])
        node.device = devices[name]
    return graph_def
