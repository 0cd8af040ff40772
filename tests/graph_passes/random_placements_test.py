"""Tests that random legal placements run and compute the same as the unplaced graph."""

from __future__ import annotations

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from graph_passes.annotate import Annotate
from graph_passes.op_graph import OpGraph
from graph_passes.pipeline import group_operations
from tests import graphs
from tests.graph_passes.logical_devices import device_names, run_steps

DEVICES = device_names(3)


class RandomPlacementsTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters(
        ("v1_ref_variables", 10),
        ("resource_variables", 10),
        ("while_loop_v1", 10),
        ("while_loop_v2", 10),
        ("tf_data_iterators", 10),
        ("lookup_table_and_strings", 10),
        ("saver_and_summaries", 10),
        ("cond_v1", 10),
        ("cond_v2", 10),
        ("function_call", 10),
        ("lstm", 5),
        ("small_convnet", 5),
        ("residual_convnet", 5),
    )
    def test_coarse_groups_run_on_their_devices_and_compute_the_same(self, name, count):
        self.check(name, count, "coarse")

    @parameterized.parameters(
        "v1_ref_variables",
        "while_loop_v1",
        "while_loop_v2",
        "cond_v1",
        "cond_v2",
        "tf_data_iterators",
        "lookup_table_and_strings",
        "function_call",
        "residual_convnet",
    )
    def test_fine_groups_run_on_their_devices_and_compute_the_same(self, name):
        self.check(name, 4, "fine")

    def check(self, name: str, count: int, grouping: str):
        made = graphs.share_graph(name)
        graph_def = made.graph.as_graph_def()
        expected = run_steps(graph_def, made, devices=len(DEVICES)).values
        op_graph = OpGraph.from_graph_def(graph_def, made.fetches, tuple(made.feeds))
        grouped = group_operations(op_graph, grouping)
        legal = grouped.grouping.legal_devices(grouped.colocation, DEVICES)
        self.assertGreaterEqual(grouped.num_decisions, 2)
        # TensorFlow moves every Switch to its data input, even to a feed.
        switches = {node.name for node in graph_def.node if node.op == "Switch"}
        random = np.random.default_rng(0)
        placements = set()
        for _ in range(count):
            row = np.array([random.choice(np.flatnonzero(choices)) for choices in legal], np.int32)
            assignment = grouped.assignment(row, DEVICES)
            placed = Annotate(assignment).run(graph_def)
            run = run_steps(placed, made, devices=len(DEVICES))
            self.assertAllClose(run.values, expected, rtol=1e-5, atol=1e-7, msg=str(row))
            checked = assignment.keys() & run.devices.keys() - switches
            self.assertNotEmpty(checked)
            for operation in checked:
                self.assertEqual(run.devices[operation], assignment[operation], operation)
            placements.add(tuple(row))
        self.assertGreater(len(placements), count / 2)


if __name__ == "__main__":
    tf.test.main()
