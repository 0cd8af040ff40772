"""Tests of the choice of tensors that wait on the CPU."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from graph_passes.host_copies import AddHostCopies
from graph_passes.pipeline import group_operations
from tests.tf_placer.costs import deep_training
from tf_placer.costs.costed_graph import estimate_costs
from tf_placer.costs.host_copies import choose_host_copies
from tf_placer.inputs.workload import read_workload
from tf_placer.machines.catalog import make_described_machine
from tf_placer.problem.memory_limits import limit_problem
from tf_placer.simulation.simulator import Simulator

v1 = tf.compat.v1


class ChooseHostCopiesTest(tf.test.TestCase):
    def setUp(self):
        super().setUp()
        made = deep_training.build(batch=4096, units=1024, layers=8)
        self.graph = read_workload(made.graph, made.fetches, made.feeds).op_graph
        grouped = group_operations(self.graph, "fine")
        costed = estimate_costs(grouped, make_described_machine("1xK80"))
        self.problem, self.placement = costed.build_placed_problem(None)
        trace = Simulator(self.problem).trace(self.placement)
        self.peak_bytes, self.step_secs = int(trace.peak_bytes[1]), trace.step_secs

    def choose(self, share: float):
        limit = {"GPU:0": int(share * self.peak_bytes)}
        return choose_host_copies(
            self.graph, limit_problem(self.problem, limit, 0.0), self.placement
        )

    def test_chooses_activations_of_the_first_layers(self):
        moved, copies = self.choose(0.7)
        self.assertLen(copies, moved.num_tensors)
        self.assertEqual(copies[0].tensor, "activation_0:0")
        for copy in copies:
            self.assertRegex(copy.tensor, "^activation_")
            # Only the backward pass waits for the copy.
            self.assertTrue(all(name.startswith("gradients/") for name in copy.readers))
            self.assertNotEmpty(copy.gates)
        self.assertGreater(moved.moved_bytes, 0.25 * self.peak_bytes)
        self.assertBetween(moved.step_secs, self.step_secs, 1.2 * self.step_secs)

    def test_the_graph_with_copies_takes_less_memory_by_simulation(self):
        moved, copies = self.choose(0.7)
        changed = read_workload(
            AddHostCopies(copies).run(self.graph.graph_def), ["train", "loss:0"]
        )
        grouped = group_operations(changed.op_graph, "fine")
        costed = estimate_costs(grouped, make_described_machine("1xK80"))
        problem, placement = costed.build_placed_problem(None)
        again = Simulator(problem).trace(placement)
        self.assertLessEqual(again.peak_bytes[1], 0.75 * self.peak_bytes)
        self.assertAlmostEqual(again.step_secs / moved.step_secs, 1.0, delta=0.1)

    def test_copies_close_no_cycle_where_operations_may_write_in_place(self):
        # The sum of the residual connections may be in the memory of either branch.
        batch, units = 4096, 1024
        with tf.Graph().as_default() as graph:
            hidden = v1.placeholder(tf.float32, [batch, units], name="x")
            for layer in range(4):
                weights = v1.get_variable(f"weights_{layer}", [units, units], use_resource=True)
                centered = hidden - tf.reduce_mean(hidden, 1, keepdims=True)
                scale = tf.math.rsqrt(tf.reduce_mean(centered * centered, 1, keepdims=True) + 1e-3)
                hidden += tf.nn.relu(centered * scale @ weights)
            loss = tf.reduce_sum(hidden, name="loss")
            v1.train.GradientDescentOptimizer(1e-4).minimize(loss, name="train")
        feeds = {"x:0": np.zeros([batch, units], np.float32)}
        op_graph = read_workload(graph, ["train", "loss:0"], feeds).op_graph
        costed = estimate_costs(group_operations(op_graph, "fine"), make_described_machine("1xK80"))
        problem, placement = costed.build_placed_problem(None)
        peak_bytes = int(Simulator(problem).trace(placement).peak_bytes[1])
        for share in (0.8, 0.6, 0.4):
            limited = limit_problem(problem, {"GPU:0": int(share * peak_bytes)}, 0.0)
            moved, copies = choose_host_copies(op_graph, limited, placement)
            self.assertLen(copies, moved.num_tensors)
            AddHostCopies(copies).run(op_graph.graph_def)

    def test_moves_nothing_where_all_fits_and_says_what_never_fits(self):
        moved, copies = self.choose(1.1)
        self.assertEqual((moved.num_tensors, copies), (0, []))
        self.assertIsNone(self.choose(0.05))


if __name__ == "__main__":
    tf.test.main()
