"""Placement problems of irregular layer graphs: eight families, of any size."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping

import numpy as np

from tf_placer.machines.machine import Link
from tf_placer.problem.placement_problem import PlacementProblem, ProblemDevice

__all__ = ["FAMILIES", "LayerGraph", "irregular_problem"]

# The mean time of the two operations of a group on the fastest device.
_MEAN_SECS = 1e-3
# A backward operation computes the gradients of the inputs and of the weights.
_BACKWARD_WORK = 2.0
_WORK_DEVIATION = 0.3
_MEAN_BYTES = 1 << 20
_ENOUGH_BYTES = 2**50
_MIN_DEVICES, _MAX_DEVICES = 2, 8
_DEVICES_PER_HOST = (2, 4, 8)
# The mean time of a transfer within a host by that of an operation, as powers of ten.
_FAST_TRANSFER = (-0.7, 0.0)
_SLOW_BY_FAST = (2.0, 4.0, 8.0)
_LATENCY_SHARE = 0.02
_SEVERAL_SPEEDS_SHARE = 1 / 3
_MAX_SLOWNESS = 2.0


class LayerGraph:
    """Layers in a topological order.

    Attributes:
        inputs: for each layer, the layers that it reads, each once.
        work: the compute time of each layer, relative to others.
        sizes: the size of the output of each layer, relative to others.
    """

    def __init__(self) -> None:
        self.inputs: list[list[int]] = []
        self.work: list[float] = []
        self.sizes: list[float] = []

    def __len__(self) -> int:
        return len(self.inputs)

    def add(self, *inputs: int, work: float = 1.0, size: float = 1.0) -> int:
        """Adds a layer; returns its number."""
        self.inputs.append(sorted(set(inputs)))
        self.work.append(work)
        self.sizes.append(size)
        return len(self) - 1

    def add_chain(self, first: int, length: int, work: float = 1.0, size: float = 1.0) -> int:
        """Adds layers one after the other, which begin behind a layer; returns the last one."""
        for _ in range(length):
            first = self.add(first, work=work, size=size)
        return first

    def add_loss(self) -> None:
        """Adds a small layer that reads all layers that have no reader."""
        read = {layer for inputs in self.inputs for layer in inputs}
        self.add(*(layer for layer in range(len(self)) if layer not in read), work=0.1, size=0.1)


def irregular_problem(family: str, num_groups: int, seed: int) -> PlacementProblem:
    """Draws a training step with more memory than it needs, and with nothing resident.

    A group has the forward and the backward operation of a layer. 2 to 8 devices, alike or of
    several speeds, are on hosts with fast links; between two hosts, all transfers of a direction
    share a slow channel.

    Args:
        family: a name of `FAMILIES`.
        num_groups: about the number of groups; the last part of the graph may exceed it.
        seed: seeds everything random.
    """
    random = np.random.default_rng([seed, num_groups, list(FAMILIES).index(family)])
    graph = FAMILIES[family](random, num_groups)
    graph.add_loss()
    num_layers = len(graph)
    work = np.array(graph.work) * random.lognormal(0.0, _WORK_DEVIATION, num_layers)
    forward_secs = _MEAN_SECS / (1.0 + _BACKWARD_WORK) * work / work.mean()
    sizes = np.maximum(1, _MEAN_BYTES * np.array(graph.sizes) / np.mean(graph.sizes))
    producers, consumers, tensor_bytes = _make_tensors(graph, sizes.astype(np.int64))
    devices, links, slowness = _draw_machine(random)
    secs = np.concatenate([forward_secs, _BACKWARD_WORK * forward_secs[::-1]])
    groups = np.concatenate([np.arange(num_layers), np.arange(num_layers)[::-1]])
    return PlacementProblem(
        devices=devices,
        links=links,
        operation_names=(
            *(f"layer_{layer}/forward" for layer in range(num_layers)),
            *(f"layer_{layer}/backward" for layer in reversed(range(num_layers))),
        ),
        compute_secs=secs[:, np.newaxis] * slowness,
        resident_bytes=np.zeros(2 * num_layers, np.int64),
        temp_bytes=np.zeros(2 * num_layers, np.int64),
        groups=groups,
        tensor_producers=np.array(producers),
        tensor_bytes=np.array(tensor_bytes),
        consumer_start=np.cumsum([0, *map(len, consumers)]),
        consumers=np.concatenate(consumers),
        control_edges=np.zeros([0, 2], np.int64),
    )


def _make_tensors(
    graph: LayerGraph, sizes: np.ndarray
) -> tuple[list[int], list[list[int]], list[int]]:
    """Lists the producer, the consumers and the bytes of each tensor.

    Layer k has the operations k and 2n - 1 - k. Its output goes to its readers and to its own
    backward operation, which gets a gradient of the same size from each reader.
    """
    last = 2 * len(graph) - 1
    consumers: list[list[int]] = [[last - layer] for layer in range(len(graph))]
    for reader, inputs in enumerate(graph.inputs):
        for layer in inputs:
            consumers[layer].append(reader)
    edges = [(layer, reader) for reader, inputs in enumerate(graph.inputs) for layer in inputs]
    return (
        [*range(len(graph)), *(last - reader for _, reader in edges)],
        [*consumers, *([last - layer] for layer, _ in edges)],
        [*sizes.tolist(), *(int(sizes[layer]) for layer, _ in edges)],
    )


def _draw_machine(
    random: np.random.Generator,
) -> tuple[tuple[ProblemDevice, ...], tuple[Link, ...], np.ndarray]:
    """Draws devices, links, and how much slower each device is than the fastest."""
    num_devices = int(random.integers(_MIN_DEVICES, _MAX_DEVICES + 1))
    per_host = int(random.choice(_DEVICES_PER_HOST))
    operation_secs = _MEAN_SECS / 2
    fast = _MEAN_BYTES / (operation_secs * 10.0 ** random.uniform(*_FAST_TRANSFER))
    slow = fast / random.choice(_SLOW_BY_FAST)
    names = [f"host:{number // per_host}/GPU:{number}" for number in range(num_devices)]
    links = []
    for source, destination in itertools.permutations(range(num_devices), 2):
        hosts = (source // per_host, destination // per_host)
        is_fast = hosts[0] == hosts[1]
        links.append(
            Link(
                names[source],
                names[destination],
                _LATENCY_SHARE * operation_secs,
                fast if is_fast else slow,
                None if is_fast else f"host:{hosts[0]} to host:{hosts[1]}",
            )
        )
    slowness = np.ones(num_devices)
    if random.random() < _SEVERAL_SPEEDS_SHARE:
        slowness = random.uniform(1.0, _MAX_SLOWNESS, num_devices)
        slowness /= slowness.min()
    devices = tuple(ProblemDevice(name, "GPU", _ENOUGH_BYTES) for name in names)
    return devices, tuple(links), slowness


def _draw_between(random: np.random.Generator, least: int, most: int) -> int:
    return int(random.integers(least, most + 1))


def _make_cells(random: np.random.Generator, count: int) -> LayerGraph:
    """Makes cells with branches of unequal length, which read one of the two cells before."""
    graph = LayerGraph()
    before = graph.add()
    last = graph.add(before)
    while len(graph) < count:
        ends = []
        for _ in range(_draw_between(random, 2, 5)):
            first = last if random.random() < 0.6 else before
            ends.append(graph.add_chain(first, _draw_between(random, 1, 6)))
        before, last = last, graph.add(*ends, work=0.2, size=2.0)
    return graph


def _make_multi_scale_net(random: np.random.Generator, count: int) -> LayerGraph:
    """Makes streams of several resolutions; every stream reads all others now and then."""
    graph = LayerGraph()
    num_scales = _draw_between(random, 3, 5)
    streams = [graph.add()]
    while len(graph) < count:
        if len(streams) < num_scales:
            streams.append(graph.add(streams[-1], work=0.7, size=0.5 ** len(streams)))
        for scale, layer in enumerate(streams):
            length = _draw_between(random, 1, 4)
            streams[scale] = graph.add_chain(layer, length, 0.7**scale, 0.5**scale)
        fused = []
        for scale in range(len(streams)):
            resampled = [
                graph.add(layer, work=0.2, size=0.5**scale)
                for other, layer in enumerate(streams)
                if other != scale
            ]
            fused.append(graph.add(streams[scale], *resampled, work=0.1, size=0.5**scale))
        streams = fused
    return graph


def _make_experts(random: np.random.Generator, count: int) -> LayerGraph:
    """Makes blocks of attention and of experts with unequal loads, one or two layers deep."""
    graph = LayerGraph()
    num_experts = _draw_between(random, 4, 12)
    state = graph.add()
    while len(graph) < count:
        heads = [graph.add(state) for _ in range(3)]
        state = graph.add(graph.add(*heads), state, work=0.3)
        gate = graph.add(state, work=0.1, size=0.05)
        loads = random.dirichlet(np.full(num_experts, 1.0)) * num_experts
        outputs = []
        for load in loads.tolist():
            first = graph.add(state, gate, work=load, size=load / 2)
            outputs.append(graph.add_chain(first, _draw_between(random, 0, 1), load, load / 2))
        state = graph.add(*outputs, state, work=0.3)
    return graph


def _make_graph_net(random: np.random.Generator, count: int) -> LayerGraph:
    """Makes rounds of messages between the parts of a graph, which are unequal."""
    graph = LayerGraph()
    num_parts = _draw_between(random, 6, 16)
    points = random.random([num_parts, 2])
    distances = np.linalg.norm(points[:, np.newaxis] - points, axis=2)
    near = [order[: _draw_between(random, 2, 5)] for order in distances.argsort(axis=1)]
    work = random.lognormal(0.0, 0.7, num_parts)
    states = [graph.add(work=part_work) for part_work in work.tolist()]
    while len(graph) < count:
        states = [
            graph.add(*(states[other] for other in near[part]), work=work[part], size=work[part])
            for part in range(num_parts)
        ]
    return graph


def _make_u_nets(random: np.random.Generator, count: int) -> LayerGraph:
    """Makes U-nets one after the other, with several encoders and layers on skip connections."""
    graph = LayerGraph()
    state = graph.add()
    while len(graph) < count:
        depth, num_encoders = _draw_between(random, 3, 5), _draw_between(random, 1, 3)
        skips: list[list[int]] = [[] for _ in range(depth)]
        ends = []
        for _ in range(num_encoders):
            layer = state
            for level in range(depth):
                size = 0.5**level
                layer = graph.add_chain(layer, _draw_between(random, 1, 3), size=size)
                length = _draw_between(random, 0, depth - level)
                skips[level].append(graph.add_chain(layer, length, work=0.5, size=size))
            ends.append(layer)
        state = graph.add(*ends, size=0.5**depth)
        for level in reversed(range(depth)):
            size = 0.5**level
            state = graph.add(state, *skips[level], work=0.5, size=size)
            state = graph.add_chain(state, _draw_between(random, 0, 2), size=size)
    return graph


def _make_encoder_decoder(random: np.random.Generator, count: int) -> LayerGraph:
    """Makes a recurrent encoder, first in both directions, and a decoder that attends to it."""
    graph = LayerGraph()
    num_layers, share = _draw_between(random, 2, 4), random.uniform(0.3, 0.7)
    num_inputs = max(2, round(share * count / (num_layers + 2)))
    num_outputs = max(2, round((1.0 - share) * count / (num_layers + 1)))

    def add_cells(inputs: Iterable[int]) -> list[int]:
        cells: list[int] = []
        for layer in inputs:
            cells.append(graph.add(layer, *cells[-1:]))
        return cells

    words = [graph.add(work=0.1) for _ in range(num_inputs)]
    forward, backward = add_cells(words), add_cells(words[::-1])[::-1]
    states = [graph.add(*pair, work=0.1) for pair in zip(forward, backward, strict=True)]
    for _ in range(max(0, num_layers - 2)):
        states = add_cells(states)
    memory = graph.add(*states, work=0.5, size=0.2 * num_inputs)
    column = [states[-1]] * num_layers
    for _ in range(num_outputs):
        layer = graph.add(memory, column[0], work=0.7)
        for number, cell in enumerate(column):
            layer = column[number] = graph.add(layer, cell)
    return graph


def _make_tree(random: np.random.Generator, count: int) -> LayerGraph:
    """Makes trees whose nodes read two others, from the leaves to one root."""
    graph = LayerGraph()

    def add_tree(num_leaves: int) -> int:
        if num_leaves == 1:
            return graph.add(work=0.5)
        left = 1 + int((num_leaves - 1) * random.beta(0.7, 0.7))
        left = min(left, num_leaves - 1)
        return graph.add(add_tree(left), add_tree(num_leaves - left))

    add_tree((count + 1) // 2)
    return graph


def _make_series_parallel(random: np.random.Generator, count: int) -> LayerGraph:
    """Makes one part after another, or parts side by side, each of such parts."""
    graph = LayerGraph()

    def add_part(first: int, size: int) -> int:
        if size <= 3:
            return graph.add_chain(first, size, size=float(random.choice([0.5, 1.0, 2.0])))
        if random.random() < 0.5:
            left = _draw_between(random, 1, size - 1)
            return add_part(add_part(first, left), size - left)
        num_parts = _draw_between(random, 2, 4)
        sizes = random.multinomial(size - 1, random.dirichlet(np.ones(num_parts)))
        ends = [add_part(first, part) for part in sizes.tolist() if part]
        return graph.add(*ends, work=0.3)

    add_part(graph.add(), count - 1)
    return graph


#: Functions that draw about as many layers as asked, without the loss, by the name of the family.
FAMILIES: Mapping[str, Callable[[np.random.Generator, int], LayerGraph]] = {
    "branched cells": _make_cells,
    "multi-scale nets": _make_multi_scale_net,
    "mixtures of experts": _make_experts,
    "graph nets": _make_graph_net,
    "U-nets": _make_u_nets,
    "attention": _make_encoder_decoder,
    "unbalanced trees": _make_tree,
    "series-parallel": _make_series_parallel,
}
