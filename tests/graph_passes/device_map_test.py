from __future__ import annotations

import re

import tensorflow as tf
from absl.testing import parameterized

from graph_passes.device_map import (
    RenameDevices,
    check_new_devices,
    check_old_devices,
    list_devices,
    read_device_map,
)
from graph_passes.errors import GraphError

tf1 = tf.compat.v1

HOST = "/job:localhost/replica:0/task:0"


def build_graph() -> tf1.GraphDef:
    """Builds operations on several devices, one of them in a function."""

    @tf.function
    def double(value):
        with tf.device("/gpu:0"):
            return value * 2.0

    with tf.Graph().as_default() as graph:
        with tf.device(f"{HOST}/device:GPU:0"):
            value = tf.constant(1.0)
        with tf.device(f"{HOST}/device:GPU:1"):
            value = tf.negative(value)
        double(value)
    return graph.as_graph_def()


class DeviceMapTest(parameterized.TestCase, tf.test.TestCase):
    def test_devices_have_short_and_full_names(self):
        self.assertEqual(
            read_device_map({"GPU:0": "GPU:2", "/job:a/task:1/gpu:0": f"{HOST}/device:GPU:3"}),
            {
                "/device:GPU:0": "/device:GPU:2",
                "/job:a/task:1/device:GPU:0": f"{HOST}/device:GPU:3",
            },
        )

    @parameterized.parameters(
        ({"GPU": "GPU:2"}, "has 'GPU', which names no device: write it like 'GPU:0'"),
        ({"GPU:0": "GPU:x"}, "has 'GPU:x', which names no device"),
        ({"GPU:0": ""}, "has '', which names no device"),
        ({"GPU:0": "/job:a/task:1"}, "has '/job:a/task:1', which names no device"),
        ({"GPU:0": 2}, "has 2, which names no device"),
        ({"GPU:0": "GPU:1", "/gpu:0": "GPU:2"}, "has '/device:GPU:0' twice"),
    )
    def test_bad_maps_are_refused(self, device_map, message):
        with self.assertRaisesRegex(GraphError, re.escape(message)):
            read_device_map(device_map)

    def test_both_sides_must_exist(self):
        device_map = read_device_map({"GPU:0": "GPU:2"})
        check_old_devices(device_map, ["/gpu:0"])
        check_old_devices({}, [])
        with self.assertRaisesRegex(GraphError, "renames '/device:GPU:0', where nothing is: .*:1$"):
            check_old_devices(device_map, ["", f"{HOST}/device:GPU:1"])
        check_new_devices(device_map, [f"{HOST}/device:GPU:2"], "the machine")
        with self.assertRaisesRegex(
            GraphError, "to '/device:GPU:2', and the machine has only .*CPU:0: rename it"
        ):
            check_new_devices(device_map, [f"{HOST}/device:CPU:0"], "the machine")

    def test_renames_in_the_graph_and_its_functions(self):
        graph_def = build_graph()
        before = graph_def.SerializeToString(deterministic=True)
        # Both at once: a device that has a new name is not renamed again.
        swap = RenameDevices(read_device_map({"GPU:0": "GPU:1", "GPU:1": "GPU:0"}))
        swapped = swap.run(graph_def)
        self.assertEqual(graph_def.SerializeToString(deterministic=True), before)
        self.assertCountEqual(
            set(list_devices(graph_def)),
            {f"{HOST}/device:GPU:0", f"{HOST}/device:GPU:1", "/device:GPU:0"},
        )
        for old, new in zip(list_devices(graph_def), list_devices(swapped), strict=True):
            place, number = old[:-1], int(old[-1])
            self.assertEqual(new, f"{place}{1 - number}")
        back = swap.run(swapped)
        self.assertEqual(back.SerializeToString(deterministic=True), before)

    def test_returns_the_graph_itself_if_nothing_changes(self):
        graph_def = build_graph()
        rename = RenameDevices(read_device_map({"GPU:5": "GPU:6"}))
        self.assertIs(rename.run(graph_def), graph_def)


if __name__ == "__main__":
    tf.test.main()
