"""What the training graphs of all image classifiers have in common, and pictures for them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import tensorflow as tf

from benchmarks.models.training import make_optimizer

tf1 = tf.compat.v1

__all__ = ["ImageClassifier", "apply", "build_classifier", "image_optimizer", "smoothed_loss"]

_GRAPH_SEED = 1
_LABEL_SMOOTHING = 0.1
_PATTERN_SIZE = 5


@dataclasses.dataclass(frozen=True)
class ImageClassifier:
    """A training graph and the names of what a training script runs and feeds.

    Attributes:
        graph: the graph; its `train_op` collection holds the training operation.
        images: the placeholder, float32 [batch, image_size, image_size, 3], about -1 to 1.
        labels: the placeholder, int32 [batch].
        loss: mean cross entropy, with an auxiliary classifier's in proportion if there is one,
            float32 [].
        train_op: the operation that updates the variables, the moving averages and the global step.
        initializer: the operation that initialises all variables.
        batch: images per step.
        image_size: their height and width in pixels.
        classes: number of labels.
    """

    graph: tf.Graph
    images: str
    labels: str
    loss: str
    train_op: str
    initializer: str
    batch: int
    image_size: int
    classes: int

    def batches(self, seed: int = 0) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Endless made-up pictures that can be told apart: coarse tiles, the same for each class.

        Args:
            seed: of the labels and the noise; the tiles are always the same.

        Yields:
            float32 [batch, image_size, image_size, 3] and int32 [batch], values for `images` and
            `labels`.
        """
        tiles = np.random.default_rng(0).uniform(
            -1, 1, (self.classes, _PATTERN_SIZE, _PATTERN_SIZE, 3)
        )
        tiles = tiles.astype(np.float32)
        tile = np.arange(self.image_size) * _PATTERN_SIZE // self.image_size
        random = np.random.default_rng(seed)
        shape = (self.batch, self.image_size, self.image_size, 3)
        while True:
            labels = random.integers(self.classes, size=self.batch, dtype=np.int32)
            images = random.standard_normal(shape, np.float32)
            images *= 0.1
            images += tiles[labels][:, tile][:, :, tile]
            yield images, labels

    def feeds(self, seed: int = 0) -> Iterator[dict[str, np.ndarray]]:
        """Yields the batches, as what to feed to a step."""
        for images, labels in self.batches(seed):
            yield {self.images: images, self.labels: labels}


def build_classifier(
    training: Callable[[tf.Tensor, tf.Tensor], tuple[tf.Tensor, tf.Operation]],
    *,
    batch: int,
    image_size: int,
    min_image_size: int,
    classes: int,
    use_resource: bool,
) -> ImageClassifier:
    """Builds a model with its gradients and updates in a graph of its own.

    Args:
        training: makes the loss and the training operation of images and labels.
        batch: images per step.
        image_size: height and width of the images in pixels.
        min_image_size: the smallest that the model can see.
        classes: number of labels.
        use_resource: resource variables, or the ref variables of old training scripts.

    Returns:
        The graph and its names.

    Raises:
        ValueError: a size is not positive or the images are too small.
    """
    for name, size in {"batch": batch, "classes": classes}.items():
        if size <= 0:
            raise ValueError(f"{name} must be positive, not {size}")
    if image_size < min_image_size:
        raise ValueError(f"image_size must be at least {min_image_size}, not {image_size}")
    graph = tf.Graph()
    with graph.as_default():
        tf1.set_random_seed(_GRAPH_SEED)
        with tf1.variable_scope(
            tf1.get_variable_scope(),
            initializer=tf1.variance_scaling_initializer(2.0),
            use_resource=use_resource,
        ):
            images = tf1.placeholder(tf.float32, [batch, image_size, image_size, 3], name="images")
            labels = tf1.placeholder(tf.int32, [batch], name="labels")
            loss, train_op = training(images, labels)
        initializer = tf1.global_variables_initializer()
    return ImageClassifier(
        graph,
        images.name,
        labels.name,
        loss.name,
        train_op.name,
        initializer.name,
        batch,
        image_size,
        classes,
    )


def smoothed_loss(logits: tf.Tensor, labels: tf.Tensor, name: str) -> tf.Tensor:
    """Computes the mean cross entropy with smoothed labels.

    Args:
        logits: float32 [batch, classes].
        labels: int32 [batch].
        name: scope of the operations.

    Returns:
        float32 [].
    """
    classes = int(logits.shape[1])
    with tf1.name_scope(name):
        rest = _LABEL_SMOOTHING / classes
        smoothed = tf.one_hot(labels, classes, 1 - _LABEL_SMOOTHING + rest, rest)
        cross_entropy = tf.nn.softmax_cross_entropy_with_logits(labels=smoothed, logits=logits)
        return tf.reduce_mean(cross_entropy)


def apply(
    gradients: Sequence[tuple[tf.Tensor, tf.Variable]],
    averages: Sequence[tf.Tensor],
    optimizer: tf.compat.v1.train.Optimizer,
    name: str = "train",
) -> tf.Operation:
    """Builds one update of the variables, the moving averages and the global step.

    Args:
        gradients: of each variable.
        averages: updates of the moving averages of batch normalisation.
        optimizer: how to update the variables.
        name: of the operation, and the scope of its parts.

    Returns:
        The operation; it is in the `train_op` collection.
    """
    global_step = tf1.train.get_or_create_global_step()
    # One operation to wait for, or each part of the update waits for each of hundreds.
    averaged = tf.group(*(update.op for update in averages), name=f"{name}/moving_averages")
    with tf.control_dependencies([averaged]):
        return optimizer.apply_gradients(gradients, global_step=global_step, name=name)


def image_optimizer(name: str, learning_rate: float) -> tf.compat.v1.train.Optimizer:
    """Makes an optimizer whose RMSProp has the settings of the Inception and NASNet papers.

    Args:
        name: "adam", "momentum", "rmsprop" or "sgd".
        learning_rate: of the optimizer.

    Returns:
        The optimizer.

    Raises:
        ValueError: the optimizer is not one of these.
    """
    if name == "rmsprop":
        return tf1.train.RMSPropOptimizer(learning_rate, decay=0.9, momentum=0.9, epsilon=1.0)
    return make_optimizer(name, learning_rate)
