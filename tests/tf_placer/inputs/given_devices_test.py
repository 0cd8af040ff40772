from __future__ import annotations

import tensorflow as tf

from graph_passes.errors import GraphError
from graph_passes.op_graph import OpGraph
from tf_placer.inputs.given_devices import check_given_devices
from tf_placer.machines.catalogue import described_machine

tf1 = tf.compat.v1


def graph_on(device: str) -> OpGraph:
    """A graph whose step has an operation on a device, and another one is on one without it."""
    with tf.Graph().as_default() as graph:
        with tf.device(device):
            tf.constant(1.0, name="x")
        with tf.device("/job:elsewhere"):
            tf.constant(1.0, name="unused")
    return OpGraph.from_graph_def(graph.as_graph_def(), ["x"])


class CheckGivenDevicesTest(tf.test.TestCase):
    def setUp(self):
        super().setUp()
        self.machine = described_machine("2xK80")

    def test_devices_of_the_machine_are_accepted(self):
        for device in ("", "/gpu:1", "/cpu:0", "/device:GPU:*"):
            check_given_devices(graph_on(device), self.machine)

    def test_another_device_is_named_with_its_operation(self):
        for device in ("/gpu:2", "/job:worker/task:1"):
            with self.assertRaisesRegex(GraphError, "has 'x' on .*2xK80 has only .*GPU:1: clear"):
                check_given_devices(graph_on(device), self.machine)

    def test_soft_placement_needs_the_task_only(self):
        check_given_devices(graph_on("/gpu:2"), self.machine, soft=True)
        with self.assertRaisesRegex(GraphError, "on /job:worker/task:1"):
            check_given_devices(graph_on("/job:worker/task:1"), self.machine, soft=True)


if __name__ == "__main__":
    tf.test.main()
