"""Tests of placing the graph of a MonitoredTrainingSession, on logical CPU devices."""

from __future__ import annotations

import os
from unittest import mock

import numpy as np
import tensorflow as tf

from graph_passes.errors import GraphError
from graph_passes.fingerprint import graph_fingerprint
from graph_passes.op_graph import OpGraph
from graph_passes.pipeline import group_operations
from graph_passes.placement import Placement, write_placement
from tf_placer.inputs import session_hook
from tf_placer.inputs.session_hook import PlacementHook, apply_placement

tf1 = tf.compat.v1
tf1.disable_v2_behavior()

_CPUS = tuple(f"/job:localhost/replica:0/task:0/device:CPU:{i}" for i in range(2))
# Soft placement is off: what cannot run where it is put is an error.
_CONFIG = tf1.ConfigProto(device_count={"CPU": 2}, allow_soft_placement=False)


def build() -> tuple[tf.Graph, tf.Operation]:
    """A small training graph with a step counter, slots, a decaying rate and a summary."""
    with tf.Graph().as_default() as graph:
        tf1.set_random_seed(3)
        x = tf.random.stateless_normal([8, 6], [1, 2])
        step = tf1.train.get_or_create_global_step()
        hidden = tf.tanh(tf.matmul(x, tf1.get_variable("first", [6, 5])))
        loss = tf.reduce_mean(tf.square(tf.matmul(hidden, tf1.get_variable("second", [5, 2]))))
        rate = tf1.train.exponential_decay(0.1, step, 2, 0.9)
        optimizer = tf1.train.AdamOptimizer(rate)
        gradients, variables = zip(*optimizer.compute_gradients(loss), strict=True)
        # So that all gradients are computed before the first variable changes.
        clipped, _ = tf.clip_by_global_norm(gradients, 1.0)
        pairs = zip(clipped, variables, strict=True)
        train = optimizer.apply_gradients(pairs, step, name="train")
        tf1.summary.scalar("loss", loss)
    return graph, train


def spread() -> Placement:
    """A placement of that graph whose groups lie on both devices in turns."""
    graph_def = build()[0].as_graph_def()
    grouped = group_operations(OpGraph.from_graph_def(graph_def, ["train"]))
    row = np.arange(len(grouped.grouping.kinds), dtype=np.int32) % 2
    return Placement(graph_fingerprint(graph_def), _CPUS, grouped.assignment(row, _CPUS))


def train(directory: str, last_step: int, hooks=()) -> dict[str, np.ndarray]:
    """Trains up to a global step, from the last checkpoint; returns all variables."""
    graph, op = build()
    with graph.as_default():
        variables = {variable.op.name: variable for variable in tf1.global_variables()}
        reads = {name: variable.value() for name, variable in variables.items()}
        values = {}
        with tf1.train.MonitoredTrainingSession(
            config=_CONFIG,
            checkpoint_dir=directory,
            hooks=[tf1.train.StopAtStepHook(last_step=last_step), *hooks],
            save_summaries_steps=1,
            log_step_count_steps=None,
        ) as session:
            while not session.should_stop():
                session.run(op)
                values = session.run_step_fn(lambda step_context: step_context.session.run(reads))
    return values


class PlacementHookTest(tf.test.TestCase):
    def setUp(self):
        super().setUp()
        self.path = self.create_tempfile("placement.json").full_path
        write_placement(spread(), self.path)

    def test_refuses_sessions_without_a_master(self):
        devices = tuple(device.replace("localhost", "worker") for device in _CPUS)
        names = spread().assignment
        elsewhere = Placement("", devices, dict.fromkeys(names, devices[0]), provenance={})
        graph, _ = build()
        with graph.as_default():
            for make in (tf1.train.MonitoredTrainingSession, tf1.train.SingularMonitoredSession):
                with self.assertRaisesRegex(
                    GraphError, "master='grpc://HOST:PORT'.* serve local:2"
                ):
                    make(hooks=[PlacementHook(elsewhere)])
            # One that is connected to some machine is TensorFlow's to judge.
            creator = tf1.train.ChiefSessionCreator(master="grpc://localhost:1")
            with (
                mock.patch.object(creator, "create_session", side_effect=ZeroDivisionError),
                self.assertRaises(ZeroDivisionError),
            ):
                tf1.train.MonitoredSession(creator, hooks=[PlacementHook(elsewhere)])

    def test_operations_run_where_the_placement_puts_them(self):
        placement = spread()
        graph, op = build()
        metadata, options = tf1.RunMetadata(), tf1.RunOptions(output_partition_graphs=True)
        with (
            graph.as_default(),
            tf1.train.MonitoredTrainingSession(
                config=_CONFIG, hooks=[PlacementHook(self.path)]
            ) as session,
        ):
            session.run_step_fn(
                lambda step_context: step_context.session.run(
                    op, options=options, run_metadata=metadata
                )
            )
        ran = {
            node.name: node.device
            for partition in metadata.partition_graphs
            for node in partition.node
            if node.name in placement.assignment
        }
        self.assertEqual(set(ran.values()), set(_CPUS))
        self.assertEqual(ran, {name: placement.assignment[name] for name in ran})
        self.assertIn("MatMul", ran)

    def test_checkpoints_of_placed_and_unplaced_runs_are_interchangeable(self):
        directories = {
            name: self.create_tempdir(name).full_path
            for name in ("plain", "placed", "placed then plain", "plain then placed")
        }
        hook = PlacementHook(self.path)
        expected = train(directories["plain"], 6)
        self.assertEqual(expected["global_step"], 6)
        results = {"placed": train(directories["placed"], 6, [hook])}
        for name, hooks in (
            ("placed then plain", ([hook], [])),
            ("plain then placed", ([], [hook])),
        ):
            first, second = hooks
            self.assertEqual(train(directories[name], 3, first)["global_step"], 3)
            results[name] = train(directories[name], 6, second)
        for name, values in results.items():
            for variable, value in values.items():
                self.assertAllClose(value, expected[variable], 1e-5, 1e-6, f"{name}: {variable}")
        names = {
            name: [shape for shape in tf.train.list_variables(directory)]
            for name, directory in directories.items()
        }
        for name in names:
            self.assertEqual(names[name], names["plain"])
            self.assertTrue(any("tfevents" in file for file in os.listdir(directories[name])))

    def test_a_placement_may_be_given_itself(self):
        graph, _ = build()
        with graph.as_default():
            PlacementHook(spread()).begin()
        self.assertNotEmpty([op for op in graph.get_operations() if op.device == _CPUS[1]])

    def test_a_bad_file_is_named_when_the_hook_is_made(self):
        with self.assertRaisesRegex(FileNotFoundError, "cannot read the placement '/no/such'"):
            PlacementHook("/no/such")


class ApplyPlacementTest(tf.test.TestCase):
    def test_a_finalized_graph_is_placed(self):
        graph, _ = build()
        graph.finalize()
        placement = spread()
        self.assertEqual(apply_placement(graph, placement), len(placement.assignment))
        placed = {op.name: op.device for op in graph.get_operations() if op.device}
        self.assertEqual(placed, placement.assignment)

    def test_warns_about_mismatches(self):
        placement = spread()
        graph, _ = build()
        changed = Placement("f", _CPUS, {**placement.assignment, "gone": _CPUS[0]})
        with mock.patch.object(session_hook.logging, "warning") as warning:
            self.assertEqual(apply_placement(graph, changed), len(placement.assignment))
        self.assertEqual(warning.call_args.args[1:], (1, 0))

    def test_operations_that_have_a_device_keep_it(self):
        graph, _ = build()
        graph.get_operation_by_name("MatMul")._set_device("/device:CPU:0")
        apply_placement(graph, spread())
        self.assertEqual(graph.get_operation_by_name("MatMul").device, "/device:CPU:0")

    def test_the_placement_of_another_graph_is_refused(self):
        graph, _ = build()
        with self.assertRaisesRegex(GraphError, "nothing of the placement fits"):
            apply_placement(graph, Placement("f", _CPUS, {"other": _CPUS[0]}))


class ArgumentTest(tf.test.TestCase):
    def test_refuses_other_types_as_placements(self):
        for placement in (None, 7, {"a": "/cpu:0"}, [b"x"]):
            with self.assertRaisesRegex(GraphError, "a hook takes a placement or the path of its"):
                PlacementHook(placement)


if __name__ == "__main__":
    tf.test.main()
