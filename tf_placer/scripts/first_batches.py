"""Captures the first batch that Keras passes to the training step of a model."""

from __future__ import annotations

import contextlib
import functools
import gc
import inspect
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import tensorflow as tf

from graph_passes.errors import GraphError

__all__ = ["capture_first_batch", "check_train_function", "intercept_first_batch"]

_UNNOTICED = {"callbacks": None, "verbose": 0}


class _EndTrainingError(BaseException):
    """Ends a training at its first step; a BaseException, which scripts do not catch."""


def check_train_function(model: Any) -> None:
    """Checks that the training function of a model is the one of Keras.

    Raises:
        GraphError: the model overrides `make_train_function`, so that the number of batches that a
            call takes is unknown.
    """
    if model.make_train_function.__module__.partition(".")[0] not in ("keras", "tf_keras"):
        raise GraphError(
            f"the model {model.name!r} has a make_train_function of its own: only what train_step "
            "does can be placed"
        )


def capture_first_batch(
    model: Any,
    train: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    look: Callable[[Any], Any],
) -> Any:
    """Starts a training without the script's callbacks, and ends it before its first step.

    The process has to restart afterwards, because the data and the model have been used.

    Args:
        model: the model.
        train: the training method, which takes the model as its first argument.
        args: the script's arguments of the method.
        kwargs: the script's keyword arguments of the method.
        look: a function that is called with the first batch instead of the training step.

    Returns:
        The result of `look`.

    Raises:
        GraphError: there is no first batch, or `look` raises an error.
    """
    outcomes = []

    def end(iterator: Any) -> None:
        outcomes.append(look(_replace_optionals(next(iterator))))
        raise _EndTrainingError

    def make_train_function(*args: Any, **kwargs: Any) -> Callable[[Any], None]:
        del args, kwargs
        model.train_function = end
        return end

    model.make_train_function = make_train_function
    try:
        signature = inspect.signature(train)
        given = signature.bind(model, *args, **kwargs)
        given.arguments.update({k: v for k, v in _UNNOTICED.items() if k in signature.parameters})
        train(*given.args, **given.kwargs)
    except _EndTrainingError:
        pass
    except GraphError:
        raise
    except Exception as error:
        raise GraphError(f"no first batch could be taken: {error}") from error
    finally:
        del model.make_train_function
    # The iterator has to be freed, because it holds a lock on the cache files of tf.data.
    gc.collect()
    if not outcomes:
        raise GraphError("no first batch could be taken: the data is empty")
    return outcomes[0]


@contextlib.contextmanager
def intercept_first_batch(model: Any, take: Callable[[Any], None]) -> Iterator[None]:
    """Calls a function with the first batch of a training in the block, which trains on all data.

    Args:
        model: a model that passes `check_train_function`.
        take: a function that is called with the first batch before the first step; it may replace
            the training step.
    """
    own_make = model.make_train_function
    own: list[Any] = []  # The model's own training functions.

    def give_back() -> None:
        if model.make_train_function is make_train_function:
            del model.make_train_function
            if own:
                model.train_function = own[-1]

    def first(iterator: Any) -> Any:
        give_back()
        elements, iterator = _peek(iterator, _steps_per_execution(model))
        if elements:
            take(_replace_optionals(elements[0]))
        return model.train_function(iterator)

    @functools.wraps(own_make)
    def make_train_function(*args: Any, **kwargs: Any) -> Callable[[Any], Any]:
        # Keras 2 returns the function; Keras 3 sets it.
        own.append(own_make(*args, **kwargs) or model.train_function)
        model.train_function = first
        return first

    model.make_train_function = make_train_function
    try:
        yield
    finally:
        give_back()


def _peek(iterator: Any, count: int) -> tuple[list[Any], Any]:
    """Takes the elements of one execution; returns them, and an iterator that repeats them.

    An iterator of tf.data is replaced by one of the same type, so that nothing is traced again.
    """
    elements = list(itertools.islice(iterator, count))
    if not elements:
        return elements, iterator
    if not isinstance(iterator, tf.data.Iterator):
        return elements, itertools.chain(elements, iterator)
    parts = [tf.data.Dataset.from_tensors(element) for element in elements]
    variant = tf.data.experimental.to_variant(
        functools.reduce(lambda some, more: some.concatenate(more), parts)
    )
    return elements, iter(tf.data.experimental.from_variant(variant, iterator.element_spec))


def _steps_per_execution(model: Any) -> int:
    steps = getattr(model, "steps_per_execution", None)  # Keras 3
    if steps is None:
        steps = getattr(model, "_steps_per_execution", None)  # Keras 2, a variable
    return 1 if steps is None else int(steps)


def _replace_optionals(batch: Any) -> Any:
    """Replaces the optionals in a batch, which stand for missing parts, by None, as Keras does."""
    return tf.nest.map_structure(
        lambda part: None if isinstance(part, tf.experimental.Optional) else part, batch
    )
