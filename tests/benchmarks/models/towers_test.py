"""Towers learn what one replica learns from the parts of the batch."""

from __future__ import annotations

import functools

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from benchmarks.models.convolution import batch_norm, convolve, dense
from benchmarks.models.image_classifier import (
    build_classifier,
    label_smoothing_loss,
    train_classifier,
)
from benchmarks.models.towers import train_towers
from benchmarks.models.training_model import TrainingModel
from tests.benchmarks.models.sessions import plain_session

tf1 = tf.compat.v1

BATCH, CLASSES = 12, 3


def loss_of(images: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
    """A small network with all that a large one has: two layers and batch normalization."""
    with tf1.variable_scope("first"):
        value = tf.nn.relu(batch_norm(convolve(images, 4, 3, stride=2), scale=True))
    with tf1.variable_scope("logits"):
        logits = dense(tf.reduce_mean(value, [1, 2]), CLASSES)
    return label_smoothing_loss(logits, labels, "loss")


@functools.cache
def build(
    batch: int, towers: int = 0, asynchronous: bool = False, use_resource: bool = True
) -> TrainingModel:
    """The network with plain gradient descent, so that updates show the gradients."""
    update = tf1.train.GradientDescentOptimizer(1.0)

    def training(images: tf.Tensor, labels: tf.Tensor) -> tuple[tf.Tensor, tf.Operation]:
        if towers:
            return train_towers(loss_of, images, labels, towers, update, asynchronous=asynchronous)
        return train_classifier(loss_of(images, labels), update)

    return build_classifier(
        training, batch=batch, image_size=9, classes=CLASSES, use_resource=use_resource
    )


def values_after(
    model: TrainingModel,
    feeds: dict[str, np.ndarray],
    train_op: str | None = None,
    start: dict[str, np.ndarray] | None = None,
) -> tuple[float, dict[str, np.ndarray], dict[str, np.ndarray]]:
    """The loss of one step, and the variables before and after it."""
    with model.graph.as_default(), plain_session(model.graph) as session:
        variables = {v.op.name: v for v in tf1.global_variables()}
        session.run(model.initializer)
        for name, value in (start or {}).items():
            variables[name].load(value, session)
        before = session.run(variables)
        loss, _ = session.run((model.loss, train_op or model.train_op), feeds)
        return loss, before, session.run(variables)


class TowersTest(tf.test.TestCase, parameterized.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.feeds = next(build(BATCH).feeds(seed=7))
        cls.parts = [
            {name: value[i : i + 4] for name, value in cls.feeds.items()} for i in (0, 4, 8)
        ]

    @parameterized.parameters(True, False)
    def test_synchronous_update_is_the_mean_of_the_parts(self, use_resource):
        model = build(BATCH, 3, use_resource=use_resource)
        loss, start, found = values_after(model, self.feeds)
        steps = [values_after(build(4), part, start=start) for part in self.parts]
        self.assertNear(loss, np.mean([loss for loss, _, _ in steps]), 1e-5)
        for name, value in found.items():
            ends = [end[name] for _, _, end in steps]
            # The moving averages, and the count of steps, are those of the first tower.
            expected = ends[0] if "moving" in name or name == "global_step" else np.mean(ends, 0)
            self.assertAllClose(value, expected, atol=1e-5, msg=name)
            if name != "global_step":
                self.assertNotAllClose(value, start[name], rtol=0, atol=1e-7, msg=name)

    @parameterized.parameters(True, False)
    def test_asynchronous_tower_updates_by_itself(self, use_resource):
        model = build(BATCH, 3, asynchronous=True, use_resource=use_resource)
        for tower, part in enumerate(self.parts):
            _, start, found = values_after(model, self.feeds, f"tower_{tower}/train")
            _, _, expected = values_after(build(4), part, start=start)
            for name, value in expected.items():
                self.assertAllClose(found[name], value, atol=1e-5, msg=name)

    def test_asynchronous_towers_do_not_wait_for_each_other(self):
        model = build(BATCH, 3, asynchronous=True)
        seen, todo = set(), [model.graph.get_operation_by_name("tower_1/train")]
        while todo:
            operation = todo.pop()
            if operation.name not in seen:
                seen.add(operation.name)
                todo += [value.op for value in operation.inputs] + operation.control_inputs
        self.assertIn("tower_1/gradients/tower_1/first/Conv2D_grad/Conv2DBackpropFilter", seen)
        self.assertEmpty([name for name in seen if name.startswith(("tower_0/", "tower_2/"))])
        _, start, found = values_after(model, self.feeds)
        self.assertEqual((start["global_step"], found["global_step"]), (0, 3))
        train_op = model.graph.get_operation_by_name(model.train_op)
        self.assertEqual(model.graph.get_collection("train_op"), [train_op])


if __name__ == "__main__":
    tf.test.main()
