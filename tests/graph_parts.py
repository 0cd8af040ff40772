"""The building blocks of the test graphs."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import tensorflow as tf

from benchmarks.zoo.graph_parts import (
    SEED,
    clip_and_apply,
    control_flow,
    convolution,
    cross_entropy,
    dense,
    inputs,
    new_graph,
    weight_variable,
)
from benchmarks.zoo.graph_parts import StepGraph as TestGraph

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

tf1 = tf.compat.v1


def training_graph(
    graph: tf.Graph,
    loss: tf.Tensor,
    optimizer: str,
    feeds: Mapping[str, np.ndarray] | None = None,
    initializers: tuple[str, ...] = (),
) -> TestGraph:
    """Adds updates by an optimizer of a known name, and the initializer of variables alone."""
    optimizers = {
        "adam": lambda: tf1.train.AdamOptimizer(0.05),
        "momentum": lambda: tf1.train.MomentumOptimizer(0.05, 0.9),
        "rmsprop": lambda: tf1.train.RMSPropOptimizer(0.05, momentum=0.9),
    }
    train = clip_and_apply(loss, optimizers[optimizer]())
    initializer = tf1.global_variables_initializer()
    return TestGraph(graph, (train.name, loss.name), feeds or {}, (initializer.name, *initializers))
