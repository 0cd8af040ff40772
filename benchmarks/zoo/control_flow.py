"""Conditionals and loops, in each other and with assignments inside."""

from __future__ import annotations

import tensorflow as tf

from benchmarks.zoo.graph_parts import (
    Kinds,
    StepGraph,
    classifier_loss,
    clip_and_apply,
    counter,
    cross_entropy,
    inputs,
    make_classifier,
    make_training,
    step_graph,
    weight_variable,
)

tf1 = tf.compat.v1

__all__ = ["KINDS"]

KINDS = Kinds()

_UNITS = 4


@KINDS.both
def assign_in_cond() -> StepGraph:
    """Keeps the loss of every other step in a variable, which the other steps add to."""
    x, y, feeds = inputs([4, 6])
    loss = classifier_loss(x, y)
    count, kept = counter("count"), counter("kept", tf.float32)
    with tf.control_dependencies([clip_and_apply(loss)]):
        assigned = tf1.cond(
            tf.equal(count % 2, 0),
            lambda: tf1.assign(kept, loss),
            lambda: tf1.assign_add(kept, 1.0),
        )
        value = tf.identity(assigned, name="value")
    with tf.control_dependencies([value]):
        counted = tf1.assign_add(count, 1)
    return step_graph(counted.op, loss, value, feeds=feeds)


@KINDS.both
def assign_in_while() -> StepGraph:
    """Adds to a variable in every iteration and reads it in the same one."""
    start = tf1.placeholder(tf.float32, [], name="start")
    total = counter("total", tf.float32)

    def body(i: tf.Tensor, value: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        added = tf1.assign_add(total, 0.5 * value + tf.cast(i, tf.float32))
        return i + 1, tf.identity(added) * 0.5

    _, value = tf1.while_loop(lambda i, _: i < 3, body, (tf.constant(0), start))
    return step_graph(value, feeds={start: 2.0})


@KINDS.both
def cond_in_while() -> StepGraph:
    """Chooses what an iteration does, counts one of the choices, and trains through the loop."""
    x, y, feeds = inputs([4, _UNITS])
    weights = weight_variable("weights", [_UNITS, _UNITS])
    shift = weight_variable("shift", [_UNITS])
    visits = counter("visits")

    def shift_value(value: tf.Tensor) -> tf.Tensor:
        with tf.control_dependencies([tf1.assign_add(visits, 1).op]):
            return value + shift

    def body(i: tf.Tensor, value: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        value = tf1.cond(
            tf.equal(i % 2, 0),
            lambda: tf.tanh(tf.matmul(value, weights)),
            lambda: shift_value(value),
        )
        return i + 1, value

    _, value = tf1.while_loop(lambda i, _: i < 3, body, (tf.constant(0), x))
    return make_classifier(value, y, feeds)


@KINDS.both
def while_in_cond() -> StepGraph:
    """Loops in every other step, assigns in the loop, and trains through it."""
    x, y, feeds = inputs([4, _UNITS])
    weights = weight_variable("weights", [_UNITS, _UNITS])
    iterations = counter("iterations")

    def body(i: tf.Tensor, value: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        with tf.control_dependencies([tf1.assign_add(iterations, 1).op]):
            return i + 1, tf.tanh(tf.matmul(value, weights))

    def run_loop() -> tf.Tensor:
        return tf1.while_loop(lambda i, _: i < 3, body, (tf.constant(0), x))[1]

    step = tf1.train.get_or_create_global_step()
    value = tf1.cond(tf.equal(step % 2, 0), run_loop, lambda: x * 2.0)
    return make_classifier(value, y, feeds)


@KINDS.both
def nested_whiles() -> StepGraph:
    """Loops in a loop, and trains through both."""
    x, y, feeds = inputs([4, _UNITS])
    weights = weight_variable("weights", [_UNITS, _UNITS])

    def inner(j: tf.Tensor, value: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        return j + 1, tf.tanh(tf.matmul(value, weights))

    def outer(i: tf.Tensor, value: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        _, value = tf1.while_loop(lambda j, _: j <= i, inner, (tf.constant(0), value))
        return i + 1, value + x

    _, value = tf1.while_loop(lambda i, _: i < 3, outer, (tf.constant(0), x))
    return make_classifier(value, y, feeds)


@KINDS.both
def cond_of_variables() -> StepGraph:
    """Takes one of two variables, and trains it."""
    x, y, feeds = inputs([4, 6])
    first, second = (weight_variable(name, [6, 3]) for name in ("first", "second"))
    step = tf1.train.get_or_create_global_step()
    weights = tf1.cond(tf.equal(step % 2, 0), lambda: first, lambda: second)
    return make_training(cross_entropy(tf.matmul(x, weights), y), feeds=feeds)


@KINDS.both
def switch_case() -> StepGraph:
    """Takes one of three branches by number, and trains it."""
    x, y, feeds = inputs([4, 6])
    step = tf1.train.get_or_create_global_step()
    weights = [weight_variable(f"weights_{i}", [6, 3]) for i in range(3)]
    branches = [lambda w=w, i=i: tf.matmul(x, w) * (1.0 + i) for i, w in enumerate(weights)]
    logits = tf.switch_case(tf.cast(step % 3, tf.int32), branches)
    return make_training(cross_entropy(logits, y), feeds=feeds)


@KINDS.v1
def switch_and_merge() -> StepGraph:
    """Has branches of bare Switch and Merge operations, one of which is dead in each step."""
    x = tf1.placeholder(tf.float32, [4, 6], name="x")
    weights = weight_variable("weights", [6, 3])
    count = counter("count")
    with tf.control_dependencies([tf1.assign_add(count, 1).op]):
        is_odd = tf.equal(count.read_value() % 2, 1)
    dead, alive = tf.raw_ops.Switch(data=x, pred=is_odd)
    left, right = tf.tanh(tf.matmul(dead, weights)), tf.matmul(alive, weights) * 2.0
    merged = tf.raw_ops.Merge(inputs=[left, right])
    value = tf.reduce_sum(merged.output) + tf.cast(merged.value_index, tf.float32)
    feeds = {x: [[0.1 * i - 0.2 * j for i in range(6)] for j in range(4)]}
    return step_graph(value, feeds=feeds)
