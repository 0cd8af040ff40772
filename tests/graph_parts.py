"""What the test graphs are made of."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator, Mapping

import numpy as np
import tensorflow as tf

tf1 = tf.compat.v1

__all__ = [
    "SEED",
    "TestGraph",
    "control_flow",
    "convolution",
    "cross_entropy",
    "dense",
    "inputs",
    "new_graph",
    "training_graph",
    "weight_variable",
]

SEED = 7


@dataclasses.dataclass(frozen=True)
class TestGraph:
    """A graph and one step of it, all by name.

    Attributes:
        graph: the graph.
        fetches: names of the operations and tensors (float32 scalars) that a step runs.
        feeds: the value of each fed tensor.
        initializers: names of the operations that run once, together, before the first step.
    """

    graph: tf.Graph
    fetches: tuple[str, ...]
    feeds: Mapping[str, np.ndarray] = dataclasses.field(default_factory=dict)
    initializers: tuple[str, ...] = ()


@contextlib.contextmanager
def new_graph() -> Iterator[tf.Graph]:
    """A new default graph whose random operations are seeded."""
    with tf.Graph().as_default() as graph:
        tf1.set_random_seed(SEED)
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
    """Placeholders "x" and "y", and values for them; as many labels as `shape[0]` by default."""
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
    return tf1.get_variable(
        name,
        shape,
        initializer=tf1.random_normal_initializer(stddev=0.3),
        use_resource=use_resource,
    )


def dense(value: tf.Tensor, units: int, name: str) -> tf.Tensor:
    with tf1.variable_scope(name):
        weights = weight_variable("weights", [int(value.shape[-1]), units])
        bias = tf1.get_variable("bias", [units], initializer=tf1.zeros_initializer())
        return tf.nn.bias_add(tf.matmul(value, weights), bias)


def convolution(value: tf.Tensor, filters: int, size: int, name: str) -> tf.Tensor:
    """Convolution, batch normalisation with moving averages, and ReLU."""
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
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)
    return tf.reduce_mean(losses, name="loss")


def training_graph(
    graph: tf.Graph,
    loss: tf.Tensor,
    optimizer: str,
    feeds: Mapping[str, np.ndarray] | None = None,
    initializers: tuple[str, ...] = (),
) -> TestGraph:
    """Adds updates and the initialiser; a step runs the updates and fetches the loss before them.

    The gradients are clipped, so all of them are computed before the first variable changes.
    """
    optimizers = {
        "adam": lambda: tf1.train.AdamOptimizer(0.05),
        "momentum": lambda: tf1.train.MomentumOptimizer(0.05, 0.9),
        "rmsprop": lambda: tf1.train.RMSPropOptimizer(0.05, momentum=0.9),
    }
    trainer = optimizers[optimizer]()
    gradients, variables = zip(*trainer.compute_gradients(loss), strict=True)
    clipped, _ = tf.clip_by_global_norm(gradients, 1.0)
    with tf.control_dependencies(tf1.get_collection(tf1.GraphKeys.UPDATE_OPS)):
        train = trainer.apply_gradients(
            zip(clipped, variables, strict=True),
            global_step=tf1.train.get_or_create_global_step(),
            name="train",
        )
    initializer = tf1.global_variables_initializer()
    return TestGraph(graph, (train.name, loss.name), feeds or {}, (initializer.name, *initializers))
