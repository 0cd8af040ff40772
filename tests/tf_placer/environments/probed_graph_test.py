"""Tests of values that two placements of a graph must agree on."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from tf_placer.environments.loaded_graph import SessionFailed
from tf_placer.environments.probed_graph import ProbedGraph, seed_random_operations
from tf_placer.environments.tensor_file import read_tensors

v1 = tf.compat.v1
_CPU = [
    "/job:localhost/replica:0/task:0/device:CPU:0",
    "/job:localhost/replica:0/task:0/device:CPU:1",
]


def _training_graph(units: int = 3, use_resource: bool = True) -> tf.Graph:
    """Random initializers, random data, a loop, dropout, an optimizer with slots."""
    with tf.Graph().as_default() as graph:
        data = tf.data.Dataset.range(64).shuffle(64).repeat().batch(4)
        iterator = v1.data.make_initializable_iterator(data)
        x = tf.cast(iterator.get_next(), tf.float32)[:, tf.newaxis] / 64.0
        w = v1.get_variable("w", [1, units], use_resource=use_resource)
        v1.get_variable("unused", [2], use_resource=use_resource)
        h = tf.nn.dropout(tf.matmul(x, w), rate=0.5)
        _, h = tf.while_loop(
            lambda i, _: i < 3, lambda i, h: (i + 1, tf.tanh(h) + tf.reduce_mean(w)), [0, h]
        )
        loss = tf.reduce_mean(tf.square(h + tf.random.normal([4, units])), name="loss")
        v1.train.AdamOptimizer(0.1).minimize(loss, name="train")
        initializers = [v.initializer for v in v1.global_variables()]
        tf.group(*initializers, iterator.initializer, name="init")
    return graph


class ProbedGraphTest(tf.test.TestCase):
    def values(
        self,
        graph: tf.Graph,
        assignment=None,
        fetches=("train", "loss:0"),
        tensors=(),
        **settings,
    ):
        settings = {"feeds": {}, "initializers": ["init"], **settings}
        path = self.create_tempfile().full_path
        probed = ProbedGraph(
            graph.as_graph_def(),
            fetches=fetches,
            target="",
            config=v1.ConfigProto(device_count={"CPU": 2}, allow_soft_placement=True),
            **settings,
        )
        probed.write_values(assignment or {}, 2, path, 60.0, lambda stage: None, tensors)
        return read_tensors(path)

    def test_the_fetches_of_each_step_and_the_variables_that_the_step_needs(self):
        for use_resource in (True, False):
            values = self.values(_training_graph(use_resource=use_resource))
            self.assertContainsSubset(
                {"loss:0@1", "loss:0@2", "w", "w/Adam", "w/Adam_1", "beta1_power"}, set(values)
            )
            self.assertNotIn("unused", values)
            self.assertNotIn("train@1", values)
            self.assertEqual(values["w"].shape, (1, 3))
            # Adam has moved it twice by about its learning rate.
            self.assertAllClose(values["beta1_power"], 0.9**3)

    def test_other_tensors_are_fetched_in_the_same_step(self):
        values = self.values(_training_graph(), tensors=["Square:0", "loss:0"])
        for step in (1, 2):
            loss = values[f"loss:0@{step}"]
            self.assertAllClose(np.mean(values[f"Square:0@{step}"]), loss)
        self.assertNotAllClose(values["loss:0@1"], values["loss:0@2"])

    def test_every_placement_computes_the_same(self):
        for use_resource in (True, False):
            graph = _training_graph(use_resource=use_resource)
            original = self.values(graph)
            for device in _CPU:
                assignment = {
                    op.name: device
                    for op in graph.get_operations()
                    if op.name.startswith(("w", "dropout", "random_normal", "loss"))
                }
                placed = self.values(graph, assignment)
                self.assertEqual(list(placed), list(original))
                for name, value in original.items():
                    self.assertAllClose(placed[name], value, msg=name)

    def test_steps_differ_from_one_another(self):
        values = self.values(_training_graph())
        self.assertNotAllClose(values["loss:0@1"], values["loss:0@2"])

    def test_another_graph_computes_something_else(self):
        graph = _training_graph()
        other = v1.GraphDef()
        other.CopyFrom(graph.as_graph_def())
        for node in other.node:
            if node.name == "loss":
                node.op = "Max"
        with tf.Graph().as_default() as changed:
            tf.import_graph_def(other, name="")
        self.assertNotAllClose(self.values(changed)["loss:0@1"], self.values(graph)["loss:0@1"])

    def test_random_operations_with_different_names_differ(self):
        with tf.Graph().as_default() as graph:
            tf.identity(tf.random.uniform([3]), name="a")
            tf.identity(tf.random.uniform([3]), name="b")
            tf.no_op("init")
        values = self.values(graph, fetches=["a:0", "b:0"])
        self.assertNotAllClose(values["a:0@1"], values["b:0@1"])

    def test_a_variable_without_a_value_is_left_out(self):
        with tf.Graph().as_default() as graph:
            v1.get_variable("empty", [2], use_resource=True)
            full = v1.get_variable(
                "full", [2], initializer=v1.ones_initializer(), use_resource=True
            )
            handle = graph.get_operation_by_name("empty").outputs[0]
            with tf.control_dependencies([tf.raw_ops.VarIsInitializedOp(resource=handle)]):
                tf.identity(full, name="y")
            tf.group(full.initializer, name="init")
        values = self.values(graph, fetches=["y:0"])
        self.assertEqual(list(values), ["y:0@1", "y:0@2", "full"])

    def test_a_failing_step_is_an_error(self):
        with self.assertRaises(SessionFailed):
            self.values(_training_graph(), initializers=[])


class SeedRandomOperationsTest(tf.test.TestCase):
    def test_given_seeds_stay_and_missing_ones_come(self):
        with tf.Graph().as_default() as graph:
            tf.random.uniform([3], name="free")
            tf.random.uniform([3], seed=7, name="given")
            tf.constant(1.0, name="constant")
        graph_def = graph.as_graph_def()
        before = {node.name: node.SerializeToString(deterministic=True) for node in graph_def.node}
        seed_random_operations(graph_def)
        changed = [
            node.name
            for node in graph_def.node
            if node.SerializeToString(deterministic=True) != before[node.name]
        ]
        self.assertEqual(changed, ["free/RandomUniform"])
        node = next(node for node in graph_def.node if node.name == "free/RandomUniform")
        self.assertGreater(node.attr["seed"].i, 0)

    def test_an_attribute_left_out_counts_as_zero(self):
        with tf.Graph().as_default() as graph:
            tf.random.uniform([3], name="free")
        graph_def = graph.as_graph_def()
        node = next(node for node in graph_def.node if node.op == "RandomUniform")
        del node.attr["seed"]
        del node.attr["seed2"]
        seed_random_operations(graph_def)
        self.assertGreater(node.attr["seed"].i, 0)

    def test_functions_are_seeded_too(self):
        with tf.Graph().as_default() as graph:
            tf.function(lambda: tf.random.uniform([3]))()
        graph_def = graph.as_graph_def()
        seed_random_operations(graph_def)
        seeds = [
            node.attr["seed"].i
            for function in graph_def.library.function
            for node in function.node_def
            if node.op == "RandomUniform"
        ]
        self.assertNotEmpty(seeds)
        self.assertNotIn(0, seeds)


if __name__ == "__main__":
    tf.test.main()
