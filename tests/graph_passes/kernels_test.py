from __future__ import annotations

import collections
import itertools
import json
import runpy
import sys
from unittest import mock

import numpy as np
import tensorflow as tf
from absl.testing import parameterized
from tensorflow.core.framework import attr_value_pb2, kernel_def_pb2, types_pb2
from tensorflow.python.framework import kernels, op_def_registry

from graph_passes.kernels import KernelTable, condense, format_table, list_registered_kernels
from tests import graphs

tf1 = tf.compat.v1

# Values that no kernel lists, per kind of attribute.
_OTHER = {"type": types_pb2.DT_RESOURCE, "s": b"other", "i": 12345, "b": False}


def node_def(op_type: str, **types: int) -> tf1.NodeDef:
    node = tf1.NodeDef(name="node", op=op_type)
    for name, dtype in types.items():
        node.attr[name].type = dtype
    return node


def make_node(op_type: str, types: dict[str, str]) -> tf1.NodeDef:
    """Makes a node with types given by name."""
    return node_def(op_type, **{k: types_pb2.DataType.Value(v) for k, v in types.items()})


def accepts(kernel: kernel_def_pb2.KernelDef, node: tf1.NodeDef) -> bool:
    """Returns whether a kernel accepts a node, as TensorFlow's KernelAttrsMatch."""
    for constraint in kernel.constraint:
        allowed, value = constraint.allowed_values.list, node.attr[constraint.name]
        if value.HasField("list"):
            if any(t not in allowed.type for t in value.list.type):
                return False
        elif value.HasField("type"):
            if value.type not in allowed.type:
                return False
        elif getattr(value, value.WhichOneof("value")) not in [*allowed.s, *allowed.i, *allowed.b]:
            return False
    return True


def candidate_nodes(
    op_type: str, candidates: list[kernel_def_pb2.KernelDef], random: np.random.Generator
) -> list[tf1.NodeDef]:
    """Yields nodes with values of all constrained attributes: listed ones and another."""
    kinds = {attr.name: attr.type for attr in op_def_registry.get(op_type).attr}
    values: dict[str, list[attr_value_pb2.AttrValue]] = {}
    for name in {c.name for kernel in candidates for c in kernel.constraint}:
        listed = [c.allowed_values.list for k in candidates for c in k.constraint if c.name == name]
        kind = (
            "type"
            if "type" in kinds[name]
            else {"string": "s", "int": "i", "bool": "b"}[kinds[name]]
        )
        single = sorted({v for allowed in listed for v in getattr(allowed, kind)} | {_OTHER[kind]})
        if kinds[name].startswith("list"):
            pairs = itertools.product(single, repeat=2)
            values[name] = [
                attr_value_pb2.AttrValue(list=attr_value_pb2.AttrValue.ListValue(type=types))
                for types in [(), *pairs]
            ]
        else:
            values[name] = [attr_value_pb2.AttrValue(**{kind: v}) for v in single]
    combinations = list(itertools.product(*values.values()))
    # Operations with thousands of combinations are sampled.
    chosen = random.permutation(len(combinations))[:150]
    nodes = []
    for number in chosen:
        node = tf1.NodeDef(name="node", op=op_type)
        for name, value in zip(values, combinations[number], strict=True):
            node.attr[name].CopyFrom(value)
        nodes.append(node)
    return nodes


class RegistryTest(tf.test.TestCase, parameterized.TestCase):
    def test_table_agrees_with_registered_kernels(self):
        table = KernelTable(tf1.GraphDef())
        by_type = collections.defaultdict(list)
        for kernel in kernels.get_all_registered_kernels().kernel:
            op_def = op_def_registry.get(kernel.op)
            # Some registered kernels belong to former definitions of operations.
            known = {attr.name for attr in op_def.attr} if op_def is not None else set()
            if {c.name for c in kernel.constraint} <= known and op_def is not None:
                by_type[kernel.op].append(kernel)
        self.assertGreater(len(by_type), 1000)
        random = np.random.default_rng(0)
        list_accepted = refused = 0
        for op_type, registered in by_type.items():
            candidates = [
                kernel
                for kernel in registered
                if kernel.device_type in ("CPU", "DEFAULT") and not kernel.label
            ]
            for node in candidate_nodes(op_type, candidates, random):
                expected = any(accepts(kernel, node) for kernel in candidates)
                self.assertEqual(table.supports(node, "CPU"), expected, str(node))
                list_accepted, refused = list_accepted + expected, refused + (not expected)
        self.assertGreater(min(list_accepted, refused), 3000)

    def test_finds_kernels_of_graphs(self):
        for name, factory in graphs.FACTORIES.items():
            graph_def = factory().graph.as_graph_def()
            table = KernelTable(graph_def)
            for node in graph_def.node:
                self.assertTrue(table.supports(node, "CPU"), f"{node.name} of {name}")

    def test_missing_attributes_have_their_defaults(self):
        table = KernelTable(
            tf1.GraphDef(), {"X": {"ArgMax": [{"output_type": frozenset(["DT_INT64"])}]}}
        )
        node = node_def("ArgMax", T=types_pb2.DT_FLOAT)
        self.assertTrue(table.supports(node, "X"))
        node.attr["output_type"].type = types_pb2.DT_INT32
        self.assertFalse(table.supports(node, "X"))

    def test_attributes_of_the_caller_allow_all_types(self):
        table = KernelTable(tf1.GraphDef(), {"X": {"Neg": [{"T": frozenset(["DT_HALF"])}]}})
        node = tf1.NodeDef(name="node", op="Neg")
        node.attr["T"].placeholder = "T"
        self.assertTrue(table.supports(node, "X"))

    def test_finds_device_types_by_their_kernels(self):
        half, other = frozenset(["DT_HALF"]), frozenset(["DT_INT32"])
        neg = {"X": [{"T": half}], "Y": [{"T": half | other}], "Z": [{}]}
        table = KernelTable(
            tf1.GraphDef(), {**{name: {"Neg": found} for name, found in neg.items()}, "none": {}}
        )
        for data_type, expected in (
            (types_pb2.DT_HALF, {"X", "Y", "Z"}),
            (types_pb2.DT_INT32, {"Y", "Z"}),
            (types_pb2.DT_FLOAT, {"Z"}),
        ):
            node = node_def("Neg", T=data_type)
            self.assertEqual(table.find_device_types(node), expected)
            for device_type in table.device_types:
                self.assertEqual(table.supports(node, device_type), device_type in expected)


class GpuTableTest(tf.test.TestCase, parameterized.TestCase):
    def setUp(self):
        super().setUp()
        self.table = KernelTable(tf1.GraphDef())

    def test_device_types_are_cpu_and_gpu(self):
        self.assertEqual(self.table.device_types, ("CPU", "GPU"))

    @parameterized.parameters(
        ("MatMul", {"T": "DT_FLOAT"}),
        ("MatMul", {"T": "DT_HALF"}),
        ("Conv2D", {"T": "DT_FLOAT"}),
        ("FusedBatchNormGradV3", {"T": "DT_FLOAT", "U": "DT_FLOAT"}),
        ("ResourceApplyAdam", {"T": "DT_FLOAT"}),
        ("ApplyAdam", {"T": "DT_DOUBLE"}),
        ("VarHandleOp", {"dtype": "DT_FLOAT"}),
        ("Switch", {"T": "DT_BOOL"}),
        # Kernels for counts and shapes use host memory.
        ("AddV2", {"T": "DT_INT32"}),
        ("Shape", {"T": "DT_FLOAT", "out_type": "DT_INT32"}),
        ("TensorListReserve", {"element_dtype": "DT_FLOAT"}),
        ("NoOp", {}),
    )
    def test_gpu_supports(self, op_type, types):
        self.assertTrue(self.table.supports(make_node(op_type, types), "GPU"))

    @parameterized.parameters(
        ("MatMul", {"T": "DT_INT32"}),
        ("Conv2D", {"T": "DT_INT8"}),
        ("Const", {"dtype": "DT_STRING"}),
        ("StringJoin", {}),
        ("StringSplit", {}),
        ("Print", {}),
        ("PrintV2", {}),
        ("SaveV2", {}),
        ("PyFunc", {}),
        ("UniqueV2", {"T": "DT_STRING", "Taxis": "DT_INT64"}),
        ("LogUniformCandidateSampler", {}),
        ("QueueDequeueManyV2", {}),
        ("HashTableV2", {}),
        ("ScalarSummary", {"T": "DT_FLOAT"}),
    )
    def test_gpu_does_not_support(self, op_type, types):
        self.assertFalse(self.table.supports(make_node(op_type, types), "GPU"))

    def test_checks_string_attributes(self):
        node = node_def("GatherNd", Tparams=types_pb2.DT_FLOAT, Tindices=types_pb2.DT_INT32)
        node.attr["bad_indices_policy"].s = b"IGNORE"
        self.assertTrue(self.table.supports(node, "GPU"))
        node.attr["bad_indices_policy"].s = b"ERROR"
        self.assertFalse(self.table.supports(node, "GPU"))

    def test_gpu_supports_all_operations_of_unrolled_training(self):
        for name in ("lstm", "small_convnet", "residual_convnet", "v1_ref_variables"):
            made = graphs.share_graph(name)
            for node in made.graph.as_graph_def().node:
                self.assertTrue(self.table.supports(node, "GPU"), f"{node.name} of {name}")


class FunctionTest(tf.test.TestCase):
    def graph_with_loop(self, *, printing: bool) -> tf1.GraphDef:
        def body(i, total):
            if printing:
                tf.print(i)
            return i + 1, total * 2.0

        with tf.Graph().as_default() as graph:
            tf.while_loop(lambda i, _: i < 3, body, [tf.constant(0), tf.constant(1.0)])
        return graph.as_graph_def()

    def supports_loop(self, graph_def: tf1.GraphDef, device_type: str) -> bool:
        loops = [node for node in graph_def.node if "While" in node.op]
        self.assertLen(loops, 1)
        return KernelTable(graph_def).supports(loops[0], device_type)

    def test_loops_run_where_their_body_runs(self):
        plain = self.graph_with_loop(printing=False)
        self.assertTrue(self.supports_loop(plain, "CPU"))
        self.assertTrue(self.supports_loop(plain, "GPU"))
        printing = self.graph_with_loop(printing=True)
        self.assertTrue(self.supports_loop(printing, "CPU"))
        self.assertFalse(self.supports_loop(printing, "GPU"))

    def test_checks_nested_functions(self):
        @tf.function
        def inner(value):
            tf.print(value)
            return value + 1.0

        with tf.Graph().as_default() as graph:
            tf.function(lambda value: inner(value) * 2.0)(tf.constant(1.0))
        graph_def = graph.as_graph_def()
        table = KernelTable(graph_def)
        (call,) = (node for node in graph_def.node if "PartitionedCall" in node.op)
        self.assertTrue(table.supports(call, "CPU"))
        self.assertFalse(table.supports(call, "GPU"))

    def test_mutually_recursive_functions_run_where_both_do(self):
        graph_def = tf1.GraphDef()
        for name, other, operation in (("f", "g", "Print"), ("g", "f", "NoOp")):
            function = graph_def.library.function.add()
            function.signature.name = name
            function.node_def.add(name="call", op="PartitionedCall").attr["f"].func.name = other
            function.node_def.add(name="own", op=operation)
        table = KernelTable(graph_def)
        for name in "fgf":
            self.assertFalse(table.supports(tf1.NodeDef(name="call", op=name), "GPU"))

    def test_missing_function_runs_nowhere(self):
        node = tf1.NodeDef(name="call", op="PartitionedCall")
        node.attr["f"].func.name = "lost"
        self.assertFalse(KernelTable(tf1.GraphDef()).supports(node, "CPU"))


class CondenseTest(tf.test.TestCase):
    def list_accepted(self, kernels_of_type, values) -> set[tuple[str, ...]]:
        """Lists all combinations of values that some kernel accepts."""
        return {
            combination
            for combination in itertools.product(*values.values())
            if any(
                all(
                    dict(zip(values, combination, strict=True))[name] in allowed
                    for name, allowed in k.items()
                )
                for k in kernels_of_type
            )
        }

    def test_condensed_kernels_accept_the_same(self):
        random = np.random.default_rng(0)
        values = {"T": "abc", "U": "xyz", "V": "12"}
        shorter = 0
        for _ in range(300):
            kernels_of_type = []
            for _ in range(random.integers(1, 9)):
                names = [name for name in values if random.random() < 0.7]
                kernels_of_type.append(
                    {
                        name: frozenset(
                            random.choice(list(values[name]), random.integers(1, 3)).tolist()
                        )
                        for name in names
                    }
                )
            condensed = condense(kernels_of_type)
            self.assertEqual(
                self.list_accepted(condensed, values), self.list_accepted(kernels_of_type, values)
            )
            self.assertLessEqual(len(condensed), len(kernels_of_type))
            shorter += len(condensed) < len(kernels_of_type)
        self.assertGreater(shorter, 50)

    def test_one_kernel_per_type_becomes_one_kernel(self):
        dtypes = ["DT_HALF", "DT_FLOAT", "DT_DOUBLE"]
        indices = ["DT_INT32", "DT_INT64"]
        every = [
            {"T": frozenset([t]), "Tindices": frozenset([i])}
            for t, i in itertools.product(dtypes, indices)
        ]
        self.assertEqual(
            condense(every), [{"T": frozenset(dtypes), "Tindices": frozenset(indices)}]
        )

    def test_equal_kernels_count_once(self):
        self.assertEqual(condense([{}, {}]), [{}])
        self.assertEqual(condense([]), [])

    def test_does_not_merge_kernels_of_list_attributes(self):
        apart = [{"Tin": frozenset(["DT_HALF"])}, {"Tin": frozenset(["DT_FLOAT"])}]
        self.assertCountEqual(condense([*apart, *apart], ["Tin"]), apart)

    def test_condensing_does_not_change_its_arguments(self):
        kernel = {"T": frozenset(["DT_HALF"])}
        condense([kernel, {"T": frozenset(["DT_FLOAT"])}])
        self.assertEqual(kernel, {"T": frozenset(["DT_HALF"])})


class TableFileTest(tf.test.TestCase):
    def test_text_contains_the_kernels(self):
        constraints = {
            "B": [{}],
            "A": [{"U": frozenset([True]), "T": frozenset(["DT_HALF", "DT_FLOAT"])}],
        }
        text = format_table(constraints, "a test")
        self.assertEqual(
            json.loads(text),
            {
                "format": 1,
                "source": "a test",
                "kernels": {"A": [{"T": ["DT_FLOAT", "DT_HALF"], "U": [True]}], "B": [{}]},
            },
        )
        self.assertLen(text.splitlines(), 4)

    def test_module_writes_the_table_of_the_running_tensorflow(self):
        path = self.create_tempfile().full_path
        with mock.patch.object(sys, "argv", ["kernels", path]):
            runpy.run_module("graph_passes.kernels", run_name="__main__", alter_sys=True)
        with open(path, encoding="utf-8") as file:
            written = json.load(file)
        self.assertIn(tf.__version__, written["source"])
        expected = json.loads(format_table(list_registered_kernels("GPU"), written["source"]))
        self.assertEqual(written, expected)


if __name__ == "__main__":
    tf.test.main()
