"""Tests of the test graphs: deterministic, trainable, with the operations of their names."""

from __future__ import annotations

import collections

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from tests import graphs

tf1 = tf.compat.v1

STEPS = 3


def fetch_values(made: graphs.TestGraph) -> list[dict[str, np.ndarray]]:
    """Fetches the tensors of the first steps in a fresh session."""
    with tf1.Session(graph=made.graph) as session:
        session.run(list(made.initializers))
        return [
            {
                name: value
                for name, value in session.run(
                    {name: name for name in made.fetches}, dict(made.feeds)
                ).items()
                if value is not None
            }
            for _ in range(STEPS)
        ]


def count_types(made: graphs.TestGraph) -> collections.Counter:
    return collections.Counter(op.type for op in made.graph.get_operations())


class GraphsTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters(*graphs.FACTORIES)
    def test_values_are_equal_in_every_session_and_build(self, name):
        made = graphs.share_graph(name)
        values = fetch_values(made)
        for again in (fetch_values(made), fetch_values(graphs.FACTORIES[name]())):
            self.assertAllClose(values, again, rtol=1e-6, atol=0)
        for step in values:
            self.assertNotEmpty(step)
            for value in step.values():
                self.assertEqual(value.dtype, np.float32)
                self.assertEqual(value.shape, ())
                self.assertTrue(np.isfinite(value))

    @parameterized.parameters(
        *(name for name in graphs.FACTORIES if name not in ("two_branches", "matmul_chain"))
    )
    def test_every_step_changes_the_loss_and_every_trained_variable(self, name):
        made = graphs.FACTORIES[name]()
        self.assertIn("train", made.fetches)
        with made.graph.as_default(), tf1.Session() as session:
            # Reads are added to the graph; its own operations stay the same.
            variables = tf1.trainable_variables()
            session.run(list(made.initializers))
            before = session.run(variables)
            losses = [
                session.run(made.fetches, dict(made.feeds))[made.fetches.index("loss:0")]
                for _ in range(STEPS)
            ]
            after = session.run(variables)
        self.assertLen(set(losses), STEPS)
        for variable, old, new in zip(variables, before, after, strict=True):
            self.assertNotAllEqual(old, new, variable.name)

    @parameterized.parameters(
        ("v1_ref_variables", ["VariableV2", "ApplyAdam"], ["VarHandleOp"]),
        ("resource_variables", ["VarHandleOp", "ResourceApplyAdam"], ["VariableV2"]),
        ("while_loop_v1", ["Enter", "NextIteration", "TensorArrayV3", "StackPopV2"], ["While"]),
        ("while_loop_v2", ["While", "TensorListStack"], ["Enter", "TensorArrayV3"]),
        ("cond_v1", ["Switch", "Merge"], ["If", "StatelessIf"]),
        ("cond_v2", ["If"], ["Switch", "Merge"]),
        ("tf_data_iterators", ["OneShotIterator", "IteratorV2", "MakeIterator"], []),
        ("lookup_table_and_strings", ["HashTableV2", "LookupTableFindV2", "StringSplit"], []),
        ("saver_and_summaries", ["SaveV2", "RestoreV2", "MergeSummary", "HistogramSummary"], []),
        ("function_call", ["PartitionedCall"], []),
        ("small_convnet", ["ConcatV2", "Conv2DBackpropFilter", "FusedBatchNormGradV3"], []),
        (
            "residual_convnet",
            ["AddV2", "Conv2DBackpropFilter", "FusedBatchNormGradV3"],
            ["ConcatV2"],
        ),
    )
    def test_contains_the_operations_of_its_name(self, name, present, absent):
        types = count_types(graphs.share_graph(name))
        self.assertContainsSubset(present, types)
        self.assertEmpty(set(absent) & set(types))

    @parameterized.parameters("v1_ref_variables", "resource_variables")
    def test_perceptron_trains_with_rmsprop(self, name):
        made = getattr(graphs, name)("rmsprop")
        prefix = "Resource" if name == "resource_variables" else ""
        self.assertIn(f"{prefix}ApplyRMSProp", count_types(made))
        self.assertLen({step["loss:0"] for step in fetch_values(made)}, STEPS)

    @parameterized.parameters(True, False)
    def test_control_flow_setting_of_the_process_is_unchanged(self, enabled):
        before = tf1.control_flow_v2_enabled()
        switch = {True: tf1.enable_control_flow_v2, False: tf1.disable_control_flow_v2}
        try:
            switch[enabled]()
            for name in ("while_loop_v1", "while_loop_v2", "cond_v1", "cond_v2"):
                graphs.FACTORIES[name]()
                self.assertEqual(tf1.control_flow_v2_enabled(), enabled, name)
        finally:
            switch[before]()

    def test_branches_have_separate_data_and_the_requested_size(self):
        made = graphs.two_branches(n=16, depth=4)
        self.assertEqual(count_types(made)["MatMul"], 8)
        with tf1.Session(graph=made.graph) as session:
            session.run(list(made.initializers))
            with made.graph.as_default():
                values = session.run(tf1.global_variables())
        self.assertLen({value.tobytes() for value in values}, 4)
        self.assertEqual({value.shape for value in values}, {(16, 16)})

    def test_values_of_a_long_chain_stay_in_range(self):
        (first, *_) = fetch_values(graphs.matmul_chain(n=64, depth=100))
        self.assertBetween(float(first["result:0"]), 1e-6, 1e6)


if __name__ == "__main__":
    tf.test.main()
