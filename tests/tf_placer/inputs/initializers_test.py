"""Tests of finding the initializers of a step."""

from __future__ import annotations

import tensorflow as tf

from graph_passes.errors import StepError
from graph_passes.op_graph import OpGraph
from tests.graph_parts import control_flow, new_graph
from tf_placer.inputs.initializers import find_initializers

tf1 = tf.compat.v1


def find(graph: tf.Graph, fetches: list[str], collected: tuple[str, ...] = ()) -> list[str]:
    return find_initializers(OpGraph.from_graph_def(graph.as_graph_def(), fetches), collected)


class FindInitializersTest(tf.test.TestCase):
    def test_variables_of_both_kinds_are_initialized_by_their_assignments(self):
        for use_resource in (False, True):
            with new_graph() as graph:
                w = tf1.get_variable("w", [2], use_resource=use_resource)
                tf1.assign(w, [1.0, 2.0], name="later")
                tf1.train.Saver([w])
                tf.identity(w, name="y")
            self.assertEqual(find(graph, ["y"]), ["w/Assign"])

    def test_variables_that_a_step_does_not_need_are_left_out(self):
        with new_graph() as graph:
            tf1.get_variable("unused", [2])
            tf.identity(tf1.get_variable("w", [2]), name="y")
        self.assertEqual(find(graph, ["y"]), ["w/Assign"])

    def test_an_assignment_of_another_name_is_found_unless_it_is_part_of_the_step(self):
        with new_graph() as graph:
            handle = tf.raw_ops.VarHandleOp(dtype=tf.float32, shape=[], shared_name="v", name="v")
            tf.raw_ops.AssignVariableOp(resource=handle, value=2.0, name="step")
            with tf.control_dependencies([graph.get_operation_by_name("step")]):
                tf.raw_ops.ReadVariableOp(resource=handle, dtype=tf.float32, name="y")
            tf.raw_ops.AssignVariableOp(resource=handle, value=1.0, name="fill")
        self.assertEqual(find(graph, ["y"]), ["fill"])

    def test_a_variable_that_nothing_initializes_is_named(self):
        with new_graph() as graph:
            handle = tf.raw_ops.VarHandleOp(dtype=tf.float32, shape=[], shared_name="v", name="v")
            tf.raw_ops.ReadVariableOp(resource=handle, dtype=tf.float32, name="y")
        with self.assertRaisesRegex(StepError, "nothing initializes the variable 'v': pass init"):
            find(graph, ["y"])

    def test_collected_operations_come_first_and_once(self):
        with new_graph() as graph:
            w = tf1.get_variable("w", [2])
            tf.add(w, tf1.get_variable("v", [2]), name="y")
        self.assertEqual(
            find(graph, ["y"], ("v/Assign", "v/Assign", "not/there")), ["v/Assign", "w/Assign"]
        )

    def test_a_static_table_is_initialized(self):
        with new_graph() as graph:
            initializer = tf.lookup.KeyValueTensorInitializer(["a"], tf.constant([1], tf.int64))
            table = tf.lookup.StaticHashTable(initializer, -1)
            tf.identity(table.lookup(tf.constant(["a"])), name="y")
        (name,) = find(graph, ["y"])
        self.assertIn("LookupTableImport", graph.get_operation_by_name(name).type)
        with tf1.Session(graph=graph) as session:
            session.run(name)
            self.assertAllEqual(session.run("y:0"), [1])

    def test_a_mutable_table_needs_nothing(self):
        with new_graph() as graph:
            table = tf.lookup.experimental.MutableHashTable(tf.string, tf.int64, -1)
            table.insert(["b"], tf.constant([2], tf.int64))
            tf1.train.Saver([table])
            tf.identity(table.lookup(tf.constant(["a"])), name="y")
        self.assertNotEmpty([op for op in graph.get_operations() if "Import" in op.type])
        self.assertEqual(find(graph, ["y"]), [])

    def test_an_iterator_is_initialized_with_its_first_data_set(self):
        with new_graph() as graph:
            data = [tf1.data.Dataset.range(n, n + 1) for n in (3, 4)]
            iterator = tf1.data.Iterator.from_structure(tf.int64, tf.TensorShape([]))
            names = [iterator.make_initializer(d).name for d in data]
            tf.identity(iterator.get_next(), name="y")
        self.assertEqual(find(graph, ["y"]), names[:1])
        self.assertEqual(find(graph, ["y"], tuple(names[1:])), names[1:])

    def test_assignments_in_v1_conditionals_and_loops_are_no_initializers(self):
        for use_resource in (False, True):
            for name, build in (("cond", _assigns_in_cond), ("loop", _assigns_in_loop)):
                with new_graph() as graph, control_flow(v2=False):
                    v = tf1.get_variable("v", [2], use_resource=use_resource)
                    build(v)
                self.assertEqual(find(graph, ["y"]), ["v/Assign"], name)
                self.assertEqual(find(graph, ["y"], ("v/Assign",)), ["v/Assign"], name)

    def test_initializes_variables_that_initializers_read(self):
        with new_graph() as graph:
            first = tf1.get_variable("first", [2], use_resource=False)
            second = tf1.get_variable(
                "second", initializer=first.initialized_value() * 2.0, use_resource=False
            )
            tf.identity(second, name="y")
        self.assertEqual(find(graph, ["y"]), ["second/Assign", "first/Assign"])

    def test_initializes_state_that_initializers_need(self):
        with new_graph() as graph:
            first = tf1.get_variable("first", initializer=1.0, use_resource=True)
            tf1.get_variable("second", initializer=2.0 * first, use_resource=True)
            with graph.control_dependencies(None):
                initializer = tf.lookup.KeyValueTensorInitializer(["a"], tf.constant([1], tf.int64))
                table = tf.lookup.StaticHashTable(initializer, -1)
                scale = tf1.get_variable("scale", initializer=3.0, use_resource=True)
                data = tf1.data.Dataset.from_tensors(["a"]).map(table.lookup)
                iterator = tf1.data.make_initializable_iterator(data.map(lambda each: each * 2))
                scaled = tf1.data.Dataset.from_tensors(1.0).map(lambda each: each * scale)
                other = tf1.data.make_initializable_iterator(scaled)
            value = tf.cast(iterator.get_next()[0], tf.float32) + other.get_next()
            tf.add(value, graph.get_tensor_by_name("second/Read/ReadVariableOp:0"), name="y")
        names = find(graph, ["y"])
        (imported,) = [op.name for op in graph.get_operations() if "TableImport" in op.type]
        self.assertCountEqual(
            names,
            [
                "second/Assign",
                iterator.initializer.name,
                other.initializer.name,
                "first/Assign",
                "scale/Assign",
                imported,
            ],
        )
        with tf1.Session(graph=graph) as session:
            for name in reversed(names):
                session.run(name)
            self.assertEqual(session.run("y:0"), 2.0 + 3.0 + 2.0)


def _assigns_in_cond(v: tf1.Variable) -> None:
    is_first = tf1.placeholder(tf.bool, [], name="is_first")
    taken = tf1.cond(is_first, lambda: tf.identity(v.assign_add([1.0, 1.0])), v.read_value)
    tf.identity(taken, name="y")


def _assigns_in_loop(v: tf1.Variable) -> None:
    def body(i: tf.Tensor) -> tf.Tensor:
        with tf.control_dependencies([v.assign(v + 1.0)]):
            return i + 1

    with tf.control_dependencies([tf1.while_loop(lambda i: i < 3, body, [0])]):
        tf.identity(v.read_value(), name="y")


if __name__ == "__main__":
    tf.test.main()
