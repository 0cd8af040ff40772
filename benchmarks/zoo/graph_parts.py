"""What small training graphs are made of."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

tf1 = tf.compat.v1

__all__ = [
    "SEED",
    "StepGraph",
    "clipped_update",
    "control_flow",
    "convolution",
    "counter",
    "cross_entropy",
    "dense",
    "inputs",
    "kinds",
    "new_graph",
    "step_graph",
    "trained",
    "training_graph",
    "weight_variable",
]

SEED = 7


@dataclasses.dataclass(frozen=True)
class StepGraph:
    """A graph and one step of it.

    Attributes:
        graph: the graph.
        fetches: names of the operations and tensors that a step runs.
        feeds: what a step is fed, and what its initialisers are fed, as `Session.run` takes it.
        initializers: names of the operations that a script runs before the first step, one after
            the other.
        has_runners: whether the graph has queue runners, without which a step waits for ever.
        is_racy: whether chance decides what a step computes.
    """

    graph: tf.Graph
    fetches: tuple[str, ...]
    feeds: Mapping[Any, Any] = dataclasses.field(default_factory=dict)
    initializers: tuple[str, ...] = ()
    has_runners: bool = False
    is_racy: bool = False


def kinds(*builders: Callable[..., StepGraph]) -> dict[str, Callable[[], StepGraph]]:
    """Names what builds graphs; a builder with an argument `v2` is one for each version."""
    found: dict[str, Callable[[], StepGraph]] = {}
    for builder in builders:
        if "v2" in inspect.signature(builder).parameters:
            for v2 in (False, True):
                name = f"{builder.__name__}_v{2 if v2 else 1}"
                found[name] = functools.partial(builder, v2=v2)
        else:
            found[builder.__name__] = builder
    return found


@contextlib.contextmanager
def new_graph(*, v2: bool | None = None) -> Iterator[tf.Graph]:
    """Makes a new default graph whose random operations are seeded.

    Args:
        v2: False for the control flow and the variables of TensorFlow 1, which are references; True
            for functional control flow and resource variables; None for what TensorFlow does.
    """
    with contextlib.ExitStack() as stack:
        graph = stack.enter_context(tf.Graph().as_default())
        tf1.set_random_seed(SEED)
        if v2 is not None:
            stack.enter_context(control_flow(v2=v2))
            scope = tf1.get_variable_scope()
            stack.enter_context(tf1.variable_scope(scope, use_resource=v2))
        yield graph


@contextlib.contextmanager
def control_flow(*, v2: bool) -> Iterator[None]:
    """Builds control flow as functions (v2) or as single operations, and then as before."""
    before = tf1.control_flow_v2_enabled()
    switch = {True: tf1.enable_control_flow_v2, False: tf1.disable_control_flow_v2}
    switch[v2]()
    try:
        yield
    finally:
        switch[before]()


def inputs(
    shape: list[int], classes: int, examples: int | None = None
) -> tuple[tf.Tensor, tf.Tensor, dict[str, np.ndarray]]:
    """Makes placeholders "x" and "y", and values for them; by default `shape[0]` labels."""
    random = np.random.default_rng(SEED)
    examples = examples or shape[0]
    x = tf1.placeholder(tf.float32, shape, name="x")
    y = tf1.placeholder(tf.int32, [examples], name="y")
    return (
        x,
        y,
        {
            x.name: random.standard_normal(shape).astype(np.float32),
            y.name: random.integers(0, classes, examples, dtype=np.int32),
        },
    )


def weight_variable(name: str, shape: list[int], use_resource: bool | None = None) -> tf.Variable:
    """Makes a variable of small random numbers."""
    return tf1.get_variable(
        name,
        shape,
        initializer=tf1.random_normal_initializer(stddev=0.3),
        use_resource=use_resource,
    )


def counter(name: str, dtype: tf.DType = tf.int32) -> tf.Variable:
    """Makes a variable of one number, 0 at first, that is not trained."""
    return tf1.get_variable(name, [], dtype, initializer=tf1.zeros_initializer(), trainable=False)


def dense(value: tf.Tensor, units: int, name: str) -> tf.Tensor:
    """Multiplies with weights and adds a bias."""
    with tf1.variable_scope(name):
        weights = weight_variable("weights", [int(value.shape[-1]), units])
        bias = tf1.get_variable("bias", [units], initializer=tf1.zeros_initializer())
        return tf.nn.bias_add(tf.matmul(value, weights), bias)


def convolution(value: tf.Tensor, filters: int, size: int, name: str) -> tf.Tensor:
    """Applies a convolution, batch normalisation with moving averages, and ReLU."""
    with tf1.variable_scope(name):
        kernel = weight_variable("weights", [size, size, int(value.shape[-1]), filters])
        value = tf1.nn.conv2d(value, kernel, strides=1, padding="SAME")
        offset = tf1.get_variable("offset", [filters], initializer=tf1.zeros_initializer())
        scale = tf1.get_variable("scale", [filters], initializer=tf1.ones_initializer())
        value, mean, variance = tf1.nn.fused_batch_norm(value, scale, offset)
        for statistic, initial in (("mean", mean), ("variance", variance)):
            moving = tf1.get_variable(
                f"moving_{statistic}",
                [filters],
                initializer=tf1.zeros_initializer(),
                trainable=False,
            )
            update = tf1.assign_sub(moving, 0.1 * (moving - initial))
            tf1.add_to_collection(tf1.GraphKeys.UPDATE_OPS, update)
        return tf.nn.relu(value)


def cross_entropy(logits: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
    """Computes the loss of a classifier."""
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)
    return tf.reduce_mean(losses, name="loss")


def clipped_update(
    loss: tf.Tensor, trainer: tf.compat.v1.train.Optimizer | None = None
) -> tf.Operation:
    """Adds updates of all variables, by Adam if nobody says, after those of moving averages.

    The gradients are clipped, so all of them are computed before the first variable changes.
    """
    trainer = trainer or tf1.train.AdamOptimizer(0.05)
    gradients, variables = zip(*trainer.compute_gradients(loss), strict=True)
    clipped, _ = tf.clip_by_global_norm(gradients, 1.0)
    with tf.control_dependencies(tf1.get_collection(tf1.GraphKeys.UPDATE_OPS)):
        return trainer.apply_gradients(
            zip(clipped, variables, strict=True),
            global_step=tf1.train.get_or_create_global_step(),
            name="train",
        )


def step_graph(
    graph: tf.Graph,
    *fetches: tf.Tensor | tf.Operation,
    feeds: Mapping[Any, Any] | None = None,
    initializers: tuple[tf.Operation, ...] = (),
    **properties: bool,
) -> StepGraph:
    """Adds the initialisers of variables and tables.

    Args:
        graph: the graph.
        *fetches: what a step runs.
        feeds: see `StepGraph`.
        initializers: others, which run after them.
        **properties: see `StepGraph`.
    """
    first = []
    if tf1.global_variables():
        first.append(tf1.global_variables_initializer())
    if tf1.local_variables():
        first.append(tf1.local_variables_initializer())
    if tf1.get_collection(tf1.GraphKeys.TABLE_INITIALIZERS):
        first.append(tf1.tables_initializer())
    names = tuple(each.name for each in (*first, *initializers))
    return StepGraph(graph, tuple(each.name for each in fetches), feeds or {}, names, **properties)


def trained(
    graph: tf.Graph,
    loss: tf.Tensor,
    trainer: tf.compat.v1.train.Optimizer | None = None,
    feeds: Mapping[Any, Any] | None = None,
    initializers: tuple[tf.Operation, ...] = (),
) -> StepGraph:
    """Adds updates and initialisers; a step runs the updates and fetches the loss before them."""
    train = clipped_update(loss, trainer)
    return step_graph(graph, train, loss, feeds=feeds, initializers=initializers)


def training_graph(
    graph: tf.Graph,
    loss: tf.Tensor,
    optimizer: str,
    feeds: Mapping[str, np.ndarray] | None = None,
    initializers: tuple[str, ...] = (),
) -> StepGraph:
    """Adds updates by an optimiser of a known name, and the initialiser of variables alone."""
    optimizers = {
        "adam": lambda: tf1.train.AdamOptimizer(0.05),
        "momentum": lambda: tf1.train.MomentumOptimizer(0.05, 0.9),
        "rmsprop": lambda: tf1.train.RMSPropOptimizer(0.05, momentum=0.9),
    }
    train = clipped_update(loss, optimizers[optimizer]())
    initializer = tf1.global_variables_initializer()
    return StepGraph(graph, (train.name, loss.name), feeds or {}, (initializer.name, *initializers))
