"""The choice of tensors of a graph that wait on the CPU, so that a placement fits."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from graph_passes.host_copies import HANDLE_TYPES, HostCopy, find_copyable
from graph_passes.op_graph import OpGraph
from tf_placer.costs.graph_memory import MEMORY_SHARERS
from tf_placer.problem.accelerators import is_gpu
from tf_placer.problem.placement_problem import PlacementProblem
from tf_placer.simulation.host_offload import HostOffload, Movable, offload_to_host

__all__ = ["choose_host_copies"]


def choose_host_copies(
    graph: OpGraph, problem: PlacementProblem, placement: np.ndarray
) -> tuple[HostOffload, list[HostCopy]] | None:
    """Chooses tensors that leave over-full GPUs, and come back before their later readers.

    Operations with state, handles, and what follows control flow are left alone.

    Args:
        graph: the graph, with the operations of the step marked as needed.
        problem: the placement problem of the graph.
        placement: int32 [num_groups], a legal placement.

    Returns:
        The simulated step; and the copies, none if the placement fits by itself. None if it does
        not fit in this way.
    """
    chooser, paths = _Chooser(graph, problem), _Paths(graph)
    found = offload_to_host(problem, placement, chooser.find_movable())
    if found is None:
        return None
    host = next(device.name for device in problem.devices if not is_gpu(device))
    copies: list[HostCopy] = []
    for move in found.moves:
        trigger = problem.operation_names[move.trigger]
        gates = tuple(problem.operation_names[gate] for gate in move.gates)
        readers: dict[int, list[str]] = {}
        for reader in move.readers:
            name = problem.operation_names[reader]
            for tensor in chooser.find_inputs(reader, move.tensor):
                maker = graph.names[graph.tensor_producer[tensor]]
                # An input that is perhaps not in the memory may be made after a gate.
                if paths.add([(maker, gate) for gate in gates] + [(trigger, name)]):
                    readers.setdefault(tensor, []).append(name)
        copies += [
            HostCopy(chooser.name_tensor(tensor), tuple(names), gates, trigger, host)
            for tensor, names in readers.items()
        ]
    return found, copies


class _Paths:
    """The paths of a graph, with the edges that copies add."""

    def __init__(self, graph: OpGraph) -> None:
        self._graph = graph
        self._after: list[list[int]] = [[] for _ in graph.names]
        for before, after in zip(graph.edge_producer, graph.edge_consumer, strict=True):
            self._after[before].append(int(after))
        for before, after in graph.control_edges.tolist():
            self._after[before].append(after)

    def add(self, edges: Sequence[tuple[str, str]]) -> bool:
        """Adds edges between operations, unless one would close a cycle; tells whether it did."""
        index = self._graph.index
        numbered = [(index[before], index[after]) for before, after in edges]
        if any(self._has_path(after, before) for before, after in numbered):
            return False
        for before, after in numbered:
            self._after[before].append(after)
        return True

    def _has_path(self, begin: int, end: int) -> bool:
        seen, stack = {begin}, [begin]
        while stack:
            for operation in self._after[stack.pop()]:
                if operation == end:
                    return True
                if operation not in seen:
                    seen.add(operation)
                    stack.append(operation)
        return begin == end


class _Chooser:
    """The tensors of a graph that the tensors of its problem stand for."""

    def __init__(self, graph: OpGraph, problem: PlacementProblem) -> None:
        self._graph, self._problem = graph, problem
        self._operations = [graph.index[name] for name in problem.operation_names]
        self._copyable = find_copyable(graph)
        self._copyable[graph.tensor_producer[graph.fed]] = False
        self._shares = graph.has_type(MEMORY_SHARERS)

    def find_movable(self) -> Movable:
        """Finds the tensors that may move, and the operations that may trigger their ways back."""
        problem = self._problem
        triggers = self._copyable[self._operations]
        counts = np.bincount(problem.tensor_producers, minlength=problem.num_operations)
        # A reader of one of several outputs is hard to tell from that of another.
        tensors = triggers[problem.tensor_producers] & (counts[problem.tensor_producers] == 1)
        for tensor in np.flatnonzero(tensors).tolist():
            first, end = problem.consumer_start[tensor : tensor + 2]
            readers = problem.consumers[first:end]
            tensors[tensor] = triggers[readers].all() and all(
                self.find_inputs(reader, tensor) for reader in readers.tolist()
            )
        return Movable(tensors, triggers)

    def find_inputs(self, reader: int, tensor: int) -> list[int]:
        """Finds the inputs of an operation that are in the memory of a tensor of the problem.

        Returns:
            Tensors of the graph; none if one of them cannot be copied.
        """
        maker = self._operations[self._problem.tensor_producers[tensor]]
        inputs = dict.fromkeys(self._graph.input_tensors[self._operations[reader]])
        found = [each for each in inputs if self._is_in_memory(each, maker)]
        makers = self._graph.tensor_producer[found]
        is_handle = [int(self._graph.tensor_dtypes[each]) in HANDLE_TYPES for each in found]
        return found if self._copyable[makers].all() and not any(is_handle) else []

    def name_tensor(self, tensor: int) -> str:
        """Names a tensor of the graph."""
        maker = int(self._graph.tensor_producer[tensor])
        return f"{self._graph.names[maker]}:{tensor - int(self._graph.output_start[maker])}"

    def _is_in_memory(self, tensor: int, maker: int) -> bool:
        """Tells whether a tensor is an output of an operation, or may share memory with one."""
        seen: set[int] = set()
        stack = [int(self._graph.tensor_producer[tensor])]
        while stack:
            operation = stack.pop()
            if operation == maker:
                return True
            if self._shares[operation] and operation not in seen:
                seen.add(operation)
                stack += self._graph.producers[operation]
        return False
