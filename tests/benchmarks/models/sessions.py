"""Builds of models for tests, sessions of them, and parts of NumPy versions of them."""

from __future__ import annotations

import functools
from types import ModuleType
from typing import Any
from unittest import mock

import numpy as np
import tensorflow as tf

from benchmarks.models.catalog import build_model
from benchmarks.models.training_model import TrainingModel

tf1 = tf.compat.v1

__all__ = [
    "build_forward",
    "load_random",
    "lstm_cell",
    "plain_session",
    "small_model",
    "softmax",
    "variable_sizes",
]


def plain_session(graph: tf.Graph) -> tf.compat.v1.Session:
    """A session that does not rewrite the graph first, which takes longer than a few steps of it.

    What a model computes is the same without; rewriting is TensorFlow's, not the models'.
    """
    config = tf1.ConfigProto()
    config.graph_options.rewrite_options.disable_meta_optimizer = True
    return tf1.Session(graph=graph, config=config)


@functools.cache
def small_model(name: str) -> TrainingModel:
    """A model of the catalog in its small size, one for all tests of a process."""
    return build_model(name, small=True)


def build_forward(module: ModuleType, **settings: Any) -> TrainingModel:
    """Builds a model without gradients and updates, which take most of the time."""
    name, train = "train", lambda *_: tf.no_op()
    if not hasattr(module, name):
        name, train = "train_classifier", lambda loss, _: (loss, tf.no_op())
    with mock.patch.object(module, name, train):
        return module.build(**settings)


def variable_sizes(model: TrainingModel) -> dict[str, int]:
    """The number of elements of each variable that is trained, by its name."""
    with model.graph.as_default():
        return {v.op.name: v.shape.num_elements() for v in tf1.trainable_variables()}


def load_random(session: tf.compat.v1.Session, scale: float) -> dict[str, np.ndarray]:
    """Gives trained variables random values by name, far from those with which all is equal."""
    random = np.random.default_rng(0)
    with session.graph.as_default():
        variables = tf1.trainable_variables()
    values = {v.op.name: scale * random.standard_normal(v.shape) for v in variables}
    for variable in variables:
        variable.load(values[variable.op.name].astype(np.float32), session)
    return values


def softmax(scores: np.ndarray) -> np.ndarray:
    powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)


def lstm_cell(
    value: np.ndarray, state: tuple[np.ndarray, np.ndarray], kernel: np.ndarray, bias: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """One step of an LSTM cell whose forget gate starts open: memory and output."""
    memory, hidden = state
    gates = np.concatenate([value, hidden], -1) @ kernel + bias
    entry, update, forget, output = np.split(gates, 4, -1)
    memory = _sigmoid(forget + 1) * memory + _sigmoid(entry) * np.tanh(update)
    return memory, _sigmoid(output) * np.tanh(memory)


def _sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))
