"""Keras models: what can be placed of one, and a training step with devices put into it."""

from __future__ import annotations

import functools
from typing import Any

import tensorflow as tf

from graph_passes.errors import GraphError

__all__ = ["check_model", "has_train_step", "is_keras_model", "set_train_step"]

_PACKAGES = ("keras", "tf_keras")


def is_keras_model(target: Any) -> bool:
    """Says whether something is a Keras model, of version 2 or 3, without importing Keras."""
    return any(
        kind.__name__ == "Model" and kind.__module__.partition(".")[0] in _PACKAGES
        for kind in type(target).__mro__
    )


def check_model(model: Any) -> None:
    """Makes sure that a model has a training step that can be placed.

    Raises:
        GraphError: it is not built or compiled, runs eagerly, under XLA or under a distribution
            strategy; the message says what to do.
    """
    name = f"the model {model.name!r}"
    if not model.built and not _has_variables(model):
        raise GraphError(
            f"{name} has no variables yet: call it on a batch, or build it, before it is placed"
        )
    if getattr(model, "optimizer", None) is None:
        raise GraphError(f"{name} is not compiled: call compile(optimizer, loss) first")
    if model.run_eagerly:
        raise GraphError(f"{name} runs eagerly: compile it with run_eagerly=False")
    if getattr(model, "jit_compile", None):
        raise GraphError(
            f"{name} is compiled by XLA, which runs a step on one device: compile it with "
            "jit_compile=False"
        )
    with model.distribute_strategy.scope():
        if tf.distribute.has_strategy():
            raise GraphError(
                f"{name} is under a distribution strategy, which places it itself: make it without"
            )


def _has_variables(model: Any) -> bool:
    """Says whether a model that was not built has parts that were, as a pair of networks has."""
    try:
        return bool(model.trainable_variables)
    except ValueError:  # Keras 2, where something has not.
        return False


def set_train_step(model: Any, function: Any) -> None:
    """Makes `fit` and `train_on_batch` run a function as the training step.

    That ends when the model is compiled again: its step is another one then.

    Args:
        model: the model.
        function: takes a batch and returns what the model's own step returns.
    """

    @functools.wraps(model.compile)
    def compile_again(*args: Any, **kwargs: Any) -> None:
        del model.train_step, model.compile
        model.compile(*args, **kwargs)

    model.compile = compile_again
    model.train_step = function
    # They are traced again: one may use variables that have moved.
    model.train_function = model.test_function = model.predict_function = None
    if hasattr(model, "make_train_function"):
        model.make_train_function(force=True)


def has_train_step(model: Any) -> bool:
    """Says whether a model runs a function that was set as its training step."""
    return "train_step" in vars(model)
