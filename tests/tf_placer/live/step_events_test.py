"""Tests of writing simulated steps as runs of TensorBoard."""

from __future__ import annotations

import importlib.util
import pathlib

import numpy as np
import tensorflow as tf

from tests.tf_placer.simulation.traces import make_problem, make_trace
from tf_placer.live.step_events import write_step_events


def build_graph() -> tf.compat.v1.GraphDef:
    """Builds a graph of the two operations of the step and one that is not needed."""
    graph_def = tf.compat.v1.GraphDef()
    graph_def.node.add(name="op0", op="NoOp", device="/device:CPU:0")
    graph_def.node.add(name="op1", op="NoOp", input=["^op0"])
    graph_def.node.add(name="other", op="NoOp", device="/device:CPU:7")
    return graph_def


class StepEventsTest(tf.test.TestCase):
    def setUp(self):
        super().setUp()
        self.directory = pathlib.Path(self.create_tempdir().full_path, "tb")
        # op0 on D0 from 0 to 1 s, its 5 bytes until 6 s, op1 on D1 until 8 s.
        problem = make_problem([[1.0, 1.0], [2.0, 2.0]], tensors=[(0, 5, [1])])
        self.steps = {name: make_trace(problem, [0, 1]) for name in ("original", "found")}

    def events(self, run: str) -> list[tf.compat.v1.Event]:
        [path] = (self.directory / run).glob("events.out.tfevents.*")
        records = tf.data.TFRecordDataset(str(path)).as_numpy_iterator()
        return [tf.compat.v1.Event.FromString(record) for record in records]

    def test_writes_each_step_as_a_run_with_the_placed_graph(self):
        graph_def = build_graph()
        write_step_events(self.directory, graph_def, self.steps)
        for run in self.steps:
            first, graph, *_ = self.events(run)
            self.assertEqual(first.file_version, "brain.Event:2")
            placed = tf.compat.v1.GraphDef.FromString(graph.graph_def)
            self.assertEqual(
                {node.name: node.device for node in placed.node},
                {"op0": "D0", "op1": "D1", "other": "/device:CPU:7"},
            )
        self.assertEqual(graph_def, build_graph())

    def test_operations_have_their_times_by_device(self):
        write_step_events(self.directory, build_graph(), self.steps)
        tagged = self.events("found")[2].tagged_run_metadata
        stats = tf.compat.v1.RunMetadata.FromString(tagged.run_metadata).step_stats
        times = {
            (there.device, node.node_name): (node.all_start_micros, node.all_end_rel_micros)
            for there in stats.dev_stats
            for node in there.node_stats
        }
        self.assertEqual(times, {("D0", "op0"): (0, 10**6), ("D1", "op1"): (6 * 10**6, 2 * 10**6)})

    def test_the_step_and_its_devices_are_scalars(self):
        write_step_events(self.directory, build_graph(), self.steps)
        values = {v.tag: v.simple_value for v in self.events("found")[3].summary.value}
        self.assertEqual(values["step_secs"], 8.0)
        self.assertEqual((values["busy_secs/D0"], values["busy_secs/D1"]), (1.0, 2.0))
        self.assertEqual((values["copy_secs/D1"], values["peak_bytes/D1"]), (5.0, 5.0))

    def test_a_step_has_pictures_of_the_placement_and_of_time(self):
        if importlib.util.find_spec("matplotlib") is None:
            self.skipTest("pictures need matplotlib")
        write_step_events(self.directory, build_graph(), self.steps)
        images = {v.tag: v.image for event in self.events("found")[4:] for v in event.summary.value}
        self.assertEqual(set(images), {"placement", "step_in_time"})
        for image in images.values():
            pixels = tf.io.decode_png(image.encoded_image_string)
            self.assertEqual(pixels.shape, (image.height, image.width, 4))
            # The background is white, and the picture is not empty.
            self.assertAllEqual(pixels[0, 0], [255] * 4)
            self.assertGreater(len(np.unique(pixels[..., :3])), 3)

    def test_writing_twice_adds_a_file(self):
        for _ in range(2):
            write_step_events(self.directory, build_graph(), self.steps)
        self.assertLen(list((self.directory / "found").iterdir()), 2)

    def test_names_a_directory_that_cannot_be_written(self):
        self.directory.touch()
        with self.assertRaisesRegex(OSError, "tb"):
            write_step_events(self.directory, build_graph(), self.steps)


if __name__ == "__main__":
    tf.test.main()
