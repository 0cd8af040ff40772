"""A columnar view of a GraphDef: operations, tensors and edges as arrays."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import re
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import tensorflow as tf

from graph_passes import graph_def_reader as reader
from graph_passes.annotate import DropDanglingColocation
from graph_passes.errors import GraphError, StepError
from graph_passes.functions import check_calls_end
from graph_passes.tensors import TensorListElement, read_tensors
from graph_passes.util.garbage_collection import pause_garbage_collection
from graph_passes.util.messages import quote
from graph_passes.util.suggestions import suggest

__all__ = ["OpGraph"]

_PORT = re.compile("[0-9]{1,9}")


@dataclasses.dataclass(frozen=True, eq=False)
class OpGraph:
    """The operations, tensors and edges of a graph in columns, in the order of its GraphDef.

    Tensors are numbered operation by operation: operation i produces the tensors
    `output_start[i]` to `output_start[i + 1] - 1`.

    Attributes:
        graph_def: the original graph, never changed.
        names: the name of every operation.
        type_names: the operation types in the graph, sorted.
        types: int32 [num_operations], index into `type_names`.
        output_start: int32 [num_operations + 1], see above.
        tensor_dtypes: int32 [num_tensors], DataType of each tensor, references as their base type.
        tensor_shapes: per tensor its shape, -1 for an unknown dimension; None for unknown rank.
        tensor_bytes: int64 [num_tensors], -1 where the shape is not known or the type has no size.
        tensor_list_elements: the known elements of TensorLists, by the number of the list's tensor.
        edge_tensor: int32 [num_edges], the tensor that a data edge carries.
        edge_consumer: int32 [num_edges], the operation that reads it; edges are sorted by
            consumer, then by input number.
        edge_is_handle: bool [num_edges], true where the tensor is a reference, a resource or a
            variant: a handle to state, for which producer and consumer must share a device.
        control_edges: int32 [num_control_edges, 2], (operation before, operation after).
        order: int32 [num_operations], the operations in a topological order that follows each path
            to its end before it starts the next; edges that close a loop are ignored.
        needed: bool [num_operations], true where the step runs the operation.
        fetched: bool [num_operations], true where the step returns a tensor of the operation.
        fed: bool [num_tensors], true where the step is fed the tensor.
    """

    graph_def: tf.compat.v1.GraphDef
    names: tuple[str, ...]
    type_names: tuple[str, ...]
    types: np.ndarray
    output_start: np.ndarray
    tensor_dtypes: np.ndarray
    tensor_shapes: tuple[tuple[int, ...] | None, ...]
    tensor_bytes: np.ndarray
    tensor_list_elements: Mapping[int, TensorListElement]
    edge_tensor: np.ndarray
    edge_consumer: np.ndarray
    edge_is_handle: np.ndarray
    control_edges: np.ndarray
    order: np.ndarray
    needed: np.ndarray
    fetched: np.ndarray
    fed: np.ndarray

    @classmethod
    @pause_garbage_collection()
    def from_graph_def(
        cls,
        graph_def: tf.compat.v1.GraphDef,
        fetches: Sequence[str] = (),
        feeds: Sequence[str] | Mapping[str, np.ndarray] = (),
    ) -> OpGraph:
        """Reads a graph, in time and memory linear in its size.

        Args:
            graph_def: the graph, with its function library.
            fetches: the names of the operations ("train") and tensors ("loss:0") that the step
                fetches; without any, every operation counts as needed.
            feeds: the names of the fed tensors; or their values by name, from which the shapes of
                other tensors follow. With values, placeholders that are not fed have their default.

        Returns:
            The graph in columns.

        Raises:
            GraphError: the graph is empty, has two operations of one name, an unknown operation
                type, an invalid device, infinite recursion, a missing input or a cycle, is rejected
                by TensorFlow, or lacks a fetch or feed.
        """
        if not graph_def.node:
            raise GraphError("the graph is empty: it has no operations")
        names = tuple(node.name for node in graph_def.node)
        index = {name: i for i, name in enumerate(names)}
        if len(index) != len(names):
            duplicate = next(name for i, name in enumerate(names) if index[name] != i)
            raise GraphError(f"the graph has two operations called {duplicate!r}")
        reader.check_operation_types(graph_def)
        reader.check_devices(graph_def)
        check_calls_end(graph_def)
        edges = reader.read_edges(graph_def, index)
        order = reader.order_operations(graph_def, edges)
        try:
            tensors = read_tensors(graph_def, feeds if isinstance(feeds, Mapping) else None)
        except GraphError:
            if not isinstance(feeds, Mapping) or not feeds:
                raise
            # The values may be invalid only outside the step: retry with the step's operations.
            return cls.from_graph_def(graph_def, fetches, list(feeds)).with_fed_values(feeds)
        edge_tensor = tensors.output_start[edges.producers] + edges.ports
        op_types = [node.op for node in graph_def.node]
        type_names = tuple(sorted(set(op_types)))
        number = {name: i for i, name in enumerate(type_names)}
        graph = cls(
            graph_def=graph_def,
            names=names,
            type_names=type_names,
            types=np.array([number[op_type] for op_type in op_types], np.int32),
            output_start=tensors.output_start,
            tensor_dtypes=tensors.dtypes,
            tensor_shapes=tensors.shapes,
            tensor_bytes=tensors.bytes,
            tensor_list_elements=tensors.elements,
            edge_tensor=edge_tensor,
            edge_consumer=edges.consumers,
            edge_is_handle=reader.find_handle_edges(
                graph_def, tensors, edge_tensor, edges.consumers
            ),
            control_edges=edges.control,
            order=order,
            needed=np.ones(len(names), bool),
            fetched=np.zeros(len(names), bool),
            fed=np.zeros(len(tensors.dtypes), bool),
        )
        return graph.restrict(fetches, tuple(feeds)) if fetches or feeds else graph

    @property
    def num_operations(self) -> int:
        """The number of operations."""
        return len(self.names)

    @functools.cached_property
    def index(self) -> dict[str, int]:
        """The number of each operation, by name."""
        return {name: i for i, name in enumerate(self.names)}

    @functools.cached_property
    def tensor_producer(self) -> np.ndarray:
        """int32 [num_tensors], the operation that produces each tensor."""
        counts = np.diff(self.output_start)
        return np.repeat(np.arange(self.num_operations, dtype=np.int32), counts)

    @functools.cached_property
    def edge_producer(self) -> np.ndarray:
        """int32 [num_edges], the operation at the start of each data edge."""
        return self.tensor_producer[self.edge_tensor]

    @functools.cached_property
    def position(self) -> np.ndarray:
        """int32 [num_operations], the position of each operation in `order`."""
        position = np.empty(self.num_operations, np.int32)
        position[self.order] = np.arange(self.num_operations, dtype=np.int32)
        return position

    @functools.cached_property
    def consumers(self) -> list[list[int]]:
        """The operations that read a tensor of each operation, without repeats."""
        lists: list[list[int]] = [[] for _ in self.names]
        pairs = zip(self.edge_producer.tolist(), self.edge_consumer.tolist(), strict=True)
        for producer, consumer in pairs:
            # Edges are sorted by consumer, so repeats are adjacent.
            if not lists[producer] or lists[producer][-1] != consumer:
                lists[producer].append(consumer)
        return lists

    @functools.cached_property
    def input_tensors(self) -> list[list[int]]:
        """The tensors that each operation reads, in the order of its inputs."""
        return self._split_by_consumer(self.edge_tensor)

    @functools.cached_property
    def producers(self) -> list[list[int]]:
        """The operations that each operation reads from, in the order of its inputs."""
        return self._split_by_consumer(self.edge_producer)

    def _split_by_consumer(self, edge_values: np.ndarray) -> list[list[int]]:
        """Splits values of data edges by consumer."""
        start = np.searchsorted(self.edge_consumer, np.arange(self.num_operations + 1)).tolist()
        values = edge_values.tolist()
        return [values[first:end] for first, end in itertools.pairwise(start)]

    def type_of(self, operation: int) -> str:
        """Returns the type of an operation, such as "MatMul"."""
        return self.type_names[self.types[operation]]

    def has_type(self, type_names: Iterable[str]) -> np.ndarray:
        """Finds the operations of any of these types: bool [num_operations]."""
        wanted = set(type_names)
        return np.array([name in wanted for name in self.type_names], bool)[self.types]

    def tensor_index(self, name: str) -> int:
        """Finds the number of a tensor by its name, "operation:port" or, for port 0, "operation".

        Raises:
            GraphError: there is no such tensor.
        """
        operation, colon, port = name.partition(":")
        i = self.index.get(operation)
        if i is None or not _PORT.fullmatch(port if colon else "0"):
            near = suggest(operation, self.index) if i is None else ""
            raise StepError(f"the graph has no tensor {quote(name)}{near}")
        tensor = int(self.output_start[i]) + int(port or 0)
        if tensor >= self.output_start[i + 1]:
            raise StepError(f"the graph has no tensor {quote(name)}")
        return tensor

    def with_fed_values(self, feeds: Mapping[str, np.ndarray]) -> OpGraph:
        """Copies the graph with the shapes that follow from fed values.

        Shapes outside the step stay the same if the values are invalid there.

        Args:
            feeds: the values, by tensor name.

        Raises:
            GraphError: TensorFlow rejects the step with these values.
        """
        try:
            tensors = read_tensors(self.graph_def, feeds)
        except GraphError:
            if self.needed.all():
                raise
            return self._infer_step_shapes(feeds)
        return dataclasses.replace(
            self,
            tensor_shapes=tensors.shapes,
            tensor_bytes=tensors.bytes,
            tensor_list_elements=tensors.elements,
        )

    def _infer_step_shapes(self, feeds: Mapping[str, np.ndarray]) -> OpGraph:
        fetched = [self.names[i] for i in np.flatnonzero(self.needed)]
        # The import needs the producers of fed tensors, too.
        step_operations = np.flatnonzero(self.restrict(fetched).needed)
        part = tf.compat.v1.GraphDef(
            versions=self.graph_def.versions, library=self.graph_def.library
        )
        part.node.extend(self.graph_def.node[i] for i in step_operations)
        part = DropDanglingColocation().run(part)
        names = {node.name for node in part.node}
        read = read_tensors(part, {n: v for n, v in feeds.items() if n.partition(":")[0] in names})
        shapes, sizes = list(self.tensor_shapes), self.tensor_bytes.copy()
        elements = dict(self.tensor_list_elements)
        for number, i in enumerate(step_operations):
            for port in range(self.output_start[i + 1] - self.output_start[i]):
                here, there = (
                    int(self.output_start[i]) + port,
                    int(read.output_start[number]) + port,
                )
                shapes[here], sizes[here] = read.shapes[there], read.bytes[there]
                if there in read.elements:
                    elements[here] = read.elements[there]
        return dataclasses.replace(
            self, tensor_shapes=tuple(shapes), tensor_bytes=sizes, tensor_list_elements=elements
        )

    def restrict(self, fetches: Sequence[str], feeds: Sequence[str] = ()) -> OpGraph:
        """Copies the graph, with the operations that a step needs marked as `needed`.

        Args:
            fetches: as in `from_graph_def`.
            feeds: the names of the fed tensors.

        Raises:
            GraphError: a fetch or a feed is not in the graph.
        """
        fed = np.zeros(len(self.tensor_dtypes), bool)
        for name in feeds:
            fed[self.tensor_index(name)] = True
        needed = np.full(self.num_operations, not fetches)
        fetched = np.zeros(self.num_operations, bool)
        stack = []
        for name in fetches:
            operation, colon, _ = name.partition(":")
            if operation not in self.index:
                near = suggest(operation, self.index)
                raise StepError(f"fetch {quote(name)} is not in the graph{near}")
            if colon and fed[self.tensor_index(name)]:
                continue
            stack.append(self.index[operation])
            fetched[self.index[operation]] |= bool(colon)
        live = ~fed[self.edge_tensor]
        before = np.concatenate([self.edge_producer[live], self.control_edges[:, 0]])
        after = np.concatenate([self.edge_consumer[live], self.control_edges[:, 1]])
        by_consumer = np.argsort(after, kind="stable")
        parents = before[by_consumer].tolist()
        start = np.searchsorted(after[by_consumer], np.arange(self.num_operations + 1)).tolist()
        found = set(stack)
        while stack:
            i = stack.pop()
            for parent in parents[start[i] : start[i + 1]]:
                if parent not in found:
                    found.add(parent)
                    stack.append(parent)
        needed[list(found)] = True
        return dataclasses.replace(self, needed=needed, fetched=fetched, fed=fed)
