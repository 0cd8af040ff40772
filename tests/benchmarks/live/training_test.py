"""Tests of training to the end: what a run keeps, and what a call leaves to the next one."""

from __future__ import annotations

import itertools
import pathlib
import types
from unittest import mock

import numpy as np
import tensorflow as tf

from benchmarks.live import training
from benchmarks.live.training_curves import EXPERT, FOUND, ORIGINAL, Curve, read_curves
from benchmarks.models import language_model
from benchmarks.models.convolution import dense
from benchmarks.models.image_classifier import build_classifier, label_smoothing_loss
from benchmarks.models.towers import train_towers
from benchmarks.models.training_model import TrainingModel

tf1 = tf.compat.v1

_DEVICES = ["/job:worker/task:0/device:CPU:0", "/job:worker/task:1/device:CPU:0"]


def tiny_model() -> TrainingModel:
    """A language model of two layers."""
    return language_model.build(layers=2, units=4, steps=2, batch=2, vocabulary=5)


def asynchronous_towers() -> TrainingModel:
    """Two towers of one layer."""

    def loss_of(images: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        with tf1.variable_scope("logits"):
            return label_smoothing_loss(dense(tf.reduce_mean(images, [1, 2]), 3), labels, "loss")

    def towers(images: tf.Tensor, labels: tf.Tensor) -> tuple[tf.Tensor, tf.Operation]:
        update = tf1.train.GradientDescentOptimizer(0.5)
        return train_towers(loss_of, images, labels, 2, update, asynchronous=True)

    return build_classifier(towers, batch=8, image_size=8, classes=3, use_resource=True)


class TrainTest(tf.test.TestCase):
    def test_the_losses_are_those_of_a_plain_loop(self):
        model = tiny_model()
        feeds = list(itertools.islice(model.feeds(), 6))
        curve = training.train("", model, {}, feeds)
        with tf1.Session(graph=model.graph) as session:
            session.run(model.initializer)
            losses = [session.run([model.loss, model.train_op], feed)[0] for feed in feeds]
        self.assertAllClose(curve.losses, losses)
        self.assertEqual(curve.secs[0], 0.0)
        self.assertAllGreater(np.diff(curve.secs), 0.0)

    def test_the_devices_are_put_on_the_graph(self):
        model = tiny_model()
        feeds = list(itertools.islice(model.feeds(), 2))
        device = {model.loss.partition(":")[0]: "/job:nobody/device:CPU:0"}
        with self.assertRaisesRegex(tf.errors.InvalidArgumentError, "/job:nobody"):
            training.train("", model, device, feeds)

    def test_each_asynchronous_tower_learns_from_its_part_of_all_batches(self):
        model = asynchronous_towers()
        feeds = list(itertools.islice(model.feeds(), 30))
        curve = training.train("", model, {}, feeds, asynchronous=True)
        self.assertLen(curve.losses, 60)
        self.assertAllGreaterEqual(np.diff(curve.secs), 0.0)
        self.assertLess(np.mean(curve.losses[-10:]), np.mean(curve.losses[:10]))


class CommandTest(tf.test.TestCase):
    """Nothing is searched or trained: what would be is kept."""

    def setUp(self):
        super().setUp()
        self.directory = pathlib.Path(self.create_tempdir().full_path)
        self.trained: list[dict[str, str]] = []
        model = tiny_model()
        a_model = training.Trained(lambda: model, steps=4, search_secs=1.0, expert="rnnlm_2")
        found = types.SimpleNamespace(assignment={"layer_0/kernel": _DEVICES[1]})
        result = types.SimpleNamespace(
            placement=found, reason="faster", speedup=1.5, speedup_interval=(1.2, 1.8), changed=True
        )
        machine = types.SimpleNamespace(devices=[mock.Mock() for _ in _DEVICES])
        for device, name in zip(machine.devices, _DEVICES, strict=True):
            device.name = name
        self.optimize = mock.Mock(return_value=result)
        for name, value in (
            ("optimize", self.optimize),
            ("find_machine", lambda spec: machine),
            ("LocalCluster", mock.MagicMock()),
        ):
            self.enter_context(mock.patch.object(training.tf_placer, name, value, create=True))
        self.enter_context(mock.patch.object(training, "MODELS", {"lm": a_model}))
        self.enter_context(mock.patch.object(training, "train", self.train))

    def train(self, target, model, devices, feeds, *, asynchronous):
        self.trained.append(dict(devices))
        return Curve(tuple(map(float, range(len(feeds)))), (2.0, 1.5, 1.0, 0.5))

    def call(self, *arguments: str) -> None:
        log, out = (f"--{name}={self.directory / name}" for name in ("log_dir", "out_dir"))
        training.main(["--models", "lm", log, out, *arguments])

    def test_all_placements_of_all_runs_are_trained_once(self):
        self.call("--runs=1")
        self.assertLen(self.trained, 3)
        self.call("--runs=2")
        self.assertLen(self.trained, 6)
        curves = read_curves(self.directory / "out_dir" / "curves.csv.gz")
        self.assertEqual(
            set(curves),
            {("lm", name, run) for name in (ORIGINAL, EXPERT, FOUND) for run in range(2)},
        )
        self.assertIn("| lm | found | 2 |", (self.directory / "out_dir/training.md").read_text())
        # Each goes first in turn.
        self.assertEqual(self.trained[0], {})
        self.assertNotEqual(self.trained[3], {})
        self.optimize.assert_called_once()

    def test_people_place_each_layer_on_a_device_of_its_own(self):
        self.call("--runs=1")
        expert = self.trained[1]
        self.assertEqual(expert["layer_0/kernel"], _DEVICES[0])
        self.assertEqual(expert["layer_1/kernel"], _DEVICES[1])
        self.assertEqual(expert["softmax/weights"], _DEVICES[1])

    def test_nothing_begins_when_it_is_time_to_stop(self):
        with self.assertRaisesRegex(SystemExit, "no run is done yet"):
            self.call("--stop_after_secs=0")
        self.assertEmpty(self.trained)
        self.optimize.assert_not_called()


if __name__ == "__main__":
    tf.test.main()
