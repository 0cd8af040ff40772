"""The parts of small training graphs."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
import tensorflow as tf

tf1 = tf.compat.v1

__all__ = [
    "CLASSES",
    "SEED",
    "Kinds",
    "StepGraph",
    "classifier_loss",
    "clip_and_apply",
    "control_flow",
    "convolution",
    "counter",
    "cross_entropy",
    "dense",
    "inputs",
    "make_classifier",
    "make_training",
    "new_graph",
    "perceptron",
    "step_graph",
    "weight_variable",
]

SEED = 7
CLASSES = 3


@dataclasses.dataclass(frozen=True)
class StepGraph:
    """A graph and one step of it.

    Attributes:
        graph: the graph.
        fetches: names of the operations and tensors that a step runs.
        feeds: what a step is fed, and what its initializers are fed, as `Session.run` takes it.
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


_Builder = TypeVar("_Builder", bound=Callable[..., "StepGraph"])


class Kinds(dict[str, Callable[[], StepGraph]]):
    """Builders of graphs by name, made of functions that add to a new default graph.

    The graph has the control flow and variables that TensorFlow has by default, those of one
    version, or those of either in two kinds, whose names end with the version (see `new_graph`).
    """

    def default(self, builder: _Builder) -> _Builder:
        """Decorates a function that builds one kind."""
        return self._add(builder, None)

    def v1(self, builder: _Builder) -> _Builder:
        """Decorates a function that builds one kind of version 1."""
        return self._add(builder, False)

    def v2(self, builder: _Builder) -> _Builder:
        """Decorates a function that builds one kind of version 2."""
        return self._add(builder, True)

    def both(self, builder: _Builder) -> _Builder:
        """Decorates a function that builds two kinds; it may have an argument `v2`."""
        return self._add(self._add(builder, False, "_v1"), True, "_v2")

    def _add(self, builder: _Builder, v2: bool | None, suffix: str = "") -> _Builder:
        arguments = {"v2": v2} if inspect.signature(builder).parameters else {}

        @functools.wraps(builder)
        def build() -> StepGraph:
            with new_graph(v2=v2):
                return builder(**arguments)

        self[builder.__name__ + suffix] = build
        return builder


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
    shape: list[int], classes: int = CLASSES, examples: int | None = None
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
    """Applies a convolution, batch normalization with moving averages, and ReLU."""
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


def classifier_loss(value: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
    """Computes the loss of a last layer of `CLASSES`."""
    return cross_entropy(dense(value, CLASSES, "logits"), labels)


def perceptron(scale: tf.Tensor | float | None = None) -> tuple[tf.Tensor, dict[str, np.ndarray]]:
    """Makes the loss of a perceptron with a hidden layer, and feeds; its inputs may be scaled."""
    x, y, feeds = inputs([4, 6])
    hidden = tf.nn.relu(dense(x if scale is None else x * scale, 5, "hidden"))
    return classifier_loss(hidden, y), feeds


def clip_and_apply(
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
    *fetches: tf.Tensor | tf.Operation,
    feeds: Mapping[Any, Any] | None = None,
    initializers: Sequence[tf.Operation] = (),
    is_racy: bool = False,
) -> StepGraph:
    """Completes the default graph by the initializers of variables and tables.

    Args:
        *fetches: what a step runs.
        feeds: see `StepGraph`.
        initializers: others, which run after them.
        is_racy: see `StepGraph`.
    """
    first = []
    if tf1.global_variables():
        first.append(tf1.global_variables_initializer())
    if tf1.local_variables():
        first.append(tf1.local_variables_initializer())
    if tf1.get_collection(tf1.GraphKeys.TABLE_INITIALIZERS):
        first.append(tf1.tables_initializer())
    return StepGraph(
        tf1.get_default_graph(),
        tuple(each.name for each in fetches),
        feeds or {},
        tuple(each.name for each in (*first, *initializers)),
        is_racy=is_racy,
    )


def make_training(
    loss: tf.Tensor,
    trainer: tf.compat.v1.train.Optimizer | None = None,
    feeds: Mapping[Any, Any] | None = None,
    initializers: Sequence[tf.Operation] = (),
) -> StepGraph:
    """Adds updates and initializers; a step runs the updates and fetches the loss before them."""
    return step_graph(clip_and_apply(loss, trainer), loss, feeds=feeds, initializers=initializers)


def make_classifier(
    value: tf.Tensor,
    labels: tf.Tensor,
    feeds: Mapping[Any, Any] | None = None,
    initializers: Sequence[tf.Operation] = (),
) -> StepGraph:
    """Trains the classifier of a value."""
    return make_training(classifier_loss(value, labels), feeds=feeds, initializers=initializers)
