"""Builds the placement problem of a graph on a machine."""

from __future__ import annotations

import dataclasses

import numpy as np

from graph_passes.op_graph import OpGraph
from tf_placer.costs.graph_memory import compute_graph_memory
from tf_placer.costs.operation_costs import OperationCosts
from tf_placer.machines.gpu_memory import compute_plan_bytes, compute_usable_bytes
from tf_placer.machines.machine import Device, Link, Machine, MachineError
from tf_placer.machines.networked_computers import describe_network
from tf_placer.problem.placement_problem import PlacementProblem, ProblemDevice

__all__ = ["build_graph_problem", "find_batch_size", "list_needed_operations"]

# Operations whose outputs are the examples of a step.
_INPUTS = ("IteratorGetNext",)


def list_needed_operations(graph: OpGraph) -> np.ndarray:
    """Lists the operations of a problem: those that a step needs, in topological order.

    Args:
        graph: the graph.

    Returns:
        int32 [num_needed], indices into the graph's operations.
    """
    needed: np.ndarray = graph.order[graph.needed[graph.order]]
    return needed


def find_batch_size(graph: OpGraph) -> int | None:
    """Finds the first dimension that all inputs of a step have in common; None if they differ."""
    is_input = graph.fed | (graph.needed & graph.has_type(_INPUTS))[graph.tensor_producer]
    shapes = [graph.tensor_shapes[tensor] for tensor in np.flatnonzero(is_input).tolist()]
    # A scalar is a setting, such as a learning rate.
    sizes = {-1 if shape is None else shape[0] for shape in shapes if shape != ()}
    [size] = sizes if len(sizes) == 1 else [-1]
    return size if size > 0 else None


def build_graph_problem(
    graph: OpGraph,
    groups: np.ndarray,
    legal: np.ndarray,
    machine: Machine,
    costs: OperationCosts,
    coarse_groups: np.ndarray | None = None,
    layers: np.ndarray | None = None,
    *,
    name: str = "",
) -> PlacementProblem:
    """Builds the placement problem of a graph on a machine.

    Fed tensors exist at the start of a step and cost nothing. The back edge of a v1 while loop is
    left out: a loop shares one device, and the costs of its operations cover all iterations.

    Args:
        graph: the graph.
        groups: int32 [num_operations], the group of each operation that the step needs.
        legal: bool [num_groups, num_devices], true where the group may go on the device.
        machine: the machine; its links have latency and bandwidth, its devices memory.
        costs: the costs of the graph's operations on the machine's devices.
        coarse_groups: int32 [num_operations], the coarse group of each operation that the step
            needs, or None.
        layers: int32 [num_operations], the layer of each operation that the step needs, or None.
        name: what people call the graph; "" if that is not known.

    Returns:
        The problem; its operations are `list_needed_operations(graph)`.

    Raises:
        MachineError: a link has no latency or bandwidth, or a device no memory size.
        ProblemError: the costs are invalid.
    """
    kept = list_needed_operations(graph)
    number = np.full(graph.num_operations, -1, np.int32)
    number[kept] = np.arange(len(kept), dtype=np.int32)

    given = np.zeros(graph.num_operations, bool)
    given[graph.tensor_producer[graph.fed]] = True
    compute_secs = np.where(given[kept, None], 0.0, costs.compute_secs[kept])
    compute_secs = np.where(legal[groups[kept]], compute_secs, np.inf)

    readers: dict[int, list[int]] = {}
    for tensor, reader in zip(
        graph.edge_tensor.tolist(), number[graph.edge_consumer].tolist(), strict=True
    ):
        producer = number[graph.tensor_producer[tensor]]
        if 0 <= producer < reader and not graph.fed[tensor]:
            readers.setdefault(tensor, []).append(reader)
    memory = compute_graph_memory(graph, groups, number, readers, costs.tensor_bytes)
    sizes = np.maximum(costs.tensor_bytes, memory.local_bytes)
    tensors = sorted(
        (
            tensor
            for tensor in range(len(graph.tensor_dtypes))
            if number[graph.tensor_producer[tensor]] >= 0
            and (memory.readers.get(tensor) or memory.local_bytes[tensor] > 0)
        ),
        key=lambda tensor: (number[graph.tensor_producer[tensor]], tensor),
    )
    consumers = [sorted(set(memory.readers.get(tensor, ()))) for tensor in tensors]
    control = number[graph.control_edges].reshape(-1, 2)
    control = control[(control[:, 0] >= 0) & (control[:, 1] > control[:, 0])]
    devices = _build_devices(machine)
    if costs.fixed_secs is not None:
        of_steps = np.where(np.isfinite(compute_secs), costs.fixed_secs[kept], 0.0)
        of_steps[given[kept]] = 0.0
        devices = tuple(
            dataclasses.replace(device, fixed_secs=float(secs))
            for device, secs in zip(devices, of_steps.sum(axis=0), strict=True)
        )
    return PlacementProblem(
        devices=devices,
        links=_check_links(machine),
        operation_names=tuple(graph.names[i] for i in kept.tolist()),
        compute_secs=compute_secs,
        resident_bytes=memory.resident_bytes[kept],
        temp_bytes=costs.temp_bytes[kept],
        groups=groups[kept].astype(np.int32),
        tensor_producers=number[graph.tensor_producer[tensors]],
        tensor_bytes=sizes[tensors],
        consumer_start=np.cumsum([0, *map(len, consumers)], dtype=np.int32),
        consumers=np.array([i for each in consumers for i in each], np.int32),
        control_edges=np.unique(control, axis=0).astype(np.int32),
        local_bytes=memory.local_bytes[tensors],
        coarse_groups=None if coarse_groups is None else coarse_groups[kept],
        layers=None if layers is None else layers[kept],
        operation_types=tuple(graph.type_names[i] for i in graph.types[kept].tolist()),
        batch_size=find_batch_size(graph),
        graph_name=name,
        notes=tuple(filter(None, [describe_network(machine.spec)])),
        tensor_shapes=tuple(graph.tensor_shapes[tensor] or () for tensor in tensors),
    )


def _build_devices(machine: Machine) -> tuple[ProblemDevice, ...]:
    devices = []
    for device in machine.devices:
        if device.memory_bytes is None:
            raise MachineError(f"it is not known how much memory {device.name} has")
        kind = device.model or device.type
        if device.type == "GPU":
            memory_bytes = compute_plan_bytes(_find_managed_bytes(machine, device))
            in_stream = bool(device.model) and machine.find_class(device).copies_in_stream
            devices.append(
                ProblemDevice(
                    device.name,
                    kind,
                    memory_bytes,
                    is_asynchronous=True,
                    copies_in_stream=in_stream,
                )
            )
            continue
        slots = machine.find_class(device).slots if device.model else 1
        devices.append(
            ProblemDevice(
                device.name,
                kind,
                device.memory_bytes,
                slots,
                device.transfer_share or 0.0,
                device.transfer_overhead_secs or 0.0,
            )
        )
    return tuple(devices)


def _find_managed_bytes(machine: Machine, device: Device) -> int:
    assert device.memory_bytes is not None
    # For a real device, TensorFlow itself reports the memory that it manages.
    return (
        device.memory_bytes
        if machine.backend.is_timed
        else compute_usable_bytes(device.memory_bytes)
    )


def _check_links(machine: Machine) -> tuple[Link, ...]:
    if len(machine.devices) > 1 and not machine.links:
        raise MachineError(f"the links of {machine.spec} have not been measured")
    return machine.links
