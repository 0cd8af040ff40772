"""Residual networks of bottleneck blocks, as the plain graph code of a TF1 training script.

References:
    He, Zhang, Ren, Sun: Deep Residual Learning for Image Recognition, 2015, table 1 and section 3.4
    (50 and 101 layers, activation after the addition).
    He, Zhang, Ren, Sun: Identity Mappings in Deep Residual Networks, 2016, section 5 and appendix
    (200 layers, activation before the convolutions).
    Ioffe, Szegedy: Batch Normalization: Accelerating Deep Network Training by Reducing Internal
    Covariate Shift, 2015.
"""

from __future__ import annotations

import tensorflow as tf

from benchmarks.models.convolution import batch_norm, convolve, dense
from benchmarks.models.image_classifier import build_classifier, train_classifier
from benchmarks.models.training_model import TrainingModel

tf1 = tf.compat.v1

__all__ = ["BLOCKS", "build"]

#: Blocks of the four stages, by depth.
BLOCKS = {50: (3, 4, 6, 3), 101: (3, 4, 23, 3), 200: (3, 24, 36, 3)}
_PRE_ACTIVATION = (200,)
_FIRST_CHANNELS = 64
#: The output of a bottleneck block is wider than its 3 x 3 convolution by this factor.
_EXPANSION = 4
_MOMENTUM = 0.9


def build(
    depth: int = 50,
    batch: int = 32,
    image_size: int = 224,
    classes: int = 1000,
    width: float = 1.0,
    use_resource: bool = True,
    learning_rate: float = 0.0125,
    blocks: tuple[int, int, int, int] | None = None,
) -> TrainingModel:
    """Builds the model with its gradients and updates in a graph of its own.

    There is no weight decay: it would add two operations per variable and no work to speak of.

    Args:
        depth: number of layers: 50 or 101, which halve the size in the first convolution of a stage
            and activate after the addition, or 200, which halves it in the second and activates
            before the convolutions.
        batch: images per step.
        image_size: height and width of the images in pixels, at least 32.
        classes: number of labels.
        width: factor on the channels of every convolution.
        use_resource: resource variables, or the ref variables of old training scripts.
        learning_rate: of the optimizer; the default is the papers' 0.1 of a batch of 256, for 32.
        blocks: of the four stages, instead of those of the depth: fewer for tests.
    """
    stages = blocks or BLOCKS[depth]
    channels = max(1, round(_FIRST_CHANNELS * width))

    def training(images: tf.Tensor, labels: tf.Tensor) -> tuple[tf.Tensor, tf.Operation]:
        features = _stages(_stem(images, channels), channels, stages, depth in _PRE_ACTIVATION)
        with tf1.variable_scope("logits"):
            logits = dense(tf.reduce_mean(features, [1, 2]), classes)
        with tf1.name_scope("loss"):
            loss = tf.reduce_mean(
                tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)
            )
        return train_classifier(loss, tf1.train.MomentumOptimizer(learning_rate, _MOMENTUM))

    return build_classifier(
        training, batch=batch, image_size=image_size, classes=classes, use_resource=use_resource
    )


def _stem(images: tf.Tensor, channels: int) -> tf.Tensor:
    """Reduces 224 x 224 pixels to 56 x 56."""
    with tf1.variable_scope("stem"):
        value = tf.nn.relu(batch_norm(convolve(images, channels, 7, stride=2), scale=True))
        return tf.nn.max_pool2d(value, 3, 2, "SAME", name="pool")


def _stages(
    value: tf.Tensor, channels: int, stages: tuple[int, ...], pre_activation: bool
) -> tf.Tensor:
    """Reduces 56 x 56 pixels to 7 x 7, activated."""
    for stage, blocks in enumerate(stages):
        for block in range(blocks):
            stride = 2 if stage and not block else 1
            with tf1.variable_scope(f"stage_{stage}/block_{block}"):
                if not pre_activation:
                    value = _block(value, channels * 2**stage, stride)
                    continue
                # The stem has activated already.
                activated = value if not stage and not block else _activate(value, "preactivation")
                value = _pre_activation_block(value, activated, channels * 2**stage, stride)
    return _activate(value, "activation") if pre_activation else value


def _block(value: tf.Tensor, channels: int, stride: int) -> tf.Tensor:
    """Convolutions that are normalized, a sum, and its activation."""
    shortcut = value
    if stride > 1 or value.shape[-1] != _EXPANSION * channels:
        with tf1.variable_scope("shortcut"):
            projected = convolve(value, _EXPANSION * channels, 1, stride=stride)
            shortcut = batch_norm(projected, scale=True)
    for i, (size, step) in enumerate(((1, stride), (3, 1))):
        with tf1.variable_scope(f"conv_{i}"):
            value = tf.nn.relu(batch_norm(convolve(value, channels, size, stride=step), scale=True))
    with tf1.variable_scope("conv_2"):
        value = batch_norm(convolve(value, _EXPANSION * channels, 1), scale=True)
    return tf.nn.relu(value + shortcut)


def _pre_activation_block(
    value: tf.Tensor, activated: tf.Tensor, channels: int, stride: int
) -> tf.Tensor:
    """Adds convolutions of the activated value to a sum that nothing normalizes or activates."""
    shortcut = value
    if stride > 1 or value.shape[-1] != _EXPANSION * channels:
        with tf1.variable_scope("shortcut"):
            shortcut = convolve(activated, _EXPANSION * channels, 1, stride=stride)
    value = activated
    for i, (size, step) in enumerate(((1, 1), (3, stride))):
        with tf1.variable_scope(f"conv_{i}"):
            value = tf.nn.relu(batch_norm(convolve(value, channels, size, stride=step), scale=True))
    with tf1.variable_scope("conv_2"):
        return convolve(value, _EXPANSION * channels, 1) + shortcut


def _activate(value: tf.Tensor, name: str) -> tf.Tensor:
    with tf1.variable_scope(name):
        return tf.nn.relu(batch_norm(value, scale=True))
