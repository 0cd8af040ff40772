"""Keras models: what can be placed of one, and a training step with devices put into it."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from graph_passes.errors import GraphError

__all__ = [
    "check_model",
    "check_training",
    "has_train_step",
    "is_keras_model",
    "set_train_step",
    "train_step_of",
]

_PACKAGES = ("keras", "tf_keras")
_VERSION_2 = ".engine."


def is_keras_model(target: Any) -> bool:
    """Says whether something is a Keras model, of version 2 or 3, without importing Keras."""
    return bool(_module(target))


def _module(target: Any) -> str:
    """Finds the module that has the class of all Keras models, if this is one."""
    for kind in type(target).__mro__:
        if kind.__name__ == "Model" and kind.__module__.partition(".")[0] in _PACKAGES:
            return kind.__module__
    return ""


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
    check_training(model)


def check_training(model: Any) -> None:
    """Makes sure of what a model need not be built for.

    Raises:
        GraphError: it is not compiled, runs eagerly, under XLA or under a distribution strategy;
            the message says what to do.
    """
    name = f"the model {model.name!r}"
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


def train_step_of(model: Any) -> Callable[..., Any]:
    """Returns the training step of a model, to be traced as `fit` has it traced.

    In Keras 2, AutoGraph converts what layers and losses do, so that what they compute may decide
    about their control flow; in Keras 3 it converts nothing.
    """
    if _VERSION_2 not in _module(model):
        return model.train_step
    autograph = tf.__internal__.autograph
    # The step itself is left as it is, as Keras does.
    return autograph.tf_convert(
        model.train_step, autograph.control_status_ctx(), convert_by_default=False
    )


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

    @functools.wraps(model.train_step)
    def train_step(data: Any) -> Any:
        # A model saves the functions of TensorFlow that are attributes of it, but no others.
        return function(data)

    model.compile = compile_again
    model.train_step = train_step
    # They are traced again: one may use variables that have moved.
    model.train_function = model.test_function = model.predict_function = None
    if hasattr(model, "make_train_function"):
        model.make_train_function(force=True)


def has_train_step(model: Any) -> bool:
    """Says whether a model runs a function that was set as its training step."""
    return "train_step" in vars(model)
