"""Tests of resources that several operations share by name."""

from __future__ import annotations

import itertools

import tensorflow as tf
from absl.testing import parameterized

from graph_passes.colocation import ColocationGroups, find_colocation_groups
from graph_passes.op_graph import OpGraph
from graph_passes.races import find_races
from graph_passes.shared_resources import find_variables
from tests.graph_parts import new_graph

tf1 = tf.compat.v1
raw = tf.raw_ops

_TABLE = {"key_dtype": tf.int64, "value_dtype": tf.float32}
_COMPONENTS = {"component_types": [tf.float32]}
_VARIABLE = {"dtype": tf.float32, "shape": []}
_KINDS = {
    "VarHandleOp": _VARIABLE,
    "VariableV2": _VARIABLE,
    "ConditionalAccumulator": _VARIABLE,
    "ResourceConditionalAccumulator": _VARIABLE,
    "SparseConditionalAccumulator": _VARIABLE,
    "HashTableV2": _TABLE,
    "MutableHashTableV2": _TABLE,
    "FIFOQueueV2": _COMPONENTS,
    "PriorityQueueV2": {"component_types": [tf.float32], "shapes": [[]]},
    "Barrier": _COMPONENTS,
    "TFRecordReaderV2": {},
    "IteratorV2": {"output_types": [tf.float32], "output_shapes": [[]], "container": ""},
    "SummaryWriter": {},
    "MutexV2": {},
    "StatsAggregatorHandle": {},
}


class Read:
    """The colocation groups of a graph, with access by operation name."""

    def __init__(self, graph: tf.Graph) -> None:
        self.graph = OpGraph.from_graph_def(graph.as_graph_def())
        self.groups: ColocationGroups = find_colocation_groups(self.graph)

    def group_of(self, name: str) -> int:
        return int(self.groups.group[self.graph.index[name]])

    def are_together(self, *names: str) -> bool:
        return len({self.group_of(name) for name in names}) == 1


def variables(*arguments: dict[str, str], op: str = "VarHandleOp") -> None:
    """Makes operations "a", "b", ... for variables."""
    for name, more in zip("abcdef", arguments, strict=False):
        getattr(raw, op)(**_VARIABLE, name=name, **more)


class SharedResourcesTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters(*_KINDS)
    def test_operations_with_equal_shared_names_are_joined(self, op):
        with new_graph() as graph:
            for name, shared in (("a", "one"), ("b", "one"), ("c", "another")):
                getattr(raw, op)(**_KINDS[op], shared_name=shared, name=name)
        read = Read(graph)
        self.assertTrue(read.are_together("a", "b"))
        self.assertFalse(read.are_together("a", "c"))

    def test_unstage_is_joined_with_its_stage(self):
        with new_graph() as graph:
            raw.Stage(values=[1.0], name="put")
            (taken,) = raw.Unstage(dtypes=[tf.float32], shared_name="put", name="take")
            raw.StageSize(dtypes=[tf.float32], shared_name="put", name="size")
            tf.negative(tf.tanh(taken, name="reader"), name="next")
        read = Read(graph)
        self.assertTrue(read.are_together("put", "take", "size"))
        # TensorFlow would move the Unstage to the device of this consumer.
        self.assertTrue(read.are_together("take", "reader"))
        self.assertFalse(read.are_together("reader", "next"))

    @parameterized.parameters("VarHandleOp", "VariableV2")
    def test_equal_names_in_other_containers_or_kinds_are_not_joined(self, op):
        other = {"VarHandleOp": "VariableV2", "VariableV2": "VarHandleOp"}[op]
        with new_graph() as graph:
            name = {"shared_name": "v"}
            variables(name, {**name, "container": "localhost"}, {**name, "container": "x"}, op=op)
            getattr(raw, other)(**_VARIABLE, shared_name="v", name="other")
            raw.HashTableV2(**_TABLE, shared_name="v", name="table")
        read = Read(graph)
        self.assertTrue(read.are_together("a", "b"))
        for one, another in itertools.combinations(["a", "c", "other", "table"], 2):
            self.assertFalse(read.are_together(one, another), f"{one} {another}")

    def test_missing_shared_name_is_the_operation_name_except_for_handles(self):
        for op, with_own_name in (("VariableV2", True), ("VarHandleOp", False)):
            with new_graph() as graph:
                variables({}, {}, {"shared_name": "a"}, op=op)
            read = Read(graph)
            self.assertEqual(read.are_together("a", "c"), with_own_name, op)
            self.assertEqual(read.are_together("a", "b"), not with_own_name, op)

    def test_missing_attributes_have_their_defaults(self):
        with new_graph() as graph:
            variables({}, {})
        graph_def = graph.as_graph_def()
        for node in graph_def.node:
            for name in ("container", "shared_name"):
                node.attr.pop(name, None)
        self.assertEqual(find_variables(OpGraph.from_graph_def(graph_def)), [(0, 1)])

    def test_anonymous_handles_are_not_joined(self):
        with new_graph() as graph:
            variables(*[{"shared_name": "cd2c89b7-88b7-44c8-ad83-06c2a9158347"}] * 2)
        self.assertFalse(Read(graph).are_together("a", "b"))
        self.assertEqual(find_variables(Read(graph).graph), [(0,), (1,)])

    def test_calls_are_joined_by_the_resources_of_their_functions(self):
        with new_graph() as graph:

            @tf.function(autograph=False)
            def inner() -> tf.Tensor:
                handle = raw.VarHandleOp(**_VARIABLE, shared_name="v", name="inside")
                return raw.ReadVariableOp(resource=handle, dtype=tf.float32)

            variables({"shared_name": "v"}, {"shared_name": "w"})
            calls = [inner(), tf.function(lambda: inner() + 1.0)()]
        read = Read(graph)
        self.assertTrue(read.are_together("a", *(call.op.name for call in calls)))
        self.assertFalse(read.are_together("a", "b"))

    def test_operations_with_different_devices_are_not_joined(self):
        with new_graph() as graph:
            for device, names in (("/cpu:0", "ab"), ("/cpu:1", "c"), (None, "de")):
                with tf.device(device):
                    for name in names:
                        raw.VarHandleOp(**_VARIABLE, shared_name="v", name=name)
            raw.VarHandleOp(**_VARIABLE, shared_name="free", name="free")
        read = Read(graph)
        self.assertTrue(read.are_together("a", "b"))
        self.assertFalse(read.are_together("a", "c"))
        self.assertTrue(read.are_together("d", "e"))
        self.assertFalse(read.are_together("a", "d"))
        alone = {name for name in "abcde" if read.groups.pinned[read.group_of(name)]}
        self.assertEqual(alone, set("abcde"))
        self.assertFalse(read.groups.pinned[read.group_of("free")])

    @parameterized.parameters("VarHandleOp", "VariableV2")
    def test_finds_races_between_operations_with_equal_shared_names(self, op):
        with new_graph() as graph:
            variables({"shared_name": "v"}, {"shared_name": "v"}, op=op)
            written, read = (graph.get_tensor_by_name(f"{name}:0") for name in "ab")
            if op == "VarHandleOp":
                write = raw.AssignAddVariableOp(resource=written, value=1.0)
                value = raw.ReadVariableOp(resource=read, dtype=tf.float32, name="read")
            else:
                write, value = tf1.assign_add(written, 1.0).op, tf.tanh(read, name="read")
            tf.group(write, value, name="step")
            tf.no_op(name="beside")
        op_graph = OpGraph.from_graph_def(graph.as_graph_def(), ["step"])
        [race] = find_races(op_graph)
        self.assertEqual(op_graph.names[race.reader], "read")
        self.assertEqual(op_graph.names[race.variable], "a")


if __name__ == "__main__":
    tf.test.main()
