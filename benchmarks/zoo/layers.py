"""Layers of networks, functions that hold them, and devices that scripts give them."""

from __future__ import annotations

import numpy as np
import tensorflow as tf
from tensorflow.python.framework import function

from benchmarks.zoo.graph_parts import (
    CLASSES,
    SEED,
    Kinds,
    StepGraph,
    classifier_loss,
    clip_and_apply,
    convolution,
    counter,
    cross_entropy,
    dense,
    inputs,
    make_classifier,
    make_training,
    step_graph,
    weight_variable,
)

tf1 = tf.compat.v1

__all__ = ["KINDS"]

KINDS = Kinds()


def _statistics(units: int, **initial: float) -> list[tf.Variable]:
    """Makes untrained variables, a number for each unit."""
    return [
        tf1.get_variable(name, [units], initializer=tf.constant_initializer(value), trainable=False)
        for name, value in initial.items()
    ]


def _update_average(variable: tf.Variable, value: tf.Tensor) -> None:
    """Lets UPDATE_OPS move an average."""
    update = tf1.assign_sub(variable, 0.1 * (variable - value))
    tf1.add_to_collection(tf1.GraphKeys.UPDATE_OPS, update.op)


@KINDS.both
def fused_batch_norm() -> StepGraph:
    """Normalizes batches with the fused operation."""
    x, y, feeds = inputs([2, 4, 4, 2])
    value = tf.reduce_mean(convolution(x, 3, 3, "convolution"), axis=[1, 2])
    return make_classifier(value, y, feeds)


@KINDS.both
def batch_norm_by_moments() -> StepGraph:
    """Normalizes with the moments of a batch or with averages, as a placeholder says."""
    x, y, feeds = inputs([4, 6])
    is_training = tf1.placeholder_with_default(True, [], name="is_training")
    value = dense(x, 5, "hidden")
    mean, variance = _statistics(5, mean=0.0, variance=1.0)
    of_batch = tf.nn.moments(value, axes=[0])
    used = tf1.cond(
        is_training, lambda: [*of_batch], lambda: [tf.identity(mean), tf.identity(variance)]
    )
    value = tf.nn.batch_normalization(value, *used, None, None, 1e-3)
    _update_average(mean, used[0])
    _update_average(variance, used[1])
    return make_classifier(tf.nn.relu(value), y, feeds)


@KINDS.v1
def batch_renormalization() -> StepGraph:
    """Corrects the moments of a batch towards averages, within bounds."""
    x, y, feeds = inputs([4, 6])
    value = dense(x, 5, "hidden")
    mean, deviation = _statistics(5, mean=0.0, deviation=1.0)
    batch_mean, batch_variance = tf.nn.moments(value, axes=[0])
    batch_deviation = tf.sqrt(batch_variance + 1e-3)
    ratio = tf.stop_gradient(tf.clip_by_value(batch_deviation / deviation, 0.5, 2.0))
    shift = tf.stop_gradient(tf.clip_by_value((batch_mean - mean) / deviation, -1.0, 1.0))
    value = (value - batch_mean) / batch_deviation * ratio + shift
    # Moved only when the moments are known, which read the averages.
    with tf.control_dependencies([value]):
        _update_average(mean, tf.identity(batch_mean))
        _update_average(deviation, tf.identity(batch_deviation))
    return make_classifier(tf.nn.relu(value), y, feeds)


@KINDS.v1
def convolutions() -> StepGraph:
    """Convolves in three ways, normalizes locally, and pools."""
    x, y, feeds = inputs([2, 6, 6, 2])
    value = tf.nn.conv2d(x, weight_variable("first", [3, 3, 2, 4]), 1, "SAME")
    value = tf.nn.local_response_normalization(tf.nn.relu(value), 2, 1.0, 1e-2, 0.75)
    value = tf.nn.max_pool2d(value, 2, 2, "SAME")
    depthwise = weight_variable("depthwise", [3, 3, 4, 1])
    value = tf.nn.depthwise_conv2d(value, depthwise, [1, 1, 1, 1], "SAME")
    back = weight_variable("back", [2, 2, 3, 4])
    value = tf.nn.conv2d_transpose(value, back, [2, 6, 6, 3], 2, "SAME")
    value = tf.nn.avg_pool2d(tf.nn.elu(value), 3, 3, "VALID")
    loss = classifier_loss(tf.reshape(value, [2, -1]), y)
    return make_training(loss, tf1.train.MomentumOptimizer(0.05, 0.9), feeds)


@KINDS.v1
def dropout() -> StepGraph:
    """Drops units and adds noise, with seeds."""
    x, y, feeds = inputs([4, 6])
    keep = tf1.placeholder(tf.float32, [], name="keep")
    value = tf1.nn.dropout(tf.nn.relu(dense(x, 8, "hidden")), rate=1.0 - keep, seed=SEED)
    value += 0.1 * tf1.truncated_normal([4, 8], seed=SEED + 1)
    order = tf1.random_shuffle(tf.range(4), seed=SEED + 2)
    logits = tf.gather(dense(value, CLASSES, "logits"), order)
    loss = cross_entropy(logits, tf.gather(y, order))
    return make_training(loss, feeds={**feeds, keep: 0.7})


@KINDS.v1
def image_augmentation() -> StepGraph:
    """Flips, crops, resizes and standardizes images at random, and convolves them."""
    x, y, feeds = inputs([2, 6, 6, 3])

    def augment(image: tf.Tensor) -> tf.Tensor:
        image = tf.image.random_flip_left_right(image, seed=SEED)
        image = tf.image.random_brightness(image, 0.2, seed=SEED + 1)
        return tf.image.per_image_standardization(tf1.random_crop(image, [4, 4, 3], SEED))

    images = tf.stack([augment(each) for each in tf.unstack(x)])
    images = tf1.image.resize_bilinear(images, [5, 5], align_corners=True)
    value = tf.nn.conv2d(images, weight_variable("kernel", [3, 3, 3, 4]), 2, "SAME")
    return make_classifier(tf.reduce_mean(tf.nn.relu(value), [1, 2]), y, feeds)


@KINDS.default
def candidate_sampling() -> StepGraph:
    """Trains embeddings against sampled words, by two losses."""
    words = tf1.placeholder(tf.int64, [4], name="words")
    labels = tf1.placeholder(tf.int64, [4, 1], name="labels")
    value = tf.nn.embedding_lookup(weight_variable("embedding", [20, 4]), words)
    weights, bias = weight_variable("weights", [20, 4]), weight_variable("bias", [20])
    sampled = tf.random.log_uniform_candidate_sampler(labels, 1, 5, True, 20, seed=SEED)
    contrast = tf.nn.nce_loss(weights, bias, labels, value, 5, 20, 1, sampled)
    sampled = tf.random.uniform_candidate_sampler(labels, 1, 6, True, 20, seed=SEED)
    softmax = tf1.nn.sampled_softmax_loss(
        weights, bias, labels, value, 6, 20, 1, sampled, seed=SEED
    )
    loss = tf.reduce_mean(contrast + softmax, name="loss")
    feeds = {words: np.array([1, 2, 3, 2]), labels: np.array([[2], [3], [4], [0]])}
    return make_training(loss, tf1.train.AdagradOptimizer(0.1), feeds)


@KINDS.v1
def fake_quantization() -> StepGraph:
    """Rounds weights and activations as 8-bit arithmetic would, in ranges that it learns."""
    x, y, feeds = inputs([4, 6])
    value = tf.nn.relu6(dense(x, 5, "hidden"))
    low, high = counter("low", tf.float32), counter("high", tf.float32)
    moved = [
        tf1.assign_sub(low, 0.1 * (low - tf.reduce_min(value))),
        tf1.assign_sub(high, 0.1 * (high - tf.reduce_max(value))),
    ]
    value = tf.quantization.fake_quant_with_min_max_vars(value, *moved)
    weights = weight_variable("weights", [5, CLASSES])
    weights = tf.quantization.fake_quant_with_min_max_args(weights, -1.0, 1.0, num_bits=4)
    logits = tf.quantization.quantize_and_dequantize_v2(
        tf.matmul(value, weights), -4.0, 4.0, range_given=True
    )
    return make_training(cross_entropy(logits, y), feeds=feeds)


@KINDS.default
def spectral_normalization() -> StepGraph:
    """Divides weights by their norm, which a vector kept from step to step estimates."""
    x, y, feeds = inputs([4, 6])
    weights = weight_variable("weights", [6, 5])
    (left,) = _statistics(6, left=0.4)
    right = tf.math.l2_normalize(tf.linalg.matvec(weights, left, transpose_a=True))
    next_left = tf.stop_gradient(tf.math.l2_normalize(tf.linalg.matvec(weights, right)))
    norm = tf.tensordot(next_left, tf.linalg.matvec(weights, tf.stop_gradient(right)), 1)
    tf1.add_to_collection(tf1.GraphKeys.UPDATE_OPS, tf1.assign(left, next_left).op)
    value = tf.nn.relu(tf.matmul(x, weights / norm))
    return make_classifier(value, y, feeds)


@KINDS.v1
def custom_gradients() -> StepGraph:
    """Replaces gradients: of a function, and of an operation type by name."""

    @tf.custom_gradient
    def round_value(value: tf.Tensor) -> tuple[tf.Tensor, object]:
        return tf.round(value * 4.0) / 4.0, lambda gradient: tf.clip_by_norm(gradient, 0.5)

    x, y, feeds = inputs([4, 6])
    with tf1.get_default_graph().gradient_override_map({"Sign": "Identity", "Relu": "Relu6"}):
        value = tf.sign(tf.nn.relu(dense(x, 5, "hidden"))) + round_value(dense(x, 5, "other"))
    return make_classifier(value, y, feeds)


@KINDS.default
def nested_functions() -> StepGraph:
    """Calls functions that call functions, capture variables and assign to one."""
    x, y, feeds = inputs([4, 5])
    weights = weight_variable("weights", [5, 5], use_resource=True)
    calls = tf1.get_variable("calls", initializer=0, use_resource=True, trainable=False)

    @tf.function
    def inner(value: tf.Tensor) -> tf.Tensor:
        return tf.tanh(tf.matmul(value, weights))

    @tf.function
    def outer(value: tf.Tensor) -> tf.Tensor:
        calls.assign_add(1)
        for _ in tf.range(2):
            value = inner(value)
        return value if tf.reduce_sum(value) > 0.0 else -value

    return make_classifier(outer(x), y, feeds)


@KINDS.v1
def defuns() -> StepGraph:
    """Calls functions of TensorFlow 1, one with a gradient of its own."""

    @function.Defun(tf.float32, tf.float32)
    def gradient(value: tf.Tensor, above: tf.Tensor) -> tf.Tensor:
        return above * (1.0 - tf.square(tf.tanh(value)))

    @function.Defun(tf.float32, grad_func=gradient, func_name="activation")
    def activation(value: tf.Tensor) -> tf.Tensor:
        return tf.tanh(value)

    @function.Defun(tf.float32, tf.float32, func_name="layer")
    def layer(value: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
        return activation(tf.matmul(value, weights))

    x, y, feeds = inputs([4, 5])
    value = layer(x, weight_variable("weights", [5, 5]))
    value.set_shape([4, 5])
    return make_classifier(value, y, feeds)


@KINDS.v2
def recomputed_layers() -> StepGraph:
    """Computes layers again in the backward pass instead of keeping what they made."""
    x, y, feeds = inputs([4, 5])
    weights = [weight_variable(f"weights_{i}", [5, 5]) for i in range(2)]
    value = x
    for each in weights:
        value = tf.recompute_grad(lambda v, w=each: tf.tanh(tf.matmul(v, w)))(value)
    return make_classifier(value, y, feeds)


@KINDS.v1
def towers() -> StepGraph:
    """Averages the gradients of two replicas that share variables."""
    x, y, feeds = inputs([4, 6])
    trainer = tf1.train.AdamOptimizer(0.05)
    losses, gradients = [], []
    for number, (part, labels) in enumerate(zip(tf.split(x, 2), tf.split(y, 2), strict=True)):
        with tf1.variable_scope("model", reuse=number > 0), tf1.name_scope(f"tower_{number}"):
            hidden = tf.nn.relu(dense(part, 5, "hidden"))
            losses.append(classifier_loss(hidden, labels))
        gradients.append(trainer.compute_gradients(losses[-1]))
    means = [
        (tf.reduce_mean(tf.stack([g for g, _ in pairs]), axis=0), pairs[0][1])
        for pairs in zip(*gradients, strict=True)
    ]
    joined = tf.tuple([mean for mean, _ in means])
    variables = [variable for _, variable in means]
    train = trainer.apply_gradients(zip(joined, variables, strict=True), name="train")
    return step_graph(train, *losses, feeds=feeds)


@KINDS.v1
def given_devices() -> StepGraph:
    """Has variables and the input on a device that the script names, and the rest nowhere."""
    x, y, feeds = inputs([4, 6])
    with tf.device("/cpu:0"):
        table = weight_variable("table", [6, 5])
        scaled = x / (1.0 + tf.reduce_max(tf.abs(x)))
    with tf1.device(lambda operation: "/cpu:0" if operation.type == "VariableV2" else ""):
        value = tf.nn.relu(dense(tf.matmul(scaled, table), 5, "hidden"))
    return make_classifier(value, y, feeds)


@KINDS.default
def frozen_inference() -> StepGraph:
    """Has constants for weights, and predicts."""
    random = np.random.default_rng(SEED)
    x, _, feeds = inputs([4, 6])
    value = x
    for number in range(3):
        weights = tf.constant(random.standard_normal([6, 6]) / 2, tf.float32)
        value = tf.nn.relu(tf.matmul(value, weights, name=f"layer_{number}") + 0.1)
    best = tf.math.top_k(tf.nn.softmax(value), 2)
    return step_graph(best.values, best.indices, feeds={x: feeds[x.name]})


@KINDS.v1
def summaries_and_checks() -> StepGraph:
    """Summarizes, prints and asserts on the way to the update."""
    x, y, feeds = inputs([4, 6])
    value = dense(x, 5, "hidden")
    check = tf1.Assert(tf.reduce_all(tf.math.is_finite(value)), [value])
    with tf.control_dependencies([check, tf1.assert_less(y, CLASSES)]):
        value = tf.debugging.check_numerics(tf.nn.relu(value), "not finite")
    loss = classifier_loss(value, y)
    loss = tf1.Print(loss, [loss], "loss", first_n=0)
    train = clip_and_apply(loss)
    tf1.summary.scalar("loss", loss)
    tf1.summary.histogram("hidden", value)
    tf1.summary.image("x", tf.reshape(x, [1, 4, 6, 1]))
    size = tf.strings.length(tf1.summary.merge_all())
    return step_graph(train, loss, size, feeds=feeds)
