"""Tests of the training script with and without its added line, on two worker processes."""

from __future__ import annotations

import contextlib
import io
import os
from unittest import mock

import numpy as np
import tensorflow as tf
from absl.testing import flagsaver

import tf_placer
from examples import train_language_model
from graph_passes.fingerprint import graph_fingerprint
from graph_passes.op_graph import OpGraph
from graph_passes.pipeline import group_operations
from graph_passes.placement import Placement
from tf_placer.inputs.session_hook import apply_placement
from tf_placer.live.result import OptimizeResult
from tf_placer.machines.local_cluster import LocalCluster
from tf_placer.machines.lookup import find_machine

_MACHINE = "local:2"


def split_by_groups(graph: tf.Graph, train: tf.Operation, **settings) -> OptimizeResult:
    """Stands in for `optimize`: alternates the groups between both devices, without a search."""
    del settings
    devices = tuple(device.name for device in find_machine(_MACHINE).devices)
    graph_def = graph.as_graph_def()
    grouped = group_operations(OpGraph.from_graph_def(graph_def, [train.name], ["tokens:0"]))
    row = np.arange(len(grouped.grouping.kinds), dtype=np.int32) % 2
    placement = Placement(graph_fingerprint(graph_def), devices, grouped.assignment(row, devices))
    apply_placement(graph, placement)
    assert {op.device for op in graph.get_operations()} >= set(devices)
    return OptimizeResult(graph.as_graph_def(), True, "a split without a search")


class TrainLanguageModelTest(tf.test.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.cluster = cls.enterClassContext(LocalCluster(find_machine(_MACHINE)))

    def train(self, directory: str, steps: int, *, place: bool, **flags) -> str:
        """Runs the script up to a global step; returns what it prints."""
        output = io.StringIO()
        settings = {
            **{"units": 16, "unroll": 3, "batch": 4, "vocabulary": 50, "model_dir": directory},
            **{"steps": steps, "place": place, "master": self.cluster.target if place else ""},
            **flags,
        }
        with flagsaver.flagsaver(**settings), contextlib.redirect_stdout(output):
            train_language_model.main([])
        return output.getvalue()

    def checkpoint(self, directory: str) -> dict[str, np.ndarray]:
        reader = tf.train.load_checkpoint(directory)
        return {name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map()}

    def test_checkpoints_of_placed_and_unplaced_runs_are_interchangeable(self):
        checkpoints, printed = {}, {}
        with mock.patch.object(tf_placer, "optimize", split_by_groups):
            for name, places in (
                ("plain", (False, False)),
                ("placed first", (True, False)),
                ("placed last", (False, True)),
            ):
                directory = self.create_tempdir(name.replace(" ", "_")).full_path
                for steps, place in zip((3, 6), places, strict=True):
                    printed[name] = self.train(directory, steps, place=place)
                    self.assertEqual(self.checkpoint(directory)["global_step"], steps)
                    self.assertEqual("a split" in printed[name], place)
                    self.assertIn(f"step {steps}: loss ", printed[name])
                checkpoints[name] = self.checkpoint(directory)
                self.assertTrue(any("tfevents" in file for file in os.listdir(directory)))
        plain = checkpoints["plain"]
        for name, values in checkpoints.items():
            self.assertEqual(values.keys(), plain.keys())
            for variable, value in values.items():
                self.assertAllClose(value, plain[variable], 1e-4, 1e-5, f"{name}: {variable}")

    def test_the_added_line_searches_and_training_continues(self):
        directory = self.create_tempdir().full_path
        self.train(directory, 2, place=False)
        printed = self.train(directory, 4, place=True, search_trials=4, search_secs=9.0)
        self.assertIn("step 4: loss ", printed)
        # The verdict depends on the machine.
        self.assertRegex(printed, "the original|no placement ran")
        self.assertIn("step 6: loss ", self.train(directory, 6, place=False))


if __name__ == "__main__":
    tf.test.main()
