"""Towers learn what one replica learns from the parts of the batch."""

from __future__ import annotations

import functools
import itertools

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from benchmarks.models.convolution import batch_norm, convolve, dense
from benchmarks.models.image_classifier import (
    ImageClassifier,
    apply,
    build_classifier,
    image_optimizer,
    smoothed_loss,
)
from benchmarks.models.towers import train_towers
from tests.benchmarks.models.sessions import plain_session

tf1 = tf.compat.v1

BATCH, CLASSES = 12, 3


def loss_of(images: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
    """A small network with all that a large one has: two layers and batch normalisation."""
    with tf1.variable_scope("first"):
        value = tf.nn.relu(batch_norm(convolve(images, 4, 3, stride=2), scale=True))
    with tf1.variable_scope("logits"):
        logits = dense(tf.reduce_mean(value, [1, 2]), CLASSES)
    return smoothed_loss(logits, labels, "loss")


@functools.cache
def build(
    batch: int, towers: int = 0, asynchronous: bool = False, use_resource: bool = True
) -> ImageClassifier:
    """The network with plain gradient descent, so that updates show the gradients."""
    update = image_optimizer("sgd", 1.0)

    def training(images: tf.Tensor, labels: tf.Tensor) -> tuple[tf.Tensor, tf.Operation]:
        if towers:
            return train_towers(loss_of, images, labels, towers, update, asynchronous=asynchronous)
        loss = loss_of(images, labels)
        averages = tf1.get_collection(tf1.GraphKeys.UPDATE_OPS)
        return loss, apply(update.compute_gradients(loss), averages, update)

    return build_classifier(
        training,
        batch=batch,
        image_size=9,
        min_image_size=1,
        classes=CLASSES,
        use_resource=use_resource,
    )


def values_after(
    model: ImageClassifier,
    images: np.ndarray,
    labels: np.ndarray,
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
        feeds = {model.images: images, model.labels: labels}
        loss, _ = session.run((model.loss, train_op or model.train_op), feeds)
        return loss, before, session.run(variables)


class TowersTest(tf.test.TestCase, parameterized.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.images, cls.labels = next(build(BATCH).batches(seed=7))

    @parameterized.product(towers=(2, 3), use_resource=(True, False))
    def test_synchronous_update_is_the_mean_of_the_parts(self, towers, use_resource):
        model = build(BATCH, towers, use_resource=use_resource)
        loss, start, found = values_after(model, self.images, self.labels)
        size = BATCH // towers
        steps = [
            values_after(
                build(size), self.images[i : i + size], self.labels[i : i + size], start=start
            )
            for i in range(0, BATCH, size)
        ]
        self.assertNear(loss, np.mean([loss for loss, _, _ in steps]), 1e-5)
        for name, value in found.items():
            ends = [end[name] for _, _, end in steps]
            # The moving averages, and the count of steps, are those of the first tower.
            expected = ends[0] if "moving" in name or name == "global_step" else np.mean(ends, 0)
            self.assertAllClose(value, expected, atol=1e-5, msg=name)
            if name != "global_step":
                self.assertNotAllClose(value, start[name], rtol=0, atol=1e-7, msg=name)

    def test_towers_with_the_same_images_do_what_one_replica_does_with_the_whole_batch(self):
        # The same images, because each tower normalises its part of the batch on its own.
        images, labels = np.tile(self.images[:4], (3, 1, 1, 1)), np.tile(self.labels[:4], 3)
        loss, start, found = values_after(build(BATCH, 3), images, labels)
        one_loss, _, expected = values_after(build(BATCH), images, labels, start=start)
        self.assertNear(loss, one_loss, 1e-5)
        for name, value in expected.items():
            # A variance of fewer values is corrected by more.
            if name != "first/moving_variance":
                self.assertAllClose(found[name], value, atol=1e-5, msg=name)

    @parameterized.parameters(True, False)
    def test_asynchronous_tower_updates_by_itself(self, use_resource):
        model = build(BATCH, 3, asynchronous=True, use_resource=use_resource)
        for tower in range(3):
            _, start, found = values_after(
                model, self.images, self.labels, train_op=f"tower_{tower}/train"
            )
            part = slice(4 * tower, 4 * tower + 4)
            _, _, expected = values_after(
                build(4), self.images[part], self.labels[part], start=start
            )
            for name, value in expected.items():
                self.assertAllClose(found[name], value, atol=1e-5, msg=name)

    def test_asynchronous_towers_do_not_wait_for_each_other(self):
        graph = build(BATCH, 3, asynchronous=True).graph
        seen, todo = set(), [graph.get_operation_by_name("tower_1/train")]
        while todo:
            operation = todo.pop()
            if operation.name not in seen:
                seen.add(operation.name)
                todo += [value.op for value in operation.inputs] + operation.control_inputs
        self.assertIn("tower_1/gradients/tower_1/first/Conv2D_grad/Conv2DBackpropFilter", seen)
        self.assertEmpty([name for name in seen if name.startswith(("tower_0/", "tower_2/"))])

    def test_asynchronous_step_updates_once_per_tower(self):
        model = build(BATCH, 3, asynchronous=True)
        _, start, found = values_after(model, self.images, self.labels)
        self.assertEqual((start["global_step"], found["global_step"]), (0, 3))
        train_op = model.graph.get_operation_by_name("train")
        self.assertEqual(model.train_op, "train")
        self.assertEqual(model.graph.get_collection("train_op"), [train_op])

    @parameterized.parameters(True, False)
    def test_loss_falls(self, asynchronous):
        model = build(BATCH, 2, asynchronous)
        with plain_session(model.graph) as session:
            session.run(model.initializer)
            values = [
                session.run([model.loss, model.train_op], feeds)[0]
                for feeds in itertools.islice(model.feeds(seed=3), 40)
            ]
        self.assertLess(np.mean(values[-10:]), np.mean(values[:3]) - 0.2, values)

    def test_variables_are_shared_and_have_no_tower_in_their_names(self):
        one, three = build(BATCH), build(BATCH, 3)
        names = [
            [v.op.name for v in model.graph.get_collection("variables")] for model in (one, three)
        ]
        self.assertCountEqual(*names)

    @parameterized.parameters(5, 24, -1)
    def test_parts_that_are_not_equal_are_refused(self, towers):
        with self.assertRaisesRegex(
            ValueError, f"towers must be a divisor of the batch of 12, not {towers}"
        ):
            build(BATCH, towers)


if __name__ == "__main__":
    tf.test.main()
