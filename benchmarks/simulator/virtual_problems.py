"""Problems in which TensorFlow's own simulator sees what everything costs.

Every transfer becomes an operation on a made-up device that stands for the channel, so that it
takes its time and waits for the transfers before it.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable, Iterator

import numpy as np
import tensorflow as tf
from tensorflow.core.protobuf.device_properties_pb2 import NamedDevice

from benchmarks.simulator.virtual_cluster import VirtualStep, plain_device
from tf_placer.machines.machine import Link
from tf_placer.problem.placement_problem import PlacementProblem, ProblemDevice

__all__ = [
    "graph_of_problem",
    "problem_of_step",
    "set_nanos",
    "transfers",
    "whole_nanoseconds",
]

# Numbers of made-up devices, beyond those of any others.
_SIGNALS = 999
_FIRST_CHANNEL = 1000


def graph_of_problem(
    problem: PlacementProblem, placement: np.ndarray
) -> tuple[tf.compat.v1.GraphDef, tuple[NamedDevice, ...], tuple[str, ...]]:
    """Makes a graph of which the cluster simulates exactly the problem, for any costs.

    Every operation and every transfer is a node that takes as many nanoseconds as the problem
    says; all edges are control edges, which the cluster adds nothing to. The names are in the order
    of the problem's queues.

    The cluster has an operation ready when the input ends that it looked at last, and it looks at
    inputs in the order in which they became ready, not in that of their ends: an operation may
    start before a long input on another device is over. Therefore every node has a signal behind
    it, a node without duration that becomes ready when it ends, and it is the signals that the
    operations wait for.

    Args:
        problem: the problem, in whole nanoseconds written as seconds. The cluster may serve
            operations without duration in another order than the simulator.
        placement: int32 [num_groups], a device index per group.

    Returns:
        The graph, the devices of a cluster for it, and the operations to fetch.

    Raises:
        ValueError: a device has several slots or loses time to transfers, or something takes longer
            than 2 seconds.
    """
    for device in problem.devices:
        if device.slots != 1:
            raise ValueError(f"VirtualCluster has no {device.slots} slots of {device.name}")
        if device.transfer_share or device.transfer_overhead_secs:
            raise ValueError(f"VirtualCluster has {device.name} lose no time to transfers")
    on = placement[problem.groups]
    graph_def = tf.compat.v1.GraphDef()
    devices: dict[int, NamedDevice] = {}

    def add(name: str, device: int, nanos: int, inputs: Iterable[str]) -> str:
        devices.setdefault(device, plain_device(device))
        node = graph_def.node.add(name=name, device=devices[device].name, input=inputs, op="NoOp")
        if nanos:
            node.op = "Const"
            node.attr["dtype"].type = tf.int32.as_datatype_enum
            node.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(0))
            set_nanos(node, nanos)
        return add(f"0/{name}", _SIGNALS, 0, [f"^{name}"]) if device != _SIGNALS else f"^{name}"

    names = [f"operation/{i:09d}" for i in range(problem.num_operations)]
    arrivals = {
        what: add(name, channel, round(nanos), [f"^0/{names[what[1]]}"])
        for what, name, channel, nanos in transfers(problem, on)
    }
    inputs: dict[int, dict[str, None]] = {}
    for tensor, producer, consumer in _reads(problem):
        signal = arrivals.get((tensor, producer, int(on[consumer])), f"^0/{names[producer]}")
        inputs.setdefault(consumer, {})[signal] = None
    for i, (name, device) in enumerate(zip(names, on.tolist(), strict=True)):
        add(name, device, round(problem.compute_secs[i, device]), inputs.get(i, {}))
    return graph_def, tuple(devices.values()), tuple(names)


def whole_nanoseconds(problem: PlacementProblem) -> PlacementProblem:
    """Rounds all times up to whole nanoseconds, written as seconds, and none of them to zero.

    Sums of whole numbers are exact, so that what happens at the same time does so in every
    simulator; and without operations of no duration there is one order of what happens.

    Args:
        problem: the problem; its links have one bandwidth and no latency.

    Returns:
        The problem, in which a second stands for a nanosecond.
    """
    [(latency, bandwidth)] = {(k.latency_secs, k.bandwidth_bytes_per_sec) for k in problem.links}
    assert latency == 0
    # Less a little, so that what is a whole number but for a rounding error is not rounded up.
    compute = np.ceil(problem.compute_secs * 1e9 - 1e-3)
    sizes = np.ceil(problem.tensor_bytes / bandwidth * 1e9 - 1e-3)
    return dataclasses.replace(
        problem,
        links=tuple(dataclasses.replace(k, bandwidth_bytes_per_sec=1.0) for k in problem.links),
        compute_secs=np.maximum(compute, 1.0),
        tensor_bytes=sizes.astype(np.int64),
        local_bytes=sizes.astype(np.int64),
    )


def problem_of_step(
    graph_def: tf.compat.v1.GraphDef, step: VirtualStep
) -> tuple[PlacementProblem, np.ndarray]:
    """Makes a problem of all that the cluster ran in a step, the added _Send and _Recv included.

    Args:
        graph_def: the graph of the step.
        step: the step.

    Returns:
        The problem, in whole nanoseconds written as seconds, with operations in the order of their
        names, a group for each, devices for channels as well, and links that take no time; and its
        placement.
    """
    names = sorted(step.devices)
    number = {name: i for i, name in enumerate(names)}
    devices = sorted(set(step.devices.values()))
    edges: set[tuple[int, int]] = set()
    for node in graph_def.node:
        home = step.devices[node.name]
        for name in node.input:
            producer, _, port = name.lstrip("^").partition(":")
            path = [producer, node.name]
            source = step.devices[producer]
            if not name.startswith("^") and source != home:
                tensor = f"{producer}_{port or 0}"
                a, b = source.replace(":", "_"), home.replace(":", "_")
                path[1:1] = [f"Send_{tensor}_from_{a}_to_{b}", f"Recv_{tensor}_on_{b}"]
            edges.update(itertools.pairwise(number[name] for name in path))
    nothing = np.zeros(len(names), np.int64)
    problem = PlacementProblem(
        devices=tuple(ProblemDevice(name, "", 1 << 50) for name in devices),
        links=tuple(Link(a, b, 0.0, 1.0) for a, b in itertools.permutations(devices, 2)),
        operation_names=tuple(names),
        compute_secs=np.array([[float(step.nanos[name])] * len(devices) for name in names]),
        resident_bytes=nothing,
        temp_bytes=nothing,
        groups=np.arange(len(names), dtype=np.int32),
        tensor_producers=np.empty(0, np.int32),
        tensor_bytes=np.empty(0, np.int64),
        consumer_start=np.zeros(1, np.int32),
        consumers=np.empty(0, np.int32),
        control_edges=np.array(sorted(edges), np.int32).reshape(-1, 2),
    )
    place = {name: d for d, name in enumerate(devices)}
    return problem, np.array([place[step.devices[name]] for name in names], np.int32)


def _reads(problem: PlacementProblem) -> Iterator[tuple[int, int, int]]:
    """Yields all (tensor, producer, consumer), then all (-1, operation before, operation after)."""
    counts = np.diff(problem.consumer_start)
    tensors = np.repeat(np.arange(problem.num_tensors), counts)
    producers = problem.tensor_producers[tensors]
    yield from zip(tensors.tolist(), producers.tolist(), problem.consumers.tolist(), strict=True)
    for before, after in problem.control_edges.tolist():
        yield -1, before, after


def transfers(
    problem: PlacementProblem, on: np.ndarray
) -> Iterator[tuple[tuple[int, int, int], str, int, float]]:
    """Lists what has to travel, and how.

    Args:
        problem: the problem.
        on: int [num_operations], the device of each operation.

    Yields:
        (tensor or -1, producer, destination device), a name in the order of the channels' queues,
        the number of the made-up device, and seconds.
    """
    names = {device.name: d for d, device in enumerate(problem.devices)}
    links, channels = {}, {}
    for link in problem.links:
        pair = names[link.source], names[link.destination]
        links[pair] = link
        channels[pair] = pair if link.channel is None else link.channel
    numbers = {channel: k for k, channel in enumerate(dict.fromkeys(channels.values()))}
    seen = set()
    for tensor, producer, consumer in _reads(problem):
        source, destination = int(on[producer]), int(on[consumer])
        what = tensor, producer, destination
        if source == destination or what in seen:
            continue
        seen.add(what)
        link = links[source, destination]
        size = 0 if tensor < 0 else int(problem.tensor_bytes[tensor])
        secs = link.latency_secs + size / link.bandwidth_bytes_per_sec
        order = tensor if tensor >= 0 else problem.num_tensors + producer
        # Digits sort before the letters that names of operations start with: a transfer without
        # duration is over before operations that are ready at the same time start.
        name = f"1/{order:09d}/{destination:03d}"
        yield what, name, _FIRST_CHANNEL + numbers[channels[source, destination]], secs


def set_nanos(node: tf.compat.v1.NodeDef, nanos: int) -> None:
    """Has an operation of 1 ns take so many nanoseconds.

    Raises:
        ValueError: these are more than 2 seconds, at which TensorFlow ends the process.
    """
    if nanos >= 1 << 31:
        raise ValueError(f"{node.name} takes {nanos * 1e-9:.3g} s, too long for VirtualCluster")
    node.attr["_execution_count"].i = nanos
