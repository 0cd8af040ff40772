"""Reads and replaces the training step of a Keras model."""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf
from tensorflow.python.framework.func_graph import FuncGraph

from graph_passes.errors import GraphError
from tf_placer.patches import wrap
from tf_placer.text.notes import say

__all__ = [
    "advise_against_xla",
    "build_as_on_gpus",
    "build_variables",
    "check_training",
    "convert_train_step",
    "describe_gpu_kernels",
    "has_own_step",
    "has_train_step",
    "is_keras_model",
    "set_train_step",
]

_PACKAGES = ("keras", "tf_keras")
_VERSION_2 = ".engine."
_DEFAULT_BATCH_SIZE = 32
# The attribute of a placed training step with the step that it replaces.
_ORIGINAL = "_tf_placer_original"


def is_keras_model(target: Any) -> bool:
    """Says whether something is a Keras model, of version 2 or 3, without importing Keras."""
    return bool(_module(target))


def _module(target: Any) -> str:
    """Returns the module of the base class of all Keras models; "" if `target` is no model."""
    for kind in type(target).__mro__:
        if kind.__name__ == "Model" and kind.__module__.partition(".")[0] in _PACKAGES:
            return kind.__module__
    return ""


def build_variables(model: Any, batch: Any) -> None:
    """Creates the variables of a model as its first training step would, if it is not built.

    Args:
        model: a model that passes `check_training`.
        batch: the first batch, as the training step takes it.

    Raises:
        GraphError: the batch does not fit the model.
    """
    # A model with its own step may never be built, such as a pair of networks.
    if model.built or (has_own_step(model) and _has_variables(model)):
        return
    try:
        # In a graph, as in the first step: nothing is computed, and no random number is drawn.
        with FuncGraph("build").as_default():
            if has_own_step(model):
                # The model need not be callable with a batch.
                convert_train_step(model)(batch)
            else:
                model(batch[0] if isinstance(batch, tuple) else batch)
    except Exception as error:
        reason = str(error).strip().partition("\n")[0]
        raise GraphError(
            f"the model {model.name!r} has no variables yet, and this batch does not build them: "
            f"{reason or type(error).__name__}. Call it on a batch that it takes, or build it, "
            "before it is placed"
        ) from error


def has_own_step(model: Any) -> bool:
    """Says whether the class of a model defines the training step, and not Keras."""
    return type(model).train_step.__module__.partition(".")[0] not in _PACKAGES


def check_training(model: Any) -> None:
    """Checks that a model has a training step that can be placed.

    Raises:
        GraphError: the model is not compiled, or runs eagerly, under XLA or under a distribution
            strategy; the message says what to do.
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


@contextlib.contextmanager
def build_as_on_gpus(model: Any) -> Iterator[None]:
    """Lets Keras 3 build the recurrent layers of a model as on a computer with GPUs: of cuDNN.

    A step that is traced meanwhile can be planned, but does not run without GPUs. In Keras 2 the
    choice is in the graph, and stays there.

    Args:
        model: a compiled model.
    """
    if _VERSION_2 in _module(model) or not _list_cudnn_layers(model):
        yield
        return

    def list_devices(original: Callable[..., Any], device_type: str | None = None) -> Any:
        if device_type == "GPU":
            return [tf.config.LogicalDevice("/device:GPU:0", "GPU")]
        return original(device_type)

    # A layer that has taken cuDNN tells the model that it cannot be compiled by XLA.
    supported = [(layer, layer.supports_jit) for layer in model._flatten_layers()]
    restore = wrap("tensorflow.config.list_logical_devices", list_devices)
    try:
        yield
    finally:
        restore()
        for layer, supports_jit in supported:
            layer.supports_jit = supports_jit


def _list_cudnn_layers(model: Any) -> list[str]:
    """Lists the layers of a model for which Keras may take cuDNN."""
    return [
        layer.name
        for layer in model._flatten_layers()
        if getattr(layer, "use_cudnn", False) or getattr(layer, "_could_use_gpu_kernel", False)
    ]


def describe_gpu_kernels(model: Any) -> str | None:
    """Describes for which layers of a model Keras takes cuDNN on a computer with GPUs.

    Args:
        model: a compiled model.

    Returns:
        A sentence; None on a computer with GPUs, or without such layers.
    """
    if tf.config.list_physical_devices("GPU"):
        return None
    recurrent = _list_cudnn_layers(model)
    if not recurrent:
        return None
    more = f" and {len(recurrent) - 1} more" if len(recurrent) > 1 else ""
    return (
        f"the layer {recurrent[0]!r}{more} would use cuDNN on a computer with GPUs, in another "
        "graph than that of this plan: profile for machines with GPUs alone, make recurrent layers "
        "with use_cudnn=False (Keras 3), or plan there"
    )


def advise_against_xla(model: Any) -> str | None:
    """Advises to compile a model without XLA, if Keras would take it on a computer with GPUs.

    Args:
        model: a compiled model.

    Returns:
        A sentence; None on a computer with GPUs, or if XLA cannot be taken.
    """
    # Keras 3 does not remember that XLA was left to it: here it has decided against it.
    is_decided = tf.config.list_physical_devices("GPU") or _VERSION_2 in _module(model)
    if is_decided or not all(layer.supports_jit for layer in model._flatten_layers()):
        return None
    return (
        "if you do not yet, which Keras does not tell here, compile it with jit_compile=False: "
        "left to itself, Keras runs this model by XLA on a computer with GPUs: on one device, so "
        "that no plan can be applied to it, and faster than planned where XLA fuses operations"
    )


def _has_variables(model: Any) -> bool:
    """Says whether a model that was not built has built submodels, such as a pair of networks."""
    try:
        return bool(model.trainable_variables)
    except ValueError:  # Keras 2 raises it if any submodel is not built.
        return False


def convert_train_step(model: Any) -> Callable[..., Any]:
    """Returns the training step of a model, to be traced as `fit` traces it.

    Of a model that has a placed step, it is the step before. In Keras 2, AutoGraph converts layers
    and losses, so that their control flow may depend on tensors; in Keras 3 it converts nothing.
    """
    original = _find_original_step(model)
    if _VERSION_2 not in _module(model):
        return original
    autograph = tf.__internal__.autograph
    # Keras does not convert the step itself either, only the functions that it calls.
    return autograph.tf_convert(original, autograph.control_status_ctx(), convert_by_default=False)


def set_train_step(model: Any, function: Any, batch_size: int | None = None) -> None:
    """Replaces the training step that `fit` and `train_on_batch` run.

    Compiling the model again removes the replacement, because it changes the step, and so does
    another replacement.

    Args:
        model: the model.
        function: the new step; takes and returns the same as the model's own `train_step`.
        batch_size: the number of examples for which the step was placed; a line says once that
            `fit` takes others. None to say nothing.
    """
    said: set[int | None] = {None, batch_size}
    original = _find_original_step(model)
    if hasattr(model.train_step, _ORIGINAL):
        _remove_train_step(model)

    @functools.wraps(model.compile)
    def compile_again(*args: Any, **kwargs: Any) -> None:
        _remove_train_step(model)
        model.compile(*args, **kwargs)

    @functools.wraps(original)
    def train_step(data: Any) -> Any:
        # A Python function, because Keras would save a tf.function attribute with the model.
        return function(data)

    @functools.wraps(model.fit)
    def fit(*args: Any, **kwargs: Any) -> Any:
        size = None if batch_size is None else _find_batch_size(fit_before, *args, **kwargs)
        if size not in said:
            say(
                f"fit takes batches of {size}, and the placement was found for {batch_size}: it "
                f"may be slower than none. Give batch_size={batch_size}, or search again with a "
                f"batch of {size}"
            )
            said.add(size)
        return fit_before(*args, **kwargs)

    fit_before, model.fit = model.fit, fit
    model.compile = compile_again
    vars(train_step)[_ORIGINAL] = original
    model.train_step = train_step
    # Keras has to trace these again, because the old traces may use variables that have moved.
    model.train_function = model.test_function = model.predict_function = None
    if hasattr(model, "make_train_function"):
        model.make_train_function(force=True)


def _find_original_step(model: Any) -> Callable[..., Any]:
    """Returns the training step of a model without a placement."""
    return getattr(model.train_step, _ORIGINAL, model.train_step)


def _remove_train_step(model: Any) -> None:
    """Removes the step that `set_train_step` has set."""
    del model.train_step, model.compile, model.fit


def _find_batch_size(fit: Callable[..., Any], *args: Any, **kwargs: Any) -> int | None:
    """Finds the number of examples in a batch of `fit`; None if it cannot be told.

    The batches of a generator, and of most data sets, are known only when they are made.
    """
    given = inspect.signature(fit).bind_partial(*args, **kwargs).arguments
    data = given.get("x")
    if (spec := getattr(data, "element_spec", None)) is not None:
        shape = tf.nest.flatten(spec)[0].shape
        return shape[0] if shape.rank else None
    [shape, *_] = [getattr(leaf, "shape", None) for leaf in tf.nest.flatten(data)]
    return min(int(shape[0]), given.get("batch_size") or _DEFAULT_BATCH_SIZE) if shape else None


def has_train_step(model: Any) -> bool:
    """Says whether a model runs a function that was set as its training step."""
    return "train_step" in vars(model)
