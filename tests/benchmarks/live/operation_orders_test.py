"""Tests of the table of steps with an order of their operations."""

from __future__ import annotations

import pathlib
from unittest import mock

import tensorflow as tf

from benchmarks.live import operation_orders
from tests.graph_parts import new_graph

v1 = tf.compat.v1


class OperationOrdersTest(tf.test.TestCase):
    def test_the_table_has_simulated_and_measured_steps(self):
        out = pathlib.Path(self.create_tempdir().full_path)
        run: list[tf.compat.v1.GraphDef] = []

        def measure(graph_defs, fetch, feeds, initializer, rounds):
            run.extend(graph_defs)
            return [[0.6, 0.4, 0.5], [0.5, 0.4, 0.4]]

        with mock.patch.object(operation_orders, "measure_in_turns", measure):
            operation_orders.main(
                [
                    *("--models=inception_v3_batch_1", "--small", "--placing_secs=1"),
                    *("--ordering_secs=1", "--slowdown=10", f"--out_dir={out}"),
                ]
            )
        row = next(line for line in (out / "table.md").read_text().splitlines() if "| inc" in line)
        self.assertRegex(
            row, r"\| [\d,]+ \| .* ms \| .* ms \| 1\.\d+x \| 50.00 ms \| 40.00 ms \| 1.2"
        )
        before, after = (
            {(node.name, each) for node in graph_def.node for each in node.input}
            for graph_def in run
        )
        self.assertTrue(all(each.startswith("^") for _, each in after - before))
        self.assertEmpty(before - after)
        self.assertEqual(*([node.device for node in graph_def.node] for graph_def in run))

    def test_graphs_take_turns(self):
        with new_graph() as graph:
            counter = v1.get_variable("counter", initializer=0.0, use_resource=True)
            with tf.control_dependencies([v1.assign_add(counter, 1.0)]):
                tf.no_op(name="step")
            v1.global_variables_initializer()
        graph_def = graph.as_graph_def()
        secs = operation_orders.measure_in_turns([graph_def] * 2, "step", {}, "init", 3)
        self.assertEqual([len(each) for each in secs], [3, 3])
        self.assertTrue(all(each > 0 for row in secs for each in row))


if __name__ == "__main__":
    tf.test.main()
