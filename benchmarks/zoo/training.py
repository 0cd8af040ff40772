"""Optimizers and what is wrapped around them, and other assignments to variables."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import tensorflow as tf

from benchmarks.models.adam_weight_decay import AdamWeightDecay
from benchmarks.zoo.graph_parts import (
    CLASSES,
    SEED,
    Kinds,
    StepGraph,
    classifier_loss,
    clip_and_apply,
    counter,
    cross_entropy,
    dense,
    inputs,
    make_classifier,
    make_training,
    perceptron,
    step_graph,
    weight_variable,
)

tf1 = tf.compat.v1

__all__ = ["KINDS"]

KINDS = Kinds()


@KINDS.both
def adam_weight_decay() -> StepGraph:
    """Trains with an optimizer written by hand, with a rate that warms up and decays."""
    loss, feeds = perceptron()
    step = tf1.train.get_or_create_global_step()
    rate = tf1.train.polynomial_decay(0.1, step, 10, end_learning_rate=0.0)
    warm = tf.cast(step, tf.float32) / 3.0
    rate = tf.where(step < 3, 0.1 * warm, rate)
    return make_training(loss, AdamWeightDecay(rate), feeds)


@KINDS.both
def accumulated_gradients() -> StepGraph:
    """Adds gradients up in variables, and applies them in every other step."""
    loss, feeds = perceptron()
    trainer = tf1.train.MomentumOptimizer(0.1, 0.9)
    variables = tf1.trainable_variables()
    gradients = tf.tuple(tf.gradients(loss, variables))
    count = counter("count")
    with tf1.variable_scope("sums"):
        sums = [
            tf1.get_variable(v.op.name, v.shape, initializer=tf1.zeros_initializer())
            for v in variables
        ]
    added = [tf1.assign_add(s, g) for s, g in zip(sums, gradients, strict=True)]

    def apply_means() -> tf.Tensor:
        means = [each * 0.5 for each in added]
        update = trainer.apply_gradients(zip(means, variables, strict=True))
        with tf.control_dependencies([update]):
            cleared = [tf1.assign(each, tf.zeros_like(each)).op for each in sums]
        with tf.control_dependencies(cleared):
            return tf.constant(True)

    with tf.control_dependencies([each.op for each in added]):
        number = tf1.assign_add(count, 1)
    # An optimizer cannot create its slots inside a branch.
    trainer._create_slots(variables)
    is_due = tf1.cond(tf.equal(number % 2, 0), apply_means, lambda: tf.constant(False))
    return step_graph(is_due, loss, feeds=feeds)


@KINDS.v1
def conditional_accumulators() -> StepGraph:
    """Averages the gradients of two replicas in accumulators, as synchronous replicas do."""
    losses, feeds = [], {}
    for replica in range(2):
        with tf1.variable_scope("model", reuse=replica > 0), tf1.name_scope(f"r{replica}"):
            x = tf1.placeholder(tf.float32, [4, 6])
            losses.append(tf.reduce_mean(tf.square(dense(x, 1, "out") - 1.0 - replica)))
        random = np.random.default_rng(SEED + replica)
        feeds[x] = random.standard_normal([4, 6]).astype(np.float32)
    variables = tf1.trainable_variables()
    gradients = [tf.tuple(tf.gradients(loss, variables)) for loss in losses]
    step = tf1.train.get_or_create_global_step()
    means = []
    for number, variable in enumerate(variables):
        accumulator = tf1.ConditionalAccumulator(tf.float32, variable.shape)
        local = tf.identity(step)
        pushed = [accumulator.apply_grad(each[number], local) for each in gradients]
        with tf.control_dependencies(pushed):
            means.append(accumulator.take_grad(2))
    trainer = tf1.train.GradientDescentOptimizer(0.1)
    means = tf.tuple(means)
    update = trainer.apply_gradients(zip(means, variables, strict=True), step, name="train")
    return step_graph(update, *losses, feeds=feeds)


@KINDS.both
def loss_scaling() -> StepGraph:
    """Scales the loss, skips steps whose gradients overflow, and adapts the scale."""
    loss, feeds = perceptron()
    scale = tf1.get_variable("scale", [], initializer=tf.constant_initializer(3e38))
    good = counter("good_steps")
    variables = [v for v in tf1.trainable_variables() if v is not scale]
    trainer = tf1.train.AdamOptimizer(0.05)
    current = tf.identity(scale)
    gradients = [g / current for g in tf.gradients(loss * current * 4.0, variables)]
    finite = tf.reduce_all([tf.reduce_all(tf.math.is_finite(g)) for g in gradients])
    gradients = tf.tuple(gradients)
    trainer._create_slots(variables)

    def apply() -> tf.Tensor:
        update = trainer.apply_gradients(zip(gradients, variables, strict=True))
        with tf.control_dependencies([update]):
            return tf.identity(tf1.assign_add(good, 1))

    def skip() -> tf.Tensor:
        with tf.control_dependencies([tf1.assign(scale, current * 0.1).op]):
            return tf.identity(tf1.assign(good, 0))

    number = tf1.cond(finite, apply, skip)
    return step_graph(number, finite, loss, feeds=feeds)


@KINDS.v2
def loss_scale_optimizer() -> StepGraph:
    """Trains with TensorFlow's own wrapper that scales losses."""
    loss, feeds = perceptron()
    scale = tf1.mixed_precision.DynamicLossScale(initial_loss_scale=64.0, increment_period=2)
    trainer = tf1.mixed_precision.MixedPrecisionLossScaleOptimizer(
        tf1.train.MomentumOptimizer(0.1, 0.9), scale
    )
    gradients, variables = zip(*trainer.compute_gradients(loss), strict=True)
    train = trainer.apply_gradients(zip(tf.tuple(gradients), variables, strict=True))
    return step_graph(train, loss, feeds=feeds)


@KINDS.both
def moving_averages(v2: bool) -> StepGraph:
    """Averages the weights after each update, and evaluates with the averages."""
    loss, feeds = perceptron()
    train = clip_and_apply(loss)
    step = tf1.train.get_global_step()
    averages = tf1.train.ExponentialMovingAverage(0.9, num_updates=step, zero_debias=v2)
    variables = tf1.trainable_variables()
    with tf.control_dependencies([train]):
        averaged = averages.apply(variables)
    with tf.control_dependencies([averaged]):
        weights = [averages.average(v).read_value() for v in variables]
        shown = tf.add_n([tf.reduce_sum(tf.square(each)) for each in weights])
    return step_graph(averaged, loss, shown, feeds=feeds)


@KINDS.default
def decaying_rates() -> StepGraph:
    """Trains two groups of variables at rates that decay in different ways."""
    loss, feeds = perceptron()
    step = tf1.train.get_or_create_global_step()
    rates = [
        tf1.train.piecewise_constant(step, [1, 3], [0.1, 0.05, 0.01]),
        tf1.train.cosine_decay_restarts(0.1, step, 2),
    ]
    variables = tf1.trainable_variables()
    gradients = tf.tuple(tf.gradients(loss, variables))
    updates = []
    for number, rate in enumerate(rates):
        trainer = tf1.train.GradientDescentOptimizer(rate)
        mine = list(zip(gradients, variables, strict=True))[2 * number : 2 * number + 2]
        updates.append(trainer.apply_gradients(mine))
    with tf.control_dependencies(updates):
        train = tf1.assign_add(step, 1, name="train")
    return step_graph(train.op, loss, feeds=feeds)


@KINDS.v2
def adversaries() -> StepGraph:
    """Trains a discriminator, and then a generator against it, in one step."""
    x = tf1.placeholder(tf.float32, [4, 2], name="x")
    noise = tf1.random_normal([4, 3], seed=SEED)

    def discriminate(value: tf.Tensor, reuse: bool) -> tf.Tensor:
        with tf1.variable_scope("discriminator", reuse=reuse):
            return dense(tf.nn.leaky_relu(dense(value, 4, "hidden")), 1, "logit")

    with tf1.variable_scope("generator"):
        made = tf.tanh(dense(noise, 2, "out"))
    real, fake = discriminate(x, False), discriminate(made, True)
    loss = tf.reduce_mean(tf.nn.softplus(-real)) + tf.reduce_mean(tf.nn.softplus(fake))
    trainer = tf1.train.AdamOptimizer(0.05, beta1=0.5)
    scopes = [tf1.trainable_variables(name) for name in ("discriminator", "generator")]
    first = trainer.compute_gradients(loss, scopes[0])
    gradients, variables = zip(*first, strict=True)
    first_train = trainer.apply_gradients(zip(tf.tuple(gradients), variables, strict=True))
    with tf.control_dependencies([first_train]):
        again = discriminate(tf.identity(made), True)
        second_loss = tf.reduce_mean(tf.nn.softplus(-again))
    second = tf1.train.AdamOptimizer(0.05)
    second_train = second.minimize(second_loss, var_list=scopes[1], name="train")
    feeds = {x: np.random.default_rng(SEED).standard_normal([4, 2]).astype(np.float32)}
    return step_graph(second_train, loss, second_loss, feeds=feeds)


@KINDS.both
def sparse_gradients() -> StepGraph:
    """Trains embeddings with the sparse updates of seven optimizers."""
    optimizers = (
        tf1.train.AdagradOptimizer(0.1),
        tf1.train.AdamOptimizer(0.1),
        tf1.train.FtrlOptimizer(0.1, l1_regularization_strength=0.01),
        tf1.train.GradientDescentOptimizer(0.1),
        tf1.train.MomentumOptimizer(0.1, 0.9, use_nesterov=True),
        tf1.train.ProximalAdagradOptimizer(0.1),
        tf1.train.RMSPropOptimizer(0.1, centered=True),
    )
    words = tf1.placeholder(tf.int32, [2, 3], name="words")
    tables = [weight_variable(f"table_{i}", [5, 2]) for i in range(len(optimizers))]
    means = [tf.reduce_mean(tf.nn.embedding_lookup(t, words), axis=1) for t in tables]
    loss = tf.reduce_mean(tf.square(tf.concat(means, axis=1) - 0.5), name="loss")
    gradients, _ = tf.clip_by_global_norm(tf.gradients(loss, tables), 1.0)
    updates = [
        optimizer.apply_gradients([(gradient, table)])
        for optimizer, gradient, table in zip(optimizers, gradients, tables, strict=True)
    ]
    feeds = {words: np.array([[0, 1, 1], [3, 4, 0]], np.int32)}
    return step_graph(*updates, loss, feeds=feeds)


@KINDS.both
def partitioned_variables() -> StepGraph:
    """Looks words up in a table of three variables, and multiplies with weights of two."""
    words = tf1.placeholder(tf.int64, [4], name="words")
    labels = tf.constant([0, 1, 2, 0])
    with tf1.variable_scope("parts", partitioner=tf1.fixed_size_partitioner(3)):
        table = weight_variable("table", [7, 4])
    with tf1.variable_scope("parts", partitioner=tf1.fixed_size_partitioner(2, axis=1)):
        weights = weight_variable("weights", [4, 4])
    found = tf1.nn.embedding_lookup(table, words, partition_strategy="div")
    hidden = tf.tanh(tf.matmul(found, tf.convert_to_tensor(weights)))
    return make_classifier(hidden, labels, {words: np.array([0, 3, 6, 3], np.int64)})


@KINDS.both
def counters() -> StepGraph:
    """Counts in several variables, in an order that control dependencies give."""
    first, second = counter("first"), counter("second", tf.int64)
    slow = counter("slow", tf.float32)
    with tf.control_dependencies([tf1.assign_add(first, 2).op]):
        read = first.read_value() * 3
    with tf.control_dependencies([tf1.assign_sub(second, tf.cast(read, tf.int64)).op]):
        both = tf.cast(second.read_value(), tf.float32) + tf.cast(read, tf.float32)
    with tf.control_dependencies([tf1.assign(slow, 0.9 * slow + 0.1 * both).op]):
        shown = slow.read_value() + 1.0
    return step_graph(shown, read)


@KINDS.both
def scatter_updates() -> StepGraph:
    """Writes rows and elements of variables, and reads them where they were written."""
    rows = tf1.placeholder(tf.float32, [2, 3], name="rows")
    step = counter("step")
    memory = tf1.get_variable("memory", [6, 3], initializer=tf1.zeros_initializer())
    with tf.control_dependencies([tf1.assign_add(step, 1).op]):
        position = step.read_value() % 3 * 2
    places = tf.stack([position, position + 1])
    written = tf1.scatter_update(memory, places, rows)
    with tf.control_dependencies([getattr(written, "op", written)]):
        added = tf1.scatter_nd_add(memory, [[0, 1], [5, 2]], [0.5, 0.25])
    with tf.control_dependencies([getattr(added, "op", added)]):
        chosen = tf.gather_nd(memory.read_value(), [[0, 1], [3, 0], [5, 2]])
        spread = tf.scatter_nd([[1], [4]], chosen[:2], [6])
        result = tf.tensor_scatter_nd_add(spread, [[0], [1]], chosen[1:]) * chosen[0]
    feeds = {rows: np.arange(6, dtype=np.float32).reshape(2, 3)}
    return step_graph(result, feeds=feeds)


@KINDS.default
def replay_memory() -> StepGraph:
    """Learns from a memory that it fills, with a target network that is copied now and then."""
    seen = tf1.placeholder(tf.float32, [2, 3], name="seen")
    step = tf1.train.get_or_create_global_step()
    memory = tf1.get_variable("memory", [8, 3], initializer=tf1.ones_initializer(), trainable=False)
    first = tf.cast(step * 2 % 8, tf.int32)
    noise = tf1.random_normal([2, 3], stddev=0.1, seed=SEED)
    written = tf1.scatter_update(memory, tf.stack([first, first + 1]), seen + noise)
    with tf.control_dependencies([getattr(written, "op", written)]):
        chosen = tf.gather(memory, tf1.random_uniform([4], 0, 8, tf.int32, seed=SEED))
    with tf1.variable_scope("online"):
        value = dense(chosen, 2, "value")
    with tf1.variable_scope("target"):
        target = tf.stop_gradient(tf.reduce_max(dense(chosen, 2, "value"), axis=1))
    loss = tf.reduce_mean(tf1.losses.huber_loss(target * 0.9 + 0.1, value[:, 0]))
    train = tf1.train.RMSPropOptimizer(0.05).minimize(
        loss, step, tf1.trainable_variables("online"), name="train"
    )
    pairs = zip(tf1.global_variables("target"), tf1.trainable_variables("online"), strict=True)

    def copy_variables() -> tf.Tensor:
        with tf.control_dependencies([tf1.assign(old, new).op for old, new in pairs]):
            return tf.constant(True)

    with tf.control_dependencies([train]):
        is_due = tf.equal(tf.identity(step) % 2, 0)
        is_copied = tf1.cond(is_due, copy_variables, lambda: tf.constant(False))
    return step_graph(is_copied, loss, feeds={seen: np.eye(3, dtype=np.float32)[:2]})


@KINDS.v1
def streaming_metrics() -> StepGraph:
    """Counts hits in local variables while it trains."""
    x, y, feeds = inputs([4, 6])
    logits = dense(x, CLASSES, "logits")
    loss = cross_entropy(logits, y)
    _, accuracy = tf1.metrics.accuracy(y, tf.argmax(logits, 1), name="accuracy")
    _, mean = tf1.metrics.mean(loss, name="mean")
    step = make_training(loss, feeds=feeds)
    return dataclasses.replace(step, fetches=(*step.fetches, accuracy.name, mean.name))


@KINDS.default
def half_precision() -> StepGraph:
    """Computes in float16 and bfloat16 with variables of float32 and a scaled loss."""

    def as_half(getter: Any, *args: Any, dtype: tf.DType = tf.float32, **more: Any) -> tf.Tensor:
        return tf.cast(getter(*args, dtype=tf.float32, **more), dtype)

    x, y, feeds = inputs([4, 6])
    value = x
    for dtype in (tf.float16, tf.bfloat16):
        with tf1.variable_scope(dtype.name, custom_getter=as_half):
            weights = tf1.get_variable(
                "weights",
                [int(value.shape[-1]), 5],
                dtype=dtype,
                initializer=tf1.random_normal_initializer(stddev=0.3),
            )
            value = tf.nn.relu(tf.matmul(tf.cast(value, dtype), weights))
    loss = classifier_loss(tf.cast(value, tf.float32), y)
    variables = tf1.trainable_variables()
    gradients = [g / 128.0 for g in tf.gradients(loss * 128.0, variables)]
    gradients, _ = tf.clip_by_global_norm(gradients, 1.0)
    trainer = tf1.train.MomentumOptimizer(0.05, 0.9)
    train = trainer.apply_gradients(zip(gradients, variables, strict=True), name="train")
    return step_graph(train, loss, feeds=feeds)


@KINDS.v1
def reference_race() -> StepGraph:
    """Adds to a reference variable while it is read: chance decides what is read."""
    x = tf1.placeholder(tf.float32, [4, 4], name="x")
    weights = weight_variable("weights", [4, 4])
    added = tf1.assign_add(weights, x)
    value = tf.reduce_sum(tf.matmul(weights, x))
    feeds = {x: np.eye(4, dtype=np.float32)}
    return step_graph(added.op, value, feeds=feeds, is_racy=True)
