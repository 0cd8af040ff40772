"""Tests of the state before the first step, from collections and from arguments."""

from __future__ import annotations

import os

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from tests.graph_parts import control_flow, new_graph
from tf_placer.inputs.workload import read_workload

tf1 = tf.compat.v1


def table_initializers() -> list[tf.Operation]:
    return tf1.get_collection_ref(tf1.GraphKeys.TABLE_INITIALIZERS)


def lookup() -> tf.Tensor:
    content = tf.lookup.KeyValueTensorInitializer(["a"], [5], tf.string, tf.int32)
    return tf.lookup.StaticHashTable(content, -1).lookup(tf.constant("a"))


def one_group(operations: list[tf.Operation]) -> tf.Operation:
    return tf.group(*operations)


def nest_groups(operations: list[tf.Operation]) -> tf.Operation:
    return tf.group(tf.group(*operations), tf.group(tf.group(*operations), tf.no_op()))


def last_of_tensors(operations: list[tf.Operation]) -> tf.Tensor:
    with tf.control_dependencies(operations):
        return tf1.Print(tf.constant(1), [], message="initialized")


class InitialStateTest(tf.test.TestCase, parameterized.TestCase):
    def run_first_step(
        self, graph: tf.Graph | tf1.MetaGraphDef, fetch: str, **arguments
    ) -> np.ndarray:
        """Initializes as a search does, and runs the step."""
        workload = read_workload(graph, [fetch], **arguments)
        with tf.Graph().as_default() as copy:
            tf.graph_util.import_graph_def(workload.graph_def, name="")
        with tf1.Session(graph=copy) as session:
            session.run(list(workload.step.initializers))
            return session.run(fetch)

    @parameterized.product(use_resource=(False, True), is_live=(False, True), parts=(1, 2))
    def test_init_from_checkpoint_sets_initial_values(self, use_resource, is_live, parts):
        path = os.path.join(self.get_temp_dir(), f"checkpoint_{use_resource}_{parts}")

        def net(scope: str, value: float) -> None:
            partitioner = tf1.fixed_size_partitioner(parts) if parts > 1 else None
            with tf1.variable_scope(scope, use_resource=use_resource, partitioner=partitioner):
                w = tf1.get_variable("w", [4], initializer=tf1.constant_initializer(value))
                tf.identity(tf.convert_to_tensor(w), name="y")

        with new_graph() as graph:
            net("trained", 3.0)
            with tf1.Session(graph=graph) as session:
                session.run(tf1.global_variables_initializer())
                tf1.train.Saver().save(session, path)
        with new_graph() as graph:
            net("mine", 0.0)
            tf1.train.init_from_checkpoint(path, {"trained/": "mine/"})
            meta_graph = tf1.train.export_meta_graph()
        y = graph.get_tensor_by_name("mine/y:0").name
        self.assertAllEqual(self.run_first_step(graph if is_live else meta_graph, y), [3.0] * 4)

    @parameterized.parameters(one_group, nest_groups, last_of_tensors)
    def test_tables_may_be_initialized_together(self, together):
        for is_live in (False, True):
            with new_graph() as graph:
                y = lookup().name
                initializers = table_initializers()
                initializers[:] = [together(initializers)]
                meta_graph = tf1.train.export_meta_graph()
            self.assertEqual(self.run_first_step(graph if is_live else meta_graph, y), 5)

    def test_variables_may_begin_with_a_group_a_tensor_or_a_choice(self):
        def choice(v2: bool, v: tf.Variable) -> tf.Tensor:
            with control_flow(v2=v2):
                return tf1.cond(
                    tf.constant(True) if v2 else tf1.placeholder_with_default(True, []),
                    lambda: tf.identity(tf1.assign(v, 7.0)),
                    lambda: tf.identity(tf1.assign(v, 8.0)),
                )

        made = {
            "group": lambda v: tf.group(v.assign(7.0, read_value=False), tf.no_op()),
            "tensor": lambda v: tf1.assign(v, 7.0),
            "identity": lambda v: tf.identity(tf1.assign(v, 7.0)),
            "cond_v1": lambda v: choice(False, v),
            "cond_v2": lambda v: choice(True, v),
        }
        for name, make in made.items():
            for use_resource in (False, True):
                if name == "cond_v2" and not use_resource:
                    continue  # no function can take a reference
                with self.subTest(name, use_resource=use_resource), new_graph() as graph:
                    v = tf1.get_variable("v", initializer=1.0, use_resource=use_resource)
                    y = tf.identity(v, name="y").name
                    v._initializer_op = make(v)
                    self.assertEqual(self.run_first_step(graph, y), 7.0)

    def test_groups_that_are_given_are_taken_apart(self):
        with new_graph() as graph:
            value = tf.cast(lookup(), tf.float32)
            v = tf1.get_variable("v", initializer=2.0, use_resource=False)
            y = tf.add(v, value, name="y").name
            both = tf.group(tf1.global_variables_initializer(), tf1.tables_initializer())
            scaffold = tf1.train.Scaffold(init_op=both, local_init_op=tf.no_op())
        for initializers in (both, [both.name], scaffold):
            self.assertEqual(self.run_first_step(graph, y, initializers=initializers), 7.0)
        given = read_workload(graph, [y], initializers=both).step.initializers
        imported = [op.name for op in graph.get_operations() if "TableImport" in op.type]
        self.assertEqual(given, ("v/Assign", *imported))

    @parameterized.parameters("VarHandleOp", "VariableV2")
    def test_a_variable_with_two_names_is_initialized_once(self, kind):
        with new_graph() as graph:
            make = getattr(tf.raw_ops, kind)
            v, same = (make(shape=[], dtype=tf.float32, shared_name="v", name=n) for n in "vw")
            if kind == "VarHandleOp":
                tf.raw_ops.AssignVariableOp(resource=v, value=4.0, name="v/Assign")
                tf.raw_ops.ReadVariableOp(resource=same, dtype=tf.float32, name="y")
            else:
                tf1.assign(v, 4.0, name="v/Assign")
                tf.identity(same, name="y")
        self.assertEqual(read_workload(graph, ["y:0"]).step.initializers, ("v/Assign",))
        self.assertEqual(self.run_first_step(graph, "y:0"), 4.0)


if __name__ == "__main__":
    tf.test.main()
