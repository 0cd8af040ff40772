"""Tests of TensorFlow's simulated machine."""

from __future__ import annotations

import tensorflow as tf
from absl.testing import absltest

from benchmarks.simulator.virtual_cluster import (
    VirtualCluster,
    one_cpu_and_k80s,
    plain_device,
    virtual_cluster_secs,
)


def _two_products(first_device: str, second_device: str) -> tf.compat.v1.GraphDef:
    """A product of a matrix with itself, and once more; fetched is "second"."""
    with tf.Graph().as_default() as graph:
        x = tf.compat.v1.placeholder(tf.float32, [512, 512], name="x")
        first = tf.matmul(x, x, name="first")
        tf.matmul(first, first, name="second")
    graph_def = graph.as_graph_def()
    for node, device in zip(
        graph_def.node, (first_device, first_device, second_device), strict=True
    ):
        node.device = device
    return graph_def


class VirtualClusterTest(absltest.TestCase):
    def setUp(self):
        super().setUp()
        self.devices = one_cpu_and_k80s(2)
        self.cpu, self.gpu, self.other_gpu = [device.name for device in self.devices]

    def test_step_has_the_times_and_sizes_of_every_operation(self):
        with VirtualCluster(self.devices) as cluster:
            step = cluster.measure(_two_products(self.gpu, self.gpu), ["second"])
        self.assertEqual(set(step.devices.values()), {self.gpu})
        self.assertEqual(step.output_bytes["first"], (512 * 512 * 4,))
        self.assertEqual(step.start_nanos["second"], step.nanos["x"] + step.nanos["first"])
        self.assertEqual(step.step_nanos, sum(step.nanos.values()))

    def test_an_operation_takes_longer_on_the_cpu(self):
        with VirtualCluster(self.devices) as cluster:
            step = cluster.measure(_two_products(self.cpu, self.gpu), ["second"])
        self.assertGreater(step.nanos["first"], step.nanos["second"])

    def test_a_tensor_travels_for_nothing_by_itself(self):
        with VirtualCluster(self.devices) as cluster:
            together = cluster.measure(_two_products(self.gpu, self.gpu), ["second"])
            apart = cluster.measure(_two_products(self.gpu, self.other_gpu), ["second"])
        self.assertEqual(apart.step_nanos, together.step_nanos + 2)
        self.assertLen(apart.nanos, len(together.nanos) + 2)  # _Send and _Recv

    def test_cluster_is_closed_after_an_error(self):
        for _ in range(2):
            with self.assertRaises(ZeroDivisionError), VirtualCluster([plain_device(0)]):
                raise ZeroDivisionError

    def test_simulation_itself_takes_time_and_leaves_the_graph_as_it_is(self):
        graph_def = _two_products(self.cpu, self.cpu)
        before = graph_def.SerializeToString(deterministic=True)
        placement = {node.name: self.gpu for node in graph_def.node}
        secs = virtual_cluster_secs(graph_def, ["second"], placement, self.devices)
        self.assertGreater(secs, 0)
        self.assertEqual(graph_def.SerializeToString(deterministic=True), before)


if __name__ == "__main__":
    absltest.main()
