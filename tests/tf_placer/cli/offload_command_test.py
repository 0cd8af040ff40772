"""Tests of the command that lets tensors of a graph wait on the CPU."""

from __future__ import annotations

import json
import os

import numpy as np
import tensorflow as tf

from graph_passes.placement import Placement, write_placement
from tests.tf_placer.cli.profile_command_test import ProfileCommandTestCase
from tests.tf_placer.costs import deep_training
from tf_placer.inputs.graph_files import write_graph
from tf_placer.inputs.workload import read_graph
from tf_placer.text.units import format_bytes

v1 = tf.compat.v1
_CPU, _GPU_0, _GPU_1 = (
    f"/job:localhost/replica:0/task:0/device:{name}" for name in ("CPU:0", "GPU:0", "GPU:1")
)


class OffloadCommandTest(ProfileCommandTestCase):
    def setUp(self):
        super().setUp()
        made = deep_training.build(batch=4096, units=1024, layers=6)
        self.graph_def = made.graph.as_graph_def()
        with made.graph.as_default():
            v1.add_to_collection("kept", made.graph.get_tensor_by_name("loss:0"))
            meta = v1.train.export_meta_graph()
        write_graph(self.path("in.meta"), self.graph_def, meta)
        np.savez(self.path("feeds.npz"), **{"x:0": np.zeros([4096, 1024], np.float32)})
        self.step = ("--fetches=train,loss:0", f"--feeds={self.path('feeds.npz')}")

    def offload(self, *arguments: str, output: str = "out.meta") -> str:
        return self.call(
            "offload",
            f"--input_graph={self.path('in.meta')}",
            f"--output_graph={self.path(output)}",
            *self.step,
            *arguments,
        )

    def test_writes_a_graph_with_copies_and_keeps_all_else(self):
        printed = self.offload("--machine=1xK80", "--max_memory=GPU:0=150MB", "--json")
        values = json.loads(printed)
        written = read_graph(self.path("out.meta"))
        added = [node for node in written.graph_def.node if node.name.endswith("_host")]
        self.assertLen(added, 2 * values["tensors"])
        self.assertEqual({node.device for node in added}, {_CPU})
        names = [node.name for node in self.graph_def.node]
        self.assertEqual([node.name for node in written.graph_def.node][: len(names)], names)
        self.assertIn("kept", written.meta_graph.collection_def)
        self.assertEqual(values["moved_bytes"] % (4096 * 1024 * 4), 0)
        self.assertGreaterEqual(values["step_secs"], values["unlimited_secs"])

    def test_says_how_much_waits_and_how_much_slower_the_step_is(self):
        printed = self.offload("--machine=1xK80", "--max_memory=GPU=150MB", output="out.pb")
        self.assertRegex(
            printed,
            r"tensors wait on the CPU, [\d.]+ MiB together: [\d.]+ ms a step by simulation, "
            r"\d+\.\d% slower than with enough memory",
        )
        self.assertIn(f"graph: {self.path('out.pb')}", printed)

    def test_changes_nothing_where_the_graph_fits(self):
        self.assertIn("fits as it is: nothing was moved", self.offload("--machine=1xK80"))
        self.assertEqual(read_graph(self.path("out.meta")).graph_def, self.graph_def)

    def test_places_the_graph_first(self):
        layers = {
            node.name: _GPU_1 for node in self.graph_def.node if node.name.startswith("activation")
        }
        write_placement(Placement("", (_CPU, _GPU_0, _GPU_1), layers), self.path("p.json"))
        self.offload("--machine=2xK80", f"--placement={self.path('p.json')}")
        devices = {n.name: n.device for n in read_graph(self.path("out.meta")).graph_def.node}
        self.assertEqual({name: devices[name] for name in layers}, layers)

    def test_takes_the_placement_of_the_row_that_search_shows(self):
        self.call(
            "profile",
            f"--input_graph={self.path('in.meta')}",
            "--machine=1xK80",
            f"--output={self.path('problem.json')}",
            *self.step,
        )
        limit = "--max_memory=GPU:0=150MB"
        searched = self.call(
            "search",
            f"--problem={self.path('problem.json')}",
            f"--output={self.path('best.json')}",
            "--max_secs=8",
            limit,
            "--json",
        )
        [row] = [each for each in json.loads(searched)["changes"] if each["assignment"]]
        path = json.loads(searched)["offload_placement"]
        self.assertEqual(path, self.path("best.offload.json"))
        moved = json.loads(self.offload("--machine=1xK80", limit, f"--placement={path}", "--json"))
        self.assertEqual(
            row["change"], f"{format_bytes(moved['moved_bytes'])} moved to the CPU and back"
        )
        self.assertAlmostEqual(moved["step_secs"], row["step_secs"])

    def test_refuses_what_cannot_be(self):
        source, target = (
            f"--input_graph={self.path('in.meta')}",
            f"--output_graph={self.path('x.pb')}",
        )
        for message, arguments in (
            (
                "the graph does not fit in this way: by simulation it takes .* on GPU:0",
                (source, target, *self.step, "--machine=1xK80", "--max_memory=GPU:0=1MB"),
            ),
            (
                "max_memory is for .GPU:7.",
                (source, target, "--machine=1xK80", "--max_memory=GPU:7=1GB"),
            ),
            (
                "is a directory: offload takes graph files",
                (f"--input_graph={self.directory}", target, "--machine=1xK80"),
            ),
        ):
            self.assert_refused(message, "offload", *arguments)
        self.assertFalse(os.path.exists(self.path("x.pb")))


if __name__ == "__main__":
    tf.test.main()
