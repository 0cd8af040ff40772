"""Tests of finding out whether variables are all the state that a graph has."""

from __future__ import annotations

import tensorflow as tf
from tensorflow.python.ops.data_flow_ops import StagingArea

from tf_placer.environments.variable_state import find_assigned_variable, find_variable_assignments

v1 = tf.compat.v1


def _variable(name: str, *, use_resource: bool = True):
    return v1.get_variable(name, [2], use_resource=use_resource)


def _names(operations: list[tf.Operation] | None) -> list[str] | None:
    return None if operations is None else [operation.name for operation in operations]


def _pass_on(a, b) -> None:
    """Passes the handle of a resource variable on, and the reference of another."""
    tf.raw_ops.ReadVariableOp(resource=tf.identity(a.handle), dtype=tf.float32)
    tf.raw_ops.RefIdentity(input=b._ref())
    tf.while_loop(
        lambda i, _: i < 3,
        lambda i, x: (i + 1, x + a.read_value()),
        (tf.constant(0), tf.zeros([2])),
    )
    tf.cond(tf.random.uniform([]) < 0.5, lambda: a.assign_add([1.0, 1.0]), a.value)


class VariableAssignmentsTest(tf.test.TestCase):
    def assignments(self, graph: tf.Graph, *initializers) -> list[str] | None:
        return _names(find_variable_assignments(graph, initializers))

    def test_assignments_of_variables_of_both_kinds(self):
        for use_resource in (False, True):
            with tf.Graph().as_default() as graph:
                a = _variable("a", use_resource=use_resource)
                b = _variable("b", use_resource=use_resource)
                tf.add(a, b)
            inits = [a.initializer, b.initializer]
            self.assertEqual(
                {init.type for init in inits}, {"AssignVariableOp" if use_resource else "Assign"}
            )
            self.assertEqual(self.assignments(graph, *inits), ["a/Assign", "b/Assign"])

    def test_a_graph_without_state_has_no_assignments(self):
        with tf.Graph().as_default() as graph:
            # Random operations have state, but each session its own.
            tf.random.uniform([2])
        self.assertEqual(self.assignments(graph), [])
        with graph.as_default():
            nothing = tf.no_op()
        self.assertEqual(self.assignments(graph, nothing), [])

    def test_groups_count_as_what_they_group_each_once(self):
        with tf.Graph().as_default() as graph:
            a, b = _variable("a"), _variable("b", use_resource=False)
            c, d = _variable("c"), _variable("d", use_resource=False)
            inner = tf.group(b.initializer, c.initializer, name="inner")
            outer = tf.group(a.initializer, name="outer")
            outer._add_control_input(inner)
        self.assertEqual([op.type for op in (inner, outer)], ["NoOp", "NoOp"])
        found = self.assignments(graph, outer, d.initializer, inner, b.initializer)
        self.assertCountEqual(found, ["a/Assign", "b/Assign", "c/Assign", "d/Assign"])

    def test_groups_of_several_devices(self):
        # TensorFlow nests them by device.
        with tf.Graph().as_default() as graph:
            for name, device in (("a", "CPU:0"), ("b", "CPU:1"), ("c", "CPU:1")):
                with tf.device(device):
                    _variable(name)
            init = v1.global_variables_initializer()
        self.assertEqual({op.type for op in init.control_inputs}, {"NoOp"})
        found = self.assignments(graph, init)
        self.assertCountEqual(found, ["a/Assign", "b/Assign", "c/Assign"])

    def test_an_initializer_that_is_no_assignment(self):
        with tf.Graph().as_default() as graph:
            a, b = _variable("a"), _variable("b", use_resource=False)
            number = v1.get_variable("number", [], use_resource=True)
            with tf.control_dependencies([tf.no_op("nothing")]):
                printed = tf.print("ready")
            others = [
                printed,
                tf.raw_ops.ReadVariableOp(resource=a.handle, dtype=tf.float32).op,
                tf.raw_ops.VarIsInitializedOp(resource=a.handle).op,
                number.assign_add(1.0, read_value=False),
                b.assign_add([1.0, 1.0]).op,
                b.value().op,
                tf.constant(1.0).op,
                tf.identity(a.initial_value).op,
            ]
        self.assertLen(self.assignments(graph, a.initializer, b.initializer), 2)
        for other in others:
            self.assertIsNone(self.assignments(graph, a.initializer, other), other.name)
            with graph.as_default():
                group = tf.group(b.initializer, other)
            self.assertIsNone(self.assignments(graph, a.initializer, group), other.name)

    def test_other_state(self):
        def one_shot():
            v1.data.make_one_shot_iterator(tf.data.Dataset.range(3)).get_next()

        def initializable():
            v1.data.make_initializable_iterator(tf.data.Dataset.range(3)).get_next()

        def table():
            values = tf.lookup.KeyValueTensorInitializer(["a"], [1])
            tf.lookup.StaticHashTable(values, 0).lookup(tf.constant(["a"]))

        def old_table():
            tf.raw_ops.HashTable(key_dtype=tf.string, value_dtype=tf.int64)

        def queue():
            v1.FIFOQueue(1, [tf.float32]).dequeue()

        def old_queue():
            tf.raw_ops.FIFOQueue(component_types=[tf.float32])

        def accumulator():
            v1.ConditionalAccumulator(tf.float32, [2]).num_accumulated()

        def staging_area():
            area = StagingArea([tf.float32])
            area.put([tf.constant(1.0)])
            area.get()

        for make in (
            *(one_shot, initializable, table, old_table, queue, old_queue, accumulator),
            staging_area,
        ):
            with tf.Graph().as_default() as graph:
                a = _variable("a")
                # None of the initializers says so.
                self.assertEqual(self.assignments(graph, a.initializer), ["a/Assign"])
                make()
            self.assertIsNone(self.assignments(graph, a.initializer), make.__name__)

    def test_an_initializer_of_other_state(self):
        with tf.Graph().as_default() as graph:
            iterator = v1.data.make_initializable_iterator(tf.data.Dataset.range(3))
        self.assertIsNone(self.assignments(graph, iterator.initializer))

    def test_handles_that_are_passed_on_are_no_other_state(self):
        was_enabled = v1.control_flow_v2_enabled()
        self.addCleanup(v1.enable_control_flow_v2 if was_enabled else v1.disable_control_flow_v2)
        for enable in (v1.enable_control_flow_v2, v1.disable_control_flow_v2):
            enable()
            with tf.Graph().as_default() as graph:
                a, b = _variable("a"), _variable("b", use_resource=False)
                _pass_on(a, b)
            passed_on = {
                op.type
                for op in graph.get_operations()
                if any(tensor.dtype == tf.resource for tensor in op.inputs)
            }
            loop = {"While"} if enable is v1.enable_control_flow_v2 else {"Enter", "Switch"}
            self.assertContainsSubset({"Identity"} | loop, passed_on)
            found = self.assignments(graph, a.initializer, b.initializer)
            self.assertEqual(found, ["a/Assign", "b/Assign"])


class AssignedVariableTest(tf.test.TestCase):
    def test_is_the_variable_of_an_assignment_and_of_nothing_else(self):
        with tf.Graph().as_default():
            a, b = _variable("a"), _variable("b", use_resource=False)
            read = a.read_value().op
            nothing = tf.no_op()
            later = b.assign([1.0, 2.0]).op
        self.assertIs(find_assigned_variable(a.initializer), a.handle.op)
        self.assertIs(find_assigned_variable(b.initializer), b.op)
        self.assertIs(find_assigned_variable(later), b.op)
        for other in (a.handle.op, read, nothing):
            self.assertIsNone(find_assigned_variable(other))


if __name__ == "__main__":
    tf.test.main()
