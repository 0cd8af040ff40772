"""Tests of analytic costs against costs computed by hand."""

from __future__ import annotations

import dataclasses

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from graph_passes.op_graph import OpGraph
from tests import graph_parts, graphs
from tf_placer.costs.analytic import compute_analytic_costs
from tf_placer.machines.catalog import make_described_machine
from tf_placer.machines.machine import Device, DeviceClass, Link, Machine, MachineError

tf1 = tf.compat.v1

# The GPU reaches 1e12 operations and 1e11 bytes per second, the CPU a tenth of that.
_CLASSES = (
    DeviceClass("Host", "CPU", 10**12, 2e11, 2e10, 1e-6, 0.5, 0.5, 1, ""),
    DeviceClass("Fast", "GPU", 10**11, 4e12, 2e11, 1e-5, 0.25, 0.5, 1, ""),
)
_MACHINE = Machine(
    "box",
    "described",
    (Device("a", "CPU", 10**12, model="Host"), Device("b", "GPU", 10**11, model="Fast")),
    (Link("a", "b", 1e-5, 1e10), Link("b", "a", 1e-5, 1e10)),
    _CLASSES,
)


def _floats(*shape: int | None) -> tf.Tensor:
    return tf1.placeholder(tf.float32, list(shape))


class AnalyticCostsTest(tf.test.TestCase, parameterized.TestCase):
    def assert_secs(self, graph: tf.Graph, name: str, on_cpu: float, on_gpu: float) -> None:
        op_graph = OpGraph.from_graph_def(graph.as_graph_def())
        costs = compute_analytic_costs(op_graph, _MACHINE)
        self.assertEqual(costs.source, "analytic")
        self.assertEqual(costs.compute_secs.dtype, np.float64)
        self.assertEqual(costs.compute_secs.shape, (op_graph.num_operations, 2))
        np.testing.assert_allclose(
            costs.compute_secs[op_graph.index[name]], [on_cpu, on_gpu], rtol=1e-12
        )

    def test_operations_without_kernel_take_no_time(self):
        with tf.Graph().as_default() as graph:
            tf.identity(_floats(4), name="x")
        self.assert_secs(graph, "x", 0.0, 0.0)

    def test_a_large_product_is_limited_by_computation(self):
        with tf.Graph().as_default() as graph:
            tf.matmul(_floats(1000, 1000), _floats(1000, 1000), name="x")
        self.assert_secs(graph, "x", 1e-6 + 2e9 / 1e11, 1e-5 + 2e9 / 1e12)

    def test_a_thin_product_is_limited_by_bandwidth(self):
        with tf.Graph().as_default() as graph:
            tf.matmul(_floats(1, 1000), _floats(1000, 1000), name="x")
        touched = 4 * (1000 + 1_000_000 + 1000)
        self.assert_secs(graph, "x", 1e-6 + touched / 1e10, 1e-5 + touched / 1e11)

    def test_an_elementwise_operation_is_limited_by_bandwidth(self):
        with tf.Graph().as_default() as graph:
            tf.tanh(_floats(1000, 1000), name="x")
        self.assert_secs(graph, "x", 1e-6 + 8e6 / 1e10, 1e-5 + 8e6 / 1e11)

    def test_reshaping_is_free(self):
        with tf.Graph().as_default() as graph:
            tf.reshape(_floats(1000, 1000), [-1], name="x")
        self.assert_secs(graph, "x", 0, 0)

    def test_int32_scalars_are_free_on_a_gpu(self):
        with tf.Graph().as_default() as graph:
            tf.add(tf1.placeholder(tf.int32, []), 1, name="x")
        self.assert_secs(graph, "x", 1e-6 + 12 / 1e10, 0)

    def test_launches_and_updates_do_not_shrink_with_the_batch(self):
        with tf.Graph().as_default() as graph:
            variable = tf1.get_variable("v", [10**6], use_resource=True)
            total = tf.reduce_sum(tf.exp(_floats(10**6)), name="sum")
            tf.raw_ops.ResourceApplyGradientDescent(
                var=variable.handle, alpha=0.1, delta=tf.fill([10**6], total), name="update"
            )
        op_graph = OpGraph.from_graph_def(graph.as_graph_def())
        costs = compute_analytic_costs(op_graph, _MACHINE)
        for device, launch_secs in enumerate((1e-6, 1e-5)):
            for name in ("sum", "Exp"):
                self.assertAlmostEqual(
                    costs.fixed_secs[op_graph.index[name], device], launch_secs, places=12
                )
            update = op_graph.index["update"]
            self.assertEqual(costs.fixed_secs[update, device], costs.compute_secs[update, device])
        self.assertTrue((costs.fixed_secs <= costs.compute_secs).all())

    def test_a_loop_takes_the_time_of_all_iterations(self):
        with tf.Graph().as_default() as graph, graph_parts.control_flow(v2=True):
            tf1.while_loop(
                lambda step, value: True,
                lambda step, value: (step, tf.matmul(value, value)),
                (tf.constant(0), _floats(1000, 1000)),
                maximum_iterations=3,
            )
        op_graph = OpGraph.from_graph_def(graph.as_graph_def())
        secs = compute_analytic_costs(op_graph, _MACHINE).compute_secs[op_graph.index["while"], 1]
        # At most two launches per iteration compute positions and conditions.
        self.assertBetween(secs, 3 * (1e-5 + 2e9 / 1e12), 3 * 2e9 / 1e12 + 15e-5)

    def test_only_convolutions_need_temporary_memory(self):
        with tf.Graph().as_default() as graph:
            tf.nn.conv2d(_floats(2, 8, 8, 3), _floats(3, 3, 3, 7), 1, "SAME", name="conv")
            tf.matmul(_floats(2, 3), _floats(3, 5), name="product")
        op_graph = OpGraph.from_graph_def(graph.as_graph_def())
        temp_bytes = compute_analytic_costs(op_graph, _MACHINE).temp_bytes
        touched = 4 * (2 * 8 * 8 * 3 + 3 * 3 * 3 * 7 + 2 * 8 * 8 * 7)
        self.assertEqual(temp_bytes[op_graph.index["conv"]], touched)
        self.assertEqual(temp_bytes.sum(), touched)

    def test_small_products_reach_a_share_of_the_speed(self):
        gpu = dataclasses.replace(_CLASSES[1], full_product_size=128)
        machine = dataclasses.replace(_MACHINE, classes=(_CLASSES[0], gpu))
        with tf.Graph().as_default() as graph:
            tf.matmul(_floats(1000, 64), _floats(64, 1000), name="half")
            tf.matmul(_floats(1000, 1000), _floats(1000, 1000), name="full")
        op_graph = OpGraph.from_graph_def(graph.as_graph_def())
        secs = compute_analytic_costs(op_graph, machine).compute_secs
        half, full = op_graph.index["half"], op_graph.index["full"]
        np.testing.assert_allclose(secs[half], [1e-6 + 1.28e8 / 1e11, 1e-5 + 1.28e8 / 0.5e12])
        np.testing.assert_allclose(secs[full], [1e-6 + 2e9 / 1e11, 1e-5 + 2e9 / 1e12])

    @parameterized.parameters((10**9, 4 * 2 * 8 * 8 * 27), (5000, 5000))
    def test_a_convolution_takes_a_workspace_if_its_class_says_so(self, limit, expected):
        gpu = dataclasses.replace(_CLASSES[1], workspace_bytes=limit)
        machine = dataclasses.replace(_MACHINE, classes=(_CLASSES[0], gpu))
        with tf.Graph().as_default() as graph:
            tf.nn.conv2d(_floats(2, 8, 8, 3), _floats(3, 3, 3, 7), 1, "SAME", name="conv")
        op_graph = OpGraph.from_graph_def(graph.as_graph_def())
        plain, held = (
            compute_analytic_costs(op_graph, each).temp_bytes[op_graph.index["conv"]]
            for each in (_MACHINE, machine)
        )
        self.assertEqual(held - plain, expected)

    def test_a_call_holds_the_bytes_of_its_largest_operation(self):
        with tf.Graph().as_default() as graph:

            @tf.function
            def body(value):
                return tf.reduce_sum(tf.tanh(value))

            body(_floats(10, 10))
        op_graph = OpGraph.from_graph_def(graph.as_graph_def())
        self.assertEqual(compute_analytic_costs(op_graph, _MACHINE).temp_bytes.max(), 2 * 400)

    @parameterized.parameters(*graphs.FACTORIES)
    def test_costs_of_all_graphs_are_finite(self, name):
        test_graph = graphs.share_graph(name)
        op_graph = OpGraph.from_graph_def(test_graph.graph.as_graph_def(), test_graph.fetches)
        costs = compute_analytic_costs(op_graph, make_described_machine("2xK80"))
        self.assertEqual(costs.compute_secs.dtype, np.float64)
        self.assertEqual(costs.compute_secs.shape, (op_graph.num_operations, 3))
        self.assertTrue(np.isfinite(costs.compute_secs).all())
        self.assertTrue((costs.compute_secs >= 0).all())
        np.testing.assert_array_equal(costs.compute_secs[:, 1], costs.compute_secs[:, 2])
        self.assertEqual(costs.temp_bytes.shape, (op_graph.num_operations,))
        self.assertEqual(costs.tensor_bytes.shape, op_graph.tensor_dtypes.shape)
        self.assertGreaterEqual(costs.tensor_bytes.min(), 0)
        # 10 us per kernel on the GPU against 3 us on the CPU.
        self.assertGreater(costs.compute_secs[:, 1].sum(), costs.compute_secs[:, 0].sum())

    def test_rejects_machines_without_description(self):
        op_graph = OpGraph.from_graph_def(graphs.matmul_chain().graph.as_graph_def())
        machine = Machine("attached", "attached", (Device("a", "CPU"),), ())
        with self.assertRaisesRegex(MachineError, "'attached': the device class of a is unknown"):
            compute_analytic_costs(op_graph, machine)


if __name__ == "__main__":
    tf.test.main()
