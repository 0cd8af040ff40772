"""Tests of searches that resume for the same step with other names."""

from __future__ import annotations

import dataclasses
import pathlib

import numpy as np
import tensorflow as tf

from graph_passes.fingerprint import graph_fingerprint
from graph_passes.pipeline import group_operations
from graph_passes.placement import Placement
from tests.graph_parts import new_graph
from tests.tf_placer.scripted import search_config
from tf_placer.inputs.workload import Workload, read_workload
from tf_placer.runs.header import live_header, request_digest
from tf_placer.runs.logged_names import name_as_logged
from tf_placer.runs.run_directory import RunDirectory

tf1 = tf.compat.v1
DEVICE = "/job:worker/replica:0/task:1/device:CPU:0"


def build(number: int, *, scale: float = 0.5, device: str = "", value: float = 1.0) -> Workload:
    """Builds a step of layers that are counted from a number, as Keras counts them.

    From 8 on, the names of the fetches have another order than those from 0 on.
    """
    with new_graph() as graph:
        x = tf1.placeholder(tf.float32, [3, 3], name=f"model_{number}/x")
        ends = []
        for layer in range(number, number + 3):
            weights = tf1.get_variable(f"layer_{layer}/w", [3, 3], use_resource=True)
            with tf.device(device):
                product = tf.matmul(x, weights, name=f"layer_{layer}/product")
            ends.append(tf.multiply(product, scale, name=f"layer_{layer}/end"))
    fetches = sorted(end.name for end in ends)
    return read_workload(graph, fetches, {x: np.full([3, 3], value, np.float32)})


class LoggedNamesTest(tf.test.TestCase):
    def setUp(self):
        super().setUp()
        self.directory = RunDirectory(pathlib.Path(self.create_tempdir().full_path) / "run")
        self.config = search_config()
        self.logged = build(0)
        self.directory.write_request(self.logged, self.config)

    def name(self, workload: Workload, **changes):
        config = dataclasses.replace(self.config, **changes)
        return name_as_logged(workload, config, self.directory)

    def test_the_same_step_with_other_names_is_the_search_of_the_log(self):
        given = build(8, value=2.0)
        self.assertNotEqual(
            [name.replace("_8", "_0").replace("_9", "_1") for name in given.step.fetches],
            list(self.logged.step.fetches),
        )
        named = self.name(given)
        self.assertIs(named.given, given)
        self.assertEqual(named.names["layer_2/product"], "layer_10/product")
        renamed, config = named.workload, self.config
        self.assertEqual(request_digest(config, renamed), request_digest(config, self.logged))
        headers = []
        for workload in (renamed, self.logged):
            grouped = group_operations(workload.op_graph)
            devices = tuple(device.name for device in config.found_machine.devices)
            legal = grouped.grouping.legal_devices(grouped.colocation, devices)
            headers.append(live_header(config, workload.step, grouped, legal))
        self.assertEqual(*headers)
        # The values are those at hand.
        self.assertAllEqual(renamed.step.feeds["model_0/x:0"], np.full([3, 3], 2.0))

    def test_placements_get_the_names_at_hand(self):
        given = build(8)
        placement = Placement("log", (DEVICE,), {"layer_0/end": DEVICE, "layer_2/end": DEVICE})
        restored = self.name(given).restore_names(placement)
        self.assertEqual(dict(restored.assignment), {"layer_8/end": DEVICE, "layer_10/end": DEVICE})
        self.assertEqual(restored.graph_fingerprint, graph_fingerprint(given.graph_def))

    def test_the_same_names_stay(self):
        named = self.name(given := build(0))
        self.assertIs(named.workload, given)
        self.assertIsNone(named.names)
        placement = Placement("log", (DEVICE,), {"layer_0/end": DEVICE})
        self.assertIs(named.restore_names(placement), placement)

    def test_another_step_keeps_its_names(self):
        fewer = build(8)
        fewer = dataclasses.replace(
            fewer, step=dataclasses.replace(fewer.step, fetches=fewer.step.fetches[:2])
        )
        for given in (build(8, scale=0.25), build(8, device=DEVICE), fewer):
            self.assertIs(self.name(given).workload, given)

    def test_pins_must_mean_the_same(self):
        given = build(8)
        self.assertIsNotNone(self.name(given, pin={"*/product": DEVICE}).names)
        # Only one of the graphs has the first name, and both have the second, for other layers.
        self.assertIsNone(self.name(given, pin={"layer_8/*": DEVICE}).names)
        given = build(1)
        self.assertIsNone(self.name(given, pin={"layer_1/product": DEVICE}).names)

    def test_a_directory_without_a_search_that_can_be_read_changes_nothing(self):
        given = build(8)
        self.directory.graph.write_bytes(b"no graph")
        self.assertIs(self.name(given).workload, given)
        self.directory.graph.unlink()
        self.assertIs(self.name(given).workload, given)


if __name__ == "__main__":
    tf.test.main()
