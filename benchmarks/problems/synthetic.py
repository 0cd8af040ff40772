"""Placement problems of any size that look like training graphs, made without TensorFlow."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from tf_placer.machines.machine import Link
from tf_placer.problem.placement_problem import PlacementProblem, ProblemDevice

__all__ = ["unroll_lstm"]

_BATCH, _UNITS = 64, 1024
_STATE_BYTES = _BATCH * _UNITS * 4
_WEIGHT_BYTES = 2 * _UNITS * 4 * _UNITS * 4
_PRODUCT_FLOPS = 2 * _BATCH * 2 * _UNITS * 4 * _UNITS
# FLOP/s, bytes/s and seconds per launch, of a CPU and of a GPU.
_CPU = (4e11, 4e10, 2e-6)
_GPU = (1e13, 5e11, 5e-6)
_NUM_GPUS = 4


class _Graph:
    """Operations and their tensors while they are collected."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.groups: list[int] = []
        self.flops: list[float] = []
        self.traffic_bytes: list[float] = []
        self.resident_bytes: list[int] = []
        self.producers: list[int] = []
        self.sizes: list[int] = []
        self.consumers: list[list[int]] = []
        self.control_edges: list[tuple[int, int]] = []
        self.group = 0

    def add(
        self,
        name: str,
        inputs: Sequence[int],
        num_outputs: int = 1,
        size: int = _STATE_BYTES,
        flops: float = 0.0,
        resident_bytes: int = 0,
    ) -> list[int]:
        """Adds an operation and returns its tensors, all of one size."""
        operation = len(self.names)
        self.names.append(f"{name}_{operation}")
        self.groups.append(self.group)
        self.flops.append(flops)
        self.resident_bytes.append(resident_bytes)
        for tensor in inputs:
            self.consumers[tensor].append(operation)
        self.traffic_bytes.append(sum(self.sizes[t] for t in inputs) + num_outputs * size)
        self.producers += [operation] * num_outputs
        self.sizes += [size] * num_outputs
        self.consumers += [[] for _ in range(num_outputs)]
        return list(range(len(self.sizes) - num_outputs, len(self.sizes)))

    def one(self, name: str, *inputs: int, size: int = _STATE_BYTES, flops: float = 0.0) -> int:
        """Adds an operation with one tensor."""
        return self.add(name, inputs, size=size, flops=flops)[0]


def unroll_lstm(num_layers: int, num_steps: int) -> PlacementProblem:
    """Makes a training step of an unrolled LSTM on one CPU and four GPUs.

    There are about 40 operations per layer and step, forward and backward, which are one group;
    the weights of a layer are shared by all its steps.
    """
    graph = _Graph()
    weights = []
    for layer in range(num_layers):
        graph.group = layer
        weights.append(
            graph.add("weights", (), size=_WEIGHT_BYTES, resident_bytes=_WEIGHT_BYTES)
            + graph.add("biases", (), size=16 * _UNITS, resident_bytes=16 * _UNITS)
        )
    graph.group = num_layers
    zero = graph.one("zero")
    cells: dict[tuple[int, int], dict[str, int]] = {}
    for step in range(num_steps):
        graph.group = num_layers
        below = graph.one("inputs")
        for layer in range(num_layers):
            graph.group = num_layers + 1 + step * num_layers + layer
            before = cells.get((layer, step - 1), {"h": zero, "c": zero})
            cells[layer, step] = _forward(graph, weights[layer], below, before["h"], before["c"])
            below = cells[layer, step]["h"]
    weight_gradients: list[list[int]] = [[] for _ in weights]
    bias_gradients: list[list[int]] = [[] for _ in weights]
    from_later = {layer: (zero, zero) for layer in range(num_layers)}
    for step in reversed(range(num_steps)):
        graph.group = num_layers
        from_above = graph.one("loss_grad", cells[num_layers - 1, step]["h"])
        for layer in reversed(range(num_layers)):
            graph.group = num_layers + 1 + step * num_layers + layer
            gradients = _backward(
                graph, weights[layer][0], cells[layer, step], from_above, *from_later[layer]
            )
            from_above = gradients["x"]
            from_later[layer] = gradients["h"], gradients["c"]
            weight_gradients[layer].append(gradients["weights"])
            bias_gradients[layer].append(gradients["biases"])
    updates = []
    for layer in range(num_layers):
        graph.group = layer
        for variable, gradients_of_it in zip(
            weights[layer], (weight_gradients[layer], bias_gradients[layer]), strict=True
        ):
            size = graph.sizes[variable]
            total = graph.one("sum", *gradients_of_it, size=size)
            updates.append(len(graph.names))
            graph.one("update", variable, total, size=0)
    graph.control_edges += [(update, len(graph.names)) for update in updates]
    graph.add("train", (), num_outputs=0)
    return _problem(graph)


def _forward(
    graph: _Graph, weights: Sequence[int], x: int, h_before: int, c_before: int
) -> dict[str, int]:
    joined = graph.one("concat", x, h_before, size=2 * _STATE_BYTES)
    product = graph.one(
        "matmul", joined, weights[0], size=4 * _STATE_BYTES, flops=float(_PRODUCT_FLOPS)
    )
    biased = graph.one("bias_add", product, weights[1], size=4 * _STATE_BYTES)
    i, j, f, o = graph.add("split", [biased], num_outputs=4)
    f = graph.one("sigmoid", graph.one("add", f))
    i, j, o = graph.one("sigmoid", i), graph.one("tanh", j), graph.one("sigmoid", o)
    c = graph.one("add", graph.one("mul", c_before, f), graph.one("mul", i, j))
    tanh_c = graph.one("tanh", c)
    h = graph.one("mul", tanh_c, o)
    return {
        "joined": joined, "c_before": c_before, "i": i, "j": j, "f": f, "o": o,
        "c": c, "tanh_c": tanh_c, "h": h,
    }  # fmt: skip


def _backward(
    graph: _Graph, weights: int, cell: dict[str, int], dh_above: int, dh_later: int, dc_later: int
) -> dict[str, int]:
    dh = graph.one("add_n", dh_above, dh_later)
    do = graph.one("sigmoid_grad", cell["o"], graph.one("mul_grad", dh, cell["tanh_c"]))
    dtanh_c = graph.one("mul_grad", dh, cell["o"])
    dc = graph.one("add_n", graph.one("tanh_grad", cell["tanh_c"], dtanh_c), dc_later)
    di = graph.one("sigmoid_grad", cell["i"], graph.one("mul_grad", dc, cell["j"]))
    dj = graph.one("tanh_grad", cell["j"], graph.one("mul_grad", dc, cell["i"]))
    df = graph.one("sigmoid_grad", cell["f"], graph.one("mul_grad", dc, cell["c_before"]))
    dc_before = graph.one("mul_grad", dc, cell["f"])
    # Broadcasting sums, which TensorFlow adds wherever it cannot see that they do nothing.
    di, dj, df, do = (graph.one("reshape", graph.one("sum", gate)) for gate in (di, dj, df, do))
    gates = graph.one("concat", di, dj, df, do, size=4 * _STATE_BYTES)
    biases = graph.one("bias_add_grad", gates, size=16 * _UNITS)
    product_flops = float(_PRODUCT_FLOPS)
    joined = graph.one("matmul", gates, weights, size=2 * _STATE_BYTES, flops=product_flops)
    total = graph.one("matmul", cell["joined"], gates, size=_WEIGHT_BYTES, flops=product_flops)
    return {
        "x": graph.one("slice", joined),
        "h": graph.one("slice", joined),
        "c": dc_before,
        "weights": total,
        "biases": biases,
    }


def _problem(graph: _Graph) -> PlacementProblem:
    devices = [ProblemDevice("cpu:0", "CPU", 256 * 2**30, slots=4)]
    devices += [ProblemDevice(f"gpu:{k}", "GPU", 32 * 2**30) for k in range(_NUM_GPUS)]
    num_operations = len(graph.names)
    # No two operations take exactly the same time.
    noise = np.random.default_rng(0).uniform(0.9, 1.1, [num_operations, len(devices)])
    flops, traffic_bytes = np.array(graph.flops), np.array(graph.traffic_bytes)
    columns = [
        np.maximum(flops / rate, traffic_bytes / bandwidth) + launch
        for rate, bandwidth, launch in [_CPU] + [_GPU] * _NUM_GPUS
    ]
    return PlacementProblem(
        devices=tuple(devices),
        links=tuple(
            Link(source.name, destination.name, 10e-6, 12e9)
            for source, destination in itertools.permutations(devices, 2)
        ),
        operation_names=tuple(graph.names),
        compute_secs=np.stack(columns, axis=1) * noise,
        resident_bytes=np.array(graph.resident_bytes),
        temp_bytes=np.zeros(num_operations, np.int64),
        groups=np.array(graph.groups),
        tensor_producers=np.array(graph.producers),
        tensor_bytes=np.array(graph.sizes),
        consumer_start=np.cumsum([0, *map(len, graph.consumers)]),
        consumers=np.array(list(itertools.chain.from_iterable(graph.consumers))),
        control_edges=np.array(graph.control_edges),
    )
