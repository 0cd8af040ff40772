"""The first batch that a Keras model is trained on, as Keras makes it."""

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

__all__ = ["check_train_function", "hand_over_first_batch", "look_at_first_batch"]

_UNNOTICED = {"callbacks": None, "verbose": 0}


class _EndTrainingError(BaseException):
    """Ends a training at its first step; no script catches it."""


def check_train_function(model: Any) -> None:
    """Makes sure that Keras makes the function that trains a model on what an iterator gives.

    Raises:
        GraphError: the model makes it itself, so that nobody knows how many batches a call takes.
    """
    if model.make_train_function.__module__.partition(".")[0] not in ("keras", "tf_keras"):
        raise GraphError(
            f"the model {model.name!r} has a make_train_function of its own: only what train_step "
            "does can be placed"
        )


def look_at_first_batch(
    model: Any,
    train: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    look: Callable[[Any], Any],
) -> Any:
    """Begins a training without the callbacks of the script, and ends it at its first step.

    The callbacks need not begin twice, but the data and the model have: the process is to begin
    anew afterwards.

    Args:
        model: the model.
        train: its method, which takes the model first.
        args: what the script gives to the method.
        kwargs: the same, by name.
        look: is called with the first batch in place of the training step.

    Returns:
        What `look` returns.

    Raises:
        GraphError: there is no first batch, or `look` raises an error.
    """
    outcomes = []

    def end(iterator: Any) -> None:
        outcomes.append(look(_without_optionals(next(iterator))))
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
    # A file of tf.data's cache stays locked as long as what began to write it exists.
    gc.collect()
    if not outcomes:
        raise GraphError("no first batch could be taken: the data is empty")
    return outcomes[0]


@contextlib.contextmanager
def hand_over_first_batch(model: Any, take: Callable[[Any], None]) -> Iterator[None]:
    """Has the training within hand over its first batch, and go on as if nobody had looked.

    Args:
        model: a model that passes `check_train_function`.
        take: is called with the first batch before the first step; may change the training step.
    """
    own_make = model.make_train_function
    own: list[Any] = []  # The training function of the model itself.

    def give_back() -> None:
        if model.make_train_function is make_train_function:
            del model.make_train_function
            if own:
                model.train_function = own[-1]

    def first(iterator: Any) -> Any:
        give_back()
        elements, iterator = _peek(iterator, _steps_per_execution(model))
        if elements:
            take(_without_optionals(elements[0]))
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
    """Takes what one execution takes; returns it, and an iterator that gives it once more.

    An iterator of tf.data is replaced by one of the same type, for which nothing is traced anew.
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


def _without_optionals(batch: Any) -> Any:
    """Has nothing where Keras has the data set say that there is nothing, as Keras does it."""
    return tf.nest.map_structure(
        lambda part: None if isinstance(part, tf.experimental.Optional) else part, batch
    )
