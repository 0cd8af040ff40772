"""Tests of the command that sets the order in which GPUs are handed operations."""

from __future__ import annotations

import json
import os

import tensorflow as tf

from graph_passes.placement import Placement, write_placement
from tests.tf_placer.cli.profile_command_test import ProfileCommandTestCase
from tf_placer.inputs.graph_files import write_graph
from tf_placer.inputs.workload import read_graph

v1 = tf.compat.v1
_CPU, _GPU_0, _GPU_1 = (
    f"/job:localhost/replica:0/task:0/device:{name}" for name in ("CPU:0", "GPU:0", "GPU:1")
)


class OrderCommandTest(ProfileCommandTestCase):
    def setUp(self):
        super().setUp()
        # The other GPU waits for "short", which is behind "long" on the first one.
        with tf.Graph().as_default() as graph:
            x = tf.ones([4096, 4096], name="x") * v1.placeholder_with_default(1.0, [], name="by")
            long = tf.matmul(tf.matmul(x, x, name="long"), x, name="longer")
            short = tf.reduce_sum(x, name="short")
            other = tf.tanh(tf.zeros([4096, 4096]) + short, name="other")
            for number in range(20):
                other = tf.matmul(other, other, name=f"other_{number}") / 4096.0
            tf.add(long, other, name="step")
        self.graph_def = graph.as_graph_def()
        write_graph(self.path("in.pb"), self.graph_def, None)
        names = [node.name for node in self.graph_def.node]
        devices = {
            name: _GPU_1 if name.startswith(("other", "truediv", "add", "zeros")) else _GPU_0
            for name in names
        }
        placement = Placement("", (_CPU, _GPU_0, _GPU_1), devices)
        write_placement(placement, self.path("placement.json"))

    def order(self, *arguments: str, output: str = "out.pb") -> str:
        return self.call(
            "order",
            f"--input_graph={self.path('in.pb')}",
            f"--output_graph={self.path(output)}",
            "--fetches=step",
            "--max_secs=1",
            *arguments,
        )

    def test_writes_the_placed_graph_with_control_edges(self):
        placement = f"--placement={self.path('placement.json')}"
        values = json.loads(self.order("--machine=2xK80", placement, "--json"))
        self.assertLess(values["step_secs"], 0.95 * values["unordered_secs"])
        written = read_graph(self.path("out.pb")).graph_def
        edges = [
            (name, node.name) for node in written.node for name in node.input if name[0] == "^"
        ]
        self.assertLen(edges, values["control_edges"])
        self.assertEqual({node.device for node in written.node}, {"", _GPU_0, _GPU_1})

    def test_says_what_the_order_saves(self):
        printed = self.order("--machine=2xK80", f"--placement={self.path('placement.json')}")
        self.assertRegex(
            printed,
            r"s a step by simulation in the order of \d+ control edges, [\d.]+ m?s without, "
            r"\d\.\d\dx as fast",
        )
        self.assertIn(f"graph: {self.path('out.pb')}", printed)

    def test_sets_no_order_where_none_helps(self):
        self.assertIn("none was set", self.order("--machine=1xK80"))
        self.assertEqual(read_graph(self.path("out.pb")).graph_def, self.graph_def)

    def test_refuses_what_cannot_be(self):
        source, target = (
            f"--input_graph={self.path('in.pb')}",
            f"--output_graph={self.path('x.pb')}",
        )
        for message, arguments in (
            ("has no GPU: only GPUs are handed operations ahead", ("--machine=local:1",)),
            ("--max_secs must be positive", ("--machine=1xK80", "--max_secs=0")),
        ):
            self.assert_refused(message, "order", source, target, "--fetches=step", *arguments)
        self.assert_refused(
            "is a directory: order takes graph files",
            *("order", f"--input_graph={self.directory}", target, "--machine=1xK80"),
        )
        self.assertFalse(os.path.exists(self.path("x.pb")))


if __name__ == "__main__":
    tf.test.main()
