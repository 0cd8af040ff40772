from __future__ import annotations

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from graph_passes.colocation import ColocationGroups, find_colocation_groups
from graph_passes.op_graph import OpGraph
from tests import graph_parts, graphs
from tests.graph_passes.logical_devices import device_names, run_steps

tf1 = tf.compat.v1

DEVICES = device_names(3)


class NamedGroups:
    """The colocation groups of a graph, with access by operation name."""

    def __init__(self, graph: tf.Graph | tf1.GraphDef, feeds=()) -> None:
        graph_def = graph.as_graph_def() if isinstance(graph, tf.Graph) else graph
        self.op_graph = OpGraph.from_graph_def(graph_def, (), feeds)
        self.colocation: ColocationGroups = find_colocation_groups(self.op_graph)

    def group_of(self, name: str) -> int:
        return int(self.colocation.group[self.op_graph.index[name]])

    def are_together(self, *names: str) -> bool:
        return len({self.group_of(name) for name in names}) == 1

    def members(self, name: str) -> set[str]:
        group = self.group_of(name)
        return {n for n in self.op_graph.names if self.group_of(n) == group}

    def under(self, *scopes: str) -> list[str]:
        return [name for name in self.op_graph.names if name.startswith(scopes)]


class RulesTest(tf.test.TestCase, parameterized.TestCase):
    def test_independent_operations_are_separate(self):
        found = NamedGroups(graphs.matmul_chain().graph)
        self.assertFalse(found.are_together("chain_0/MatMul", "chain_0/MatMul_1"))
        self.assertFalse(found.are_together("chain_0/MatMul", "chain_0/weights"))

    def test_colocation_attributes_join(self):
        with tf.Graph().as_default() as graph:
            a, b, c = (tf.constant(1.0, name=name) for name in "abc")
            with graph.colocate_with(a.op):
                d = tf.add(b, c, name="d")
            with graph.colocate_with(d.op):
                tf.negative(b, name="e")
        found = NamedGroups(graph)
        self.assertEqual(found.members("e"), {"a", "d", "e"})
        self.assertEqual(found.members("b"), {"b"})

    def test_other_class_attributes_join_nothing(self):
        with tf.Graph().as_default() as graph:
            for name in "ab":
                op = tf.constant(1.0, name=name).op
                op._set_attr("_class", tf1.AttrValue(list=tf1.AttrValue.ListValue(s=[b"own"])))
        self.assertFalse(NamedGroups(graph).are_together("a", "b"))

    def test_references_join_variables_with_writes(self):
        with tf.Graph().as_default() as graph:
            variable = tf1.get_variable("v", [2], use_resource=False)
            update = tf1.assign_add(variable, [1.0, 1.0], name="update")
            tf.multiply(update, 2.0, name="after")
            tf1.get_variable("w", [2], use_resource=False)
        found = NamedGroups(graph)
        self.assertTrue(found.are_together("v", "v/Assign", "update"))
        self.assertFalse(found.are_together("v", "after"))
        self.assertFalse(found.are_together("v", "w"))

    @parameterized.parameters(True, False)
    def test_variables_join_their_slots_and_updates(self, use_resource):
        factory = graphs.resource_variables if use_resource else graphs.v1_ref_variables
        found = NamedGroups(factory("adam").graph)
        for name in ("layer_0/weights", "layer_1/bias"):
            update = f"train/update_{name}/{'Resource' if use_resource else ''}ApplyAdam"
            self.assertTrue(found.are_together(name, f"{name}/Adam", f"{name}/Adam_1", update))
        self.assertFalse(found.are_together("layer_0/weights", "layer_0/bias"))
        self.assertFalse(found.are_together("layer_0/weights", "layer_1/weights"))

    def test_resource_and_variant_edges_join(self):
        made = graphs.tf_data_iterators()
        types = {node.name: node.op for node in made.graph.as_graph_def().node}
        found = NamedGroups(made.graph)
        maker = next(name for name, op_type in types.items() if op_type == "MakeIterator")
        # The iterator is a resource, its data set a variant.
        self.assertContainsSubset(
            ["MakeIterator", "IteratorV2", "IteratorGetNext", "BatchDatasetV2"],
            {types[member] for member in found.members(maker)},
        )

    def test_tables_join_their_lookups(self):
        made = graphs.lookup_table_and_strings()
        types = {n.name: n.op for n in made.graph.as_graph_def().node}
        found = NamedGroups(made.graph)
        table = next(name for name, op_type in types.items() if op_type == "HashTableV2")
        self.assertContainsSubset(
            ["LookupTableFindV2", "LookupTableImportV2"], {types[m] for m in found.members(table)}
        )


class LoopTest(tf.test.TestCase):
    def test_v1_loop_and_its_gradient_are_one_group(self):
        found = NamedGroups(graphs.while_loop_v1().graph)
        body = found.under("while/")
        inside = [
            name
            for name in body
            if found.op_graph.type_of(found.op_graph.index[name]) not in ("Const",)
        ]
        backward = [
            name
            for name in found.under("gradients/while/")
            if found.op_graph.type_of(found.op_graph.index[name])
            in ("NextIteration", "StackPopV2", "StackPushV2", "TensorArrayGradV3")
        ]
        self.assertGreater(len(backward), 3)
        self.assertTrue(found.are_together(*inside, *backward))
        self.assertFalse(found.are_together("while/Exit", "logits/MatMul"))

    def test_nested_loops_are_one_group_and_others_are_separate(self):
        with tf.Graph().as_default() as graph, graph_parts.control_flow(v2=False):

            def inner(i, x):
                _, y = tf1.while_loop(
                    lambda j, _: j < 2, lambda j, y: (j + 1, y * 2.0), [0, x], name="inner"
                )
                return i + 1, tf.add(y, 1.0, name="in_outer")

            start = tf.constant(1.0, name="start")
            _, result = tf1.while_loop(lambda i, _: i < 3, inner, [0, start], name="outer")
            tf.negative(result, name="between")
            tf1.while_loop(lambda k: k < 3, lambda k: k + 1, [0], name="other")
        found = NamedGroups(graph)
        self.assertTrue(
            found.are_together(
                "outer/Enter",
                "outer/inner/Enter",
                "outer/inner/mul",
                "outer/in_outer",
                "outer/Exit",
            )
        )
        self.assertFalse(found.are_together("outer/Enter", "other/Enter"))
        for outside in ("start", "between"):
            self.assertEqual(found.members(outside), {outside})

    def test_control_edges_join_operations_to_their_loop(self):
        with tf.Graph().as_default() as graph, graph_parts.control_flow(v2=False):
            tf1.while_loop(lambda i: i < 3, lambda i: i + tf.constant(1, name="step"), [0])
        found = NamedGroups(graph)
        self.assertTrue(found.are_together("while/step", "while/Enter"))

    def test_functional_loop_is_one_operation(self):
        found = NamedGroups(graphs.while_loop_v2().graph)
        self.assertTrue(found.are_together("while", "gradients/while_grad/while_grad"))
        self.assertFalse(found.are_together("while", "logits/MatMul"))


class ConditionalTest(tf.test.TestCase):
    def build_nested_conditionals(self) -> NamedGroups:
        with tf.Graph().as_default() as graph, graph_parts.control_flow(v2=False):
            value = tf.constant(2.0, name="value")
            other_value = tf.constant(2.0, name="other_value")

            def outer_true():
                inner = tf1.cond(
                    value < 3.0,
                    lambda: tf.square(value, name="deep"),
                    lambda: tf.negative(value, name="deep_too"),
                    name="inner",
                )
                return tf.multiply(inner, tf.constant(3.0), name="after_inner")

            result = tf1.cond(
                value > 1.0, outer_true, lambda: tf.exp(value, name="other"), name="outer"
            )
            other = tf1.cond(
                value > 0.0, lambda: other_value + 1.0, lambda: other_value, name="independent"
            )
            tf.add(result, other, name="end")
        return NamedGroups(graph)

    def test_both_branches_are_one_group(self):
        found = NamedGroups(graphs.cond_v1().graph)
        self.assertTrue(
            found.are_together("cond/MatMul", "cond/MatMul_1", "cond/Tanh", "cond/Merge")
        )
        self.assertFalse(found.are_together("cond/Merge", "loss"))

    def test_nested_conditional_joins_the_outer_one(self):
        found = self.build_nested_conditionals()
        self.assertTrue(
            found.are_together(
                "outer/Merge",
                "outer/inner/Merge",
                "outer/inner/deep",
                "outer/inner/deep_too",
                "outer/after_inner",
                "outer/other",
            )
        )

    def test_operations_outside_a_conditional_stay_separate(self):
        found = self.build_nested_conditionals()
        self.assertFalse(found.are_together("outer/Merge", "independent/Merge"))
        self.assertEqual(found.members("end"), {"end"})
        for predicate in ("Greater", "Greater_1"):
            self.assertEqual(found.members(predicate), {predicate})


class GroupsTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters(*graphs.FACTORIES)
    def test_groups_are_numbered_by_their_first_operation(self, name):
        found = NamedGroups(graphs.share_graph(name).graph)
        in_order = found.colocation.group[found.op_graph.order]
        _, first = np.unique(in_order, return_index=True)
        self.assertTrue((np.diff(first) > 0).all())
        self.assertSequenceEqual(
            found.colocation.first_names,
            [found.op_graph.names[i] for i in found.op_graph.order[first]],
        )

    def test_group_is_legal_where_all_members_are(self):
        with tf.Graph().as_default() as graph:
            table = tf1.get_variable("table", [4, 3], use_resource=True)
            tf.constant(1.0, name="free")
            # Strings have no GPU kernels, so the whole group is barred from GPUs.
            with graph.colocate_with(table.handle.op):
                tf.strings.length(tf.constant("text", name="text"), name="length")
        found = NamedGroups(graph)
        legal = found.colocation.legal
        self.assertTrue(legal["CPU"].all())
        self.assertTrue(legal["GPU"][found.group_of("free")])
        self.assertFalse(legal["GPU"][found.group_of("table")])
        self.assertFalse(legal["GPU"][found.group_of("text")])

    def test_group_of_a_pinned_operation_is_pinned(self):
        with tf.Graph().as_default() as graph:
            with tf.device("/cpu:0"):
                pinned = tf.constant(1.0, name="pinned")
            with graph.colocate_with(pinned.op):
                tf.constant(2.0, name="beside")
            tf.constant(3.0, name="free")
        found = NamedGroups(graph)
        self.assertEqual(
            {found.group_of("pinned"), found.group_of("beside")},
            set(np.flatnonzero(found.colocation.pinned).tolist()),
        )
        self.assertEqual(found.colocation.devices[found.group_of("beside")], "/device:CPU:0")
        self.assertEqual(found.colocation.devices[found.group_of("free")], "")

    def test_feeds_follow_their_colocation_group(self):
        with tf.Graph().as_default() as graph:
            alone, tied = (tf1.placeholder(tf.float32, [], name=n) for n in ("alone", "tied"))
            cut = tf.add(alone, tied, name="cut")
            with graph.colocate_with(tied.op):
                tf.negative(cut, name="beside")
        found = NamedGroups(graph, feeds=["alone:0", "tied:0", "cut:0"])
        pinned = {
            name for name in found.op_graph.names if found.colocation.pinned[found.group_of(name)]
        }
        self.assertEqual(pinned, {"alone", "cut"})


class TensorFlowAgreesTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters(*graphs.FACTORIES)
    def test_tensorflow_accepts_random_placements_of_groups(self, name):
        made = graphs.share_graph(name)
        graph_def = made.graph.as_graph_def()
        expected = run_steps(graph_def, made, devices=len(DEVICES)).values
        colocation = NamedGroups(graph_def, tuple(made.feeds)).colocation
        random = np.random.default_rng(0)
        for _ in range(4):
            chosen = random.integers(0, len(DEVICES), colocation.num_groups)
            placed = tf1.GraphDef()
            placed.CopyFrom(graph_def)
            for node, group in zip(placed.node, colocation.group, strict=True):
                if not colocation.pinned[group]:
                    node.device = DEVICES[chosen[group]]
            values = run_steps(placed, made, devices=len(DEVICES)).values
            self.assertAllClose(values, expected, rtol=1e-5, atol=1e-7)

    def assert_refused(self, made: graph_parts.TestGraph, devices: dict[str, str]) -> None:
        graph_def = made.graph.as_graph_def()
        for node in graph_def.node:
            node.device = devices.get(node.name, "")
        with self.assertRaises(tf.errors.InvalidArgumentError):
            run_steps(graph_def, made, devices=len(DEVICES))

    @parameterized.parameters("v1_ref_variables", "resource_variables")
    def test_tensorflow_rejects_splitting_by_attribute(self, name):
        made = graphs.share_graph(name)
        found = NamedGroups(made.graph)
        pairs = [
            (node.name, value[len("loc:@") :].decode())
            for node in made.graph.as_graph_def().node
            for value in node.attr["_class"].list.s
            if value.startswith(b"loc:@") and value[len("loc:@") :].decode() != node.name
        ]
        self.assertGreater(len(pairs), 20)
        for pair in pairs[:: len(pairs) // 5]:
            self.assertTrue(found.are_together(*pair))
            self.assert_refused(made, dict(zip(pair, DEVICES, strict=False)))

    @parameterized.parameters(False, True)
    def test_writes_run_on_the_device_of_the_variable(self, use_resource):
        with tf.Graph().as_default() as graph:
            variable = tf1.get_variable("v", initializer=[1.0], use_resource=use_resource)
            with tf.control_dependencies([tf1.assign_add(variable, [1.0]).op]):
                result = tf.constant(3.0, name="result")
            initializer = tf1.global_variables_initializer()
        (update,) = (op.name for op in graph.get_operations() if "AssignAdd" in op.type)
        self.assertTrue(NamedGroups(graph).are_together("v", update))
        graph_def = graph.as_graph_def()
        for node in graph_def.node:
            # Only the reference or resource edge may keep them together.
            node.attr.pop("_class", None)
            node.device = DEVICES[{"v": 1, update: 2}.get(node.name, 0)]
        made = graph_parts.TestGraph(graph, (result.name,), {}, (initializer.name,))
        run = run_steps(graph_def, made, devices=len(DEVICES))
        self.assertEqual(run.devices[update], DEVICES[1])

    def test_tensorflow_rejects_splitting_variables_of_one_update(self):
        made = graphs.resource_variables("adam")
        name = "layer_0/weights"
        self.assertTrue(NamedGroups(made.graph).are_together(name, f"{name}/Adam"))
        self.assert_refused(made, {name: DEVICES[0], f"{name}/Adam": DEVICES[1]})


if __name__ == "__main__":
    tf.test.main()
