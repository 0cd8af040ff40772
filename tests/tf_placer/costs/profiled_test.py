"""Tests of costs from hand-made profiles."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from graph_passes.op_graph import OpGraph
from tests import graph_parts as parts
from tf_placer.costs.profiled import compute_profiled_costs
from tf_placer.environments.step_profile import OperationProfile, StepProfile

v1 = tf.compat.v1


def _profile(step_secs, **operations: OperationProfile) -> StepProfile:
    return StepProfile(tuple(step_secs), operations)


class ProfiledCostsTest(tf.test.TestCase):
    def setUp(self):
        super().setUp()
        with tf.Graph().as_default() as graph:
            x = v1.placeholder(tf.float32, [None, 2], name="x")
            tf.split(tf.square(x, name="y"), [1, 1], axis=1, name="z")
            tf.ones([3], name="w")
        self.graph = OpGraph.from_graph_def(graph.as_graph_def())

    def secs(self, costs, name: str) -> list[float]:
        return costs.compute_secs[self.graph.index[name]].tolist()

    def test_operations_add_up_to_a_step_without_a_trace(self):
        profile = _profile(
            (9.0, 4.0, 5.0), y=OperationProfile(0.3), z=OperationProfile(0.1, runs=2)
        )
        costs = compute_profiled_costs(self.graph, [profile], [None])
        self.assertEqual(costs.source, "profiled")
        self.assertAllClose(self.secs(costs, "y"), [3.75])
        self.assertAllClose(self.secs(costs, "z"), [1.25])
        self.assertAllClose(costs.compute_secs.sum(), 5.0)
        # Operations that did not run cost nothing.
        self.assertEqual(self.secs(costs, "w"), [0.0])

    def test_prefers_the_step_time_on_the_machine_to_that_of_the_profile(self):
        profile = _profile((4.0,), y=OperationProfile(1.0), z=OperationProfile(1.0))
        costs = compute_profiled_costs(self.graph, [profile] * 3, [None, 8.0, 2.0])
        self.assertAllClose(self.secs(costs, "y"), [2.0, 4.0, 1.0])

    def test_devices_have_their_own_seconds_but_share_sizes(self):
        slow = _profile((3.0,), y=OperationProfile(3.0, temp_bytes=5, output_bytes={0: 16}))
        fast = _profile(
            (1.0,),
            y=OperationProfile(0.5, temp_bytes=7, output_bytes={0: 24}),
            z=OperationProfile(0.5, output_bytes={1: 12}),
        )
        costs = compute_profiled_costs(self.graph, [slow, fast], [None, None])
        self.assertAllClose(self.secs(costs, "y"), [3.0, 0.5])
        self.assertAllClose(self.secs(costs, "z"), [0.0, 0.5])
        self.assertEqual(costs.temp_bytes[self.graph.index["y"]], 7)
        sizes = [
            costs.tensor_bytes[self.graph.tensor_index(name)].item()
            for name in ("x", "y", "z:0", "z:1", "w")
        ]
        # A tensor without known shape that was not observed has no bytes.
        self.assertEqual(sizes, [0, 24, 0, 12, 12])

    def test_prefers_known_shapes_to_observed_bytes(self):
        profile = _profile((1.0,), w=OperationProfile(1.0, output_bytes={0: 999, 7: 5}))
        costs = compute_profiled_costs(self.graph, [profile], [None])
        self.assertEqual(costs.tensor_bytes[self.graph.tensor_index("w")], 12)

    def test_ignores_operations_that_are_not_in_the_graph(self):
        others = {name: OperationProfile(9.0) for name in ("_retval_z_0_0", "y/_27", "RecvTensor")}
        profile = StepProfile((1.0,), {"y": OperationProfile(1.0), **others})
        costs = compute_profiled_costs(self.graph, [profile], [None])
        self.assertAllClose(self.secs(costs, "y"), [1.0])
        self.assertAllClose(costs.compute_secs.sum(), 1.0)

    def test_a_step_without_time_costs_nothing(self):
        profile = _profile((1.0,), y=OperationProfile(0.0))
        costs = compute_profiled_costs(self.graph, [profile, _profile((2.0,))], [None, None])
        self.assertAllEqual(costs.compute_secs, np.zeros([self.graph.num_operations, 2]))

    def test_assigns_inlined_operations_of_a_loop_to_the_loop(self):
        with parts.new_graph() as graph, parts.control_flow(v2=True), tf.name_scope("scope"):
            start = v1.placeholder(tf.float32, [2], name="start")
            v1.while_loop(lambda x: tf.reduce_sum(x) < 9.0, lambda x: x * 2.0, [start])
        op_graph = OpGraph.from_graph_def(graph.as_graph_def())
        [loop] = np.flatnonzero(op_graph.has_type(["While", "StatelessWhile"])).tolist()
        name = op_graph.names[loop]
        inner = (f"{name}/merge/_1", f"{name}/body/_3/mul", f"Func/{name}/body/_3/input/_4")
        seen = OperationProfile(1.0, runs=4, temp_bytes=3, output_bytes={0: 400})
        operations = {**dict.fromkeys(inner, seen), "scope/start": OperationProfile(2.0)}
        costs = compute_profiled_costs(op_graph, [StepProfile((10.0,), operations)], [None])
        self.assertAllClose(costs.compute_secs[loop], [6.0])
        self.assertEqual(costs.temp_bytes[loop], 3)
        # The outputs of the inlined operations are not outputs of the loop.
        self.assertLess(costs.tensor_bytes.max(), 400)

    def test_does_not_change_the_graph(self):
        before = self.graph.tensor_bytes.copy()
        profile = _profile((1.0,), y=OperationProfile(1.0, output_bytes={0: 24}))
        compute_profiled_costs(self.graph, [profile], [None])
        self.assertAllEqual(self.graph.tensor_bytes, before)


if __name__ == "__main__":
    tf.test.main()
