"""Tests of the memory of graphs against counts by hand and against a count of buffers."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from graph_passes.op_graph import OpGraph
from graph_passes.pipeline import group_operations
from tests import graph_parts as parts
from tests import graphs
from tf_placer.costs.graph_memory import (
    GraphMemory,
    compute_graph_memory,
    compute_variables_bytes,
)

v1 = tf.compat.v1


def _build_copy(x: tf.Tensor, name: str) -> tf.Tensor:
    """Builds an operation that never reuses the buffer of its input."""
    return tf.raw_ops.DeepCopy(x=x, name=name)


@dataclasses.dataclass(frozen=True)
class _Counted:
    """The memory of a graph by the names of operations and tensors."""

    graph: OpGraph
    places: Sequence[str]
    memory: GraphMemory

    def resident(self, name: str) -> int:
        return int(self.memory.resident_bytes[self.graph.index[name]])

    def size(self, name: str) -> int:
        return int(self.memory.local_bytes[self.graph.tensor_index(name)])

    def readers(self, name: str) -> set[str]:
        """Lists the operations before which a tensor must not be freed."""
        places = self.memory.readers.get(self.graph.tensor_index(name), ())
        return {self.places[place] for place in places}

    def total(self) -> int:
        """Computes the memory of all operations that a step needs."""
        needed = self.graph.needed
        sizes = self.memory.local_bytes[needed[self.graph.tensor_producer]]
        return int(self.memory.resident_bytes[needed].sum() + sizes.sum())


def _count(op_graph: OpGraph, groups: np.ndarray) -> _Counted:
    order = [i for i in op_graph.order.tolist() if op_graph.needed[i]]
    number = np.full(op_graph.num_operations, -1, np.int32)
    number[order] = np.arange(len(order))
    readers = collections.defaultdict(list)
    for tensor, reader in zip(op_graph.edge_tensor, op_graph.edge_consumer, strict=True):
        if 0 <= number[op_graph.tensor_producer[tensor]] < number[reader]:
            readers[int(tensor)].append(int(number[reader]))
    given = {tensor: tuple(places) for tensor, places in readers.items()}
    memory = compute_graph_memory(op_graph, groups, number, given, op_graph.tensor_bytes)
    return _Counted(op_graph, [op_graph.names[i] for i in order], memory)


def _count_apart(graph: tf.Graph, fetches: Sequence[str], apart: Sequence[str]) -> _Counted:
    """Counts the memory when the operations in these name scopes are a separate group."""
    op_graph = OpGraph.from_graph_def(graph.as_graph_def(), fetches)
    groups = [any(f"{name}/".startswith(f"{a}/") for a in apart) for name in op_graph.names]
    return _count(op_graph, np.array(groups, np.int32))


class VariableTest(tf.test.TestCase):
    def graph(self, *, use_resource: bool) -> tuple[tf.Graph, str]:
        """Builds a variable of 24 bytes, its consumers `far` and `near`, and its update."""
        with tf.Graph().as_default() as graph:
            v = v1.get_variable("v", [2, 3], use_resource=use_resource)
            value = v.read_value() if use_resource else v.value()
            step = tf.negative(tf.exp(value, name="far") + tf.abs(value, name="near"), name="step")
            tf.group(v.assign_add(step), name="train")
        return graph, value.name

    def test_a_variable_is_resident_and_its_read_takes_no_memory(self):
        for use_resource in (False, True):
            graph, read = self.graph(use_resource=use_resource)
            counted = _count_apart(graph, ["train"], [])
            self.assertEqual(counted.resident("v"), 24)
            self.assertEqual(counted.size("v"), 0)
            self.assertEqual(counted.size(read), 0)
            self.assertEqual(counted.size("far"), 24)
            # v, far and near; their sum and its negative reuse one of these buffers.
            self.assertEqual(counted.total(), 3 * 24)

    def test_a_read_of_another_group_takes_no_memory(self):
        for use_resource in (False, True):
            graph, read = self.graph(use_resource=use_resource)
            counted = _count_apart(graph, ["train"], ["far"])
            self.assertEqual(counted.resident("v"), 24)
            self.assertEqual(counted.size(read), 0)
            self.assertEqual(counted.total(), 3 * 24)

    def test_several_reads_take_no_memory(self):
        with tf.Graph().as_default() as graph:
            v = v1.get_variable("v", [6], use_resource=True)
            reads = []
            for i, place in enumerate(("far", "near", "far")):
                with tf.control_dependencies(reads[-1:]):
                    reads.append(tf.raw_ops.ReadVariableOp(resource=v.handle, dtype=tf.float32))
                tf.square(reads[-1], name=f"{place}/{i}")
        counted = _count_apart(graph, ["far/0", "near/1", "far/2"], ["far"])
        self.assertEqual([counted.size(read.name) for read in reads], [0, 0, 0])
        self.assertEqual(counted.resident("v"), 24)

    def test_aliases_of_a_read_take_no_memory(self):
        with tf.Graph().as_default() as graph:
            v = v1.get_variable("v", [6], use_resource=True)
            tf.exp(tf.reshape(tf.identity(v.read_value()), [2, 3], name="shaped"), name="far")
        counted = _count_apart(graph, ["far"], ["far"])
        self.assertEqual(counted.resident("v"), 24)
        self.assertEqual(counted.size("shaped"), 0)
        # The variable, the result and the two numbers of the new shape.
        self.assertEqual(counted.total(), 24 + 24 + 8)

    def test_rmsprop_holds_its_slots_and_no_outputs(self):
        for use_resource in (False, True):
            with tf.Graph().as_default() as graph:
                v = v1.get_variable("v", [6], use_resource=use_resource)
                trainer = v1.train.RMSPropOptimizer(0.1, momentum=0.9)
                gradient = v1.placeholder(tf.float32, [6], name="gradient")
                trainer.apply_gradients([(gradient, v)], name="train")
            counted = _count_apart(graph, ["train"], [])
            variables = ("v", "v/RMSProp", "v/RMSProp_1")
            self.assertEqual([counted.resident(name) for name in variables], [24, 24, 24])
            # The variables, the gradient, and the constants rate, decay, momentum and epsilon.
            self.assertEqual(counted.total(), 3 * 24 + 24 + 4 * 4)

    def test_an_assigned_reference_takes_no_memory(self):
        with tf.Graph().as_default() as graph:
            v = v1.get_variable("v", [6], use_resource=False)
            assigned = v1.assign(v, v1.placeholder(tf.float32, [6], name="x"), name="assigned")
            tf.exp(assigned, name="near")
            tf.exp(assigned, name="far")
        self.assertEqual(_count_apart(graph, ["near"], []).total(), 3 * 24)
        counted = _count_apart(graph, ["near", "far"], ["far"])
        self.assertEqual(counted.size("assigned"), 0)
        self.assertEqual(counted.resident("v"), 24)
        self.assertEqual(counted.total(), 4 * 24)

    def test_variables_of_strings_or_of_unknown_shape(self):
        with tf.Graph().as_default() as graph:
            v1.get_variable("words", initializer=tf.constant(["a", "b"]), use_resource=True)
            shape = tf.TensorShape([None, 3])
            tf.raw_ops.VarHandleOp(dtype=tf.float64, shape=shape, name="rows")
            tf.raw_ops.VarHandleOp(dtype=tf.float64, shape=None, name="any")
        counted = _count_apart(graph, ["words", "rows", "any"], [])
        self.assertEqual([counted.resident(name) for name in ("words", "rows", "any")], [0, 24, 8])


class TensorTest(tf.test.TestCase):
    def test_sums_the_variables_of_a_step_and_counts_two_handles_of_one_once(self):
        for use_resource in (False, True):
            with tf.Graph().as_default() as graph:
                v, w, _ = (
                    v1.get_variable(name, shape, use_resource=use_resource)
                    for name, shape in (("v", [2, 3]), ("w", [4]), ("idle", [100]))
                )
                values = [v.read_value(), w.read_value()]
                handle = tf.raw_ops.VarHandleOp(dtype=tf.float32, shape=[2, 3], shared_name="v")
                if use_resource:
                    values.append(tf.raw_ops.ReadVariableOp(resource=handle, dtype=tf.float32))
                tf.tuple(values, name="step")
            names = [f"step/control_dependency{end}" for end in ("", "_1", "_2")]
            op_graph = OpGraph.from_graph_def(graph.as_graph_def(), names[: len(values)])
            self.assertEqual(compute_variables_bytes(op_graph), 24 + 16)

    def test_counts_aliases_in_one_group_once(self):
        with tf.Graph().as_default() as graph:
            x = v1.placeholder(tf.float32, [6], name="x")
            made = tf.exp(x, name="made")
            shaped = tf.stop_gradient(tf.expand_dims(tf.identity(made, name="seen"), 0))
            _build_copy(shaped, name="last")
        counted = _count_apart(graph, ["last"], [])
        self.assertEqual(counted.size("made"), 24)
        self.assertEqual(counted.size("seen"), 0)
        self.assertEqual(counted.size(shaped.name), 0)
        self.assertIn("last", counted.readers("made"))
        # x, made, last and the number of the dimension.
        self.assertEqual(counted.total(), 3 * 24 + 4)

    def test_counts_the_bytes_at_the_alias_with_consumers_in_other_groups(self):
        with tf.Graph().as_default() as graph:
            x = v1.placeholder(tf.float32, [6], name="x")
            seen = tf.identity(tf.exp(x, name="made"), name="seen")
            _build_copy(tf.stop_gradient(seen, name="sent"), name="far")
        counted = _count_apart(graph, ["far"], ["far"])
        self.assertEqual([counted.size(name) for name in ("made", "seen", "sent")], [0, 0, 24])
        self.assertEqual(counted.readers("made"), {"seen"})

    def test_counts_a_tensor_with_local_consumers_and_a_sent_alias_twice(self):
        with tf.Graph().as_default() as graph:
            made = tf.exp(v1.placeholder(tf.float32, [6], name="x"), name="made")
            _build_copy(tf.identity(made, name="seen"), name="far")
            _build_copy(made, name="near")
        counted = _count_apart(graph, ["far", "near"], ["far"])
        self.assertEqual([counted.size(name) for name in ("made", "seen")], [24, 24])

    def test_consumers_of_aliases_hold_a_sent_tensor(self):
        with tf.Graph().as_default() as graph:
            made = tf.exp(v1.placeholder(tf.float32, [6], name="x"), name="made")
            _build_copy(made, name="far")
            _build_copy(tf.identity(made, name="seen"), name="near")
        counted = _count_apart(graph, ["far", "near"], ["far"])
        self.assertEqual([counted.size(name) for name in ("made", "seen")], [24, 0])
        self.assertEqual(counted.readers("made"), {"far", "seen", "near"})

    def test_reuses_the_buffer_of_an_input_without_other_consumers(self):
        with tf.Graph().as_default() as graph:
            x = v1.placeholder(tf.float32, [6], name="x")
            made = tf.tanh(tf.exp(x, name="made"), name="over")
            tf.add(_build_copy(tf.identity(made), name="last"), tf.reduce_sum(x), name="end")
        counted = _count_apart(graph, ["end"], [])
        self.assertEqual([counted.size(n) for n in ("x", "made", "over")], [24, 24, 0])
        self.assertEqual([counted.size(n) for n in ("last", "end")], [24, 0])

    def test_does_not_reuse_the_buffer_of_an_input_with_other_consumers(self):
        with tf.Graph().as_default() as graph:
            made = _build_copy(v1.placeholder(tf.float32, [6], name="x"), name="made")
            seen = tf.identity(made, name="seen")
            tf.add_n([tf.tanh(seen, name="over"), tf.exp(made, name="near")], name="end")
        counted = _count_apart(graph, ["end"], [])
        names = ("made", "seen", "over", "near", "end")
        self.assertEqual([counted.size(name) for name in names], [24, 0, 24, 24, 0])

    def test_an_alias_in_another_group_has_its_own_bytes(self):
        with tf.Graph().as_default() as graph:
            made = tf.exp(v1.placeholder(tf.float32, [6], name="x"), name="made")
            _build_copy(tf.identity(made, name="far/seen"), name="far/last")
        counted = _count_apart(graph, ["far/last"], ["far"])
        self.assertEqual([counted.size(name) for name in ("made", "far/seen")], [24, 24])

    def test_constants_are_resident(self):
        with tf.Graph().as_default() as graph:
            for name in ("stays", "goes", "both"):
                tf.constant(np.arange(6.0), name=name)
            value = graph.get_tensor_by_name
            _build_copy(value("stays:0"), name="near")
            _build_copy(value("goes:0"), name="far/1")
            _build_copy(tf.identity(value("both:0"), name="seen"), name="far/2")
        counted = _count_apart(graph, ["near", "far/1", "far/2"], ["far"])
        names = ("stays", "goes", "both")
        self.assertEqual([counted.resident(name) for name in names], [48, 48, 48])
        self.assertEqual([counted.size(name) for name in (*names, "seen")], [0, 0, 0, 0])

    def test_a_switch_takes_no_memory(self):
        with parts.new_graph() as graph, parts.control_flow(v2=False):
            x = tf.exp(v1.placeholder(tf.float32, [6], name="x"), name="made")
            taken = v1.placeholder(tf.bool, [], name="taken")
            merged = v1.cond(
                taken, lambda: _build_copy(x, name="a"), lambda: _build_copy(x, name="b")
            )
        counted = _count_apart(graph, [merged.name], [])
        switches = [name for name in counted.places if "Switch" in name and "switch" not in name]
        self.assertNotEmpty(switches)
        for name in switches:
            self.assertEqual([counted.size(f"{name}:{port}") for port in (0, 1)], [0, 0])
        self.assertContainsSubset(["cond/a", "cond/b"], counted.readers("made"))


# Operations whose first output is the buffer of their first input.
_ALIASING = {
    *("Identity", "ReadVariableOp", "Reshape", "ExpandDims", "Squeeze", "StopGradient"),
    *("PreventGradient", "Snapshot", "CheckNumerics", "Switch", "Enter", "Exit", "RefEnter"),
    *("Assign", "AssignAdd", "AssignSub", "RefSwitch", "RefExit"),
    *("ApplyAdam", "ApplyMomentum", "ApplyRMSProp", "ApplyGradientDescent"),
}


# Operations that reuse the buffer of an input without other consumers.
_IN_PLACE = {
    *(
        "Abs",
        "Add",
        "AddN",
        "AddV2",
        "BiasAdd",
        "DivNoNan",
        "Exp",
        "FloorDiv",
        "FloorMod",
        "Maximum",
        "Minimum",
        "Mul",
    ),
    *("Neg", "Pow", "RealDiv", "Relu", "ReluGrad", "Rsqrt", "RsqrtGrad", "Sigmoid"),
    *("SigmoidGrad", "Softmax", "Sqrt", "Square", "SquaredDifference", "Sub", "Tanh", "TanhGrad"),
}
_KEPT = {"VarHandleOp", "VariableV2", "Const", "Placeholder", "PlaceholderWithDefault"}


def _count_buffers(op_graph: OpGraph, needed: Sequence[str]) -> Mapping[str, int]:
    """Counts the bytes of each buffer in a tf.Graph, by the tensor that allocates it.

    Args:
        op_graph: the graph.
        needed: the names of the operations that run, in topological order.
    """
    with tf.Graph().as_default() as graph:
        tf.import_graph_def(op_graph.graph_def, name="")
    place = {name: i for i, name in enumerate(needed)}
    sizes: dict[str, int] = collections.defaultdict(int)
    names: dict[str, list[tf.Tensor]] = {}
    buffer: dict[str, str] = {}

    def size(tensor: tf.Tensor) -> int:
        return max(0, int(op_graph.tensor_bytes[op_graph.tensor_index(tensor.name)]))

    def readers(tensor: tf.Tensor) -> set[str]:
        after = place[tensor.op.name]
        return {op.name for op in tensor.consumers() if place.get(op.name, -1) > after}

    def may_overwrite(op: tf.Operation, tensor: tf.Tensor) -> bool:
        first = buffer[tensor.name]
        others = [name for name in names[first] if name is not tensor]
        makers = {name.op.name for name in names[first]}
        return (
            graph.get_tensor_by_name(first).op.type not in _KEPT
            and readers(tensor) == {op.name}
            and all(readers(name) <= makers for name in others)
            and size(tensor) == size(op.outputs[0])
        )

    for op in map(graph.get_operation_by_name, needed):
        inputs = [tensor for tensor in op.inputs if tensor.name in buffer]
        if op.type in _IN_PLACE:
            inputs = [tensor for tensor in inputs if may_overwrite(op, tensor)]
        elif op.type not in _ALIASING or inputs[:1] != list(op.inputs)[:1]:
            inputs = []
        for tensor in op.outputs:
            first = buffer[tensor.name] = buffer[inputs[0].name] if inputs else tensor.name
            names.setdefault(first, []).append(tensor)
            sizes[first] = max(sizes[first], size(tensor))
        if op.type in ("VarHandleOp", "VariableV2"):
            shape = tf.TensorShape(op.get_attr("shape"))
            sizes[op.outputs[0].name] = shape.num_elements() * op.get_attr("dtype").size
    return sizes


class FactoriesTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters(*graphs.FACTORIES)
    def test_counts_every_byte_once_in_one_group(self, factory):
        graph = graphs.share_graph(factory)
        op_graph = OpGraph.from_graph_def(graph.graph.as_graph_def(), graph.fetches)
        counted = _count(op_graph, np.zeros(op_graph.num_operations, np.int32))
        buffers = _count_buffers(op_graph, counted.places)
        self.assertEqual(counted.total(), sum(buffers.values()))

    @parameterized.parameters(*graphs.FACTORIES)
    def test_counts_every_byte_and_few_bytes_twice(self, factory):
        graph = graphs.share_graph(factory)
        op_graph = OpGraph.from_graph_def(graph.graph.as_graph_def(), graph.fetches)
        grouped = group_operations(op_graph)
        counted = _count(op_graph, grouped.grouping.expand_to_operations(grouped.colocation))
        total = sum(_count_buffers(op_graph, counted.places).values())
        self.assertBetween(counted.total(), total, 1.6 * total)


if __name__ == "__main__":
    tf.test.main()
