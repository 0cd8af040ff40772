"""Instruments TensorFlow and Keras, to report what a script is about to run.

Methods of sessions, functions and Keras models are wrapped right after the script has imported
TensorFlow or Keras, so that settings that the script makes before the import take effect.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from tf_placer.patches import wrap
from tf_placer.scripts.import_hook import run_after_import

__all__ = ["Watcher", "instrument"]


class Watcher(Protocol):
    """The callbacks for events of a script."""

    @property
    def is_explained(self) -> bool:
        """True if the user was told the outcome for the training step."""

    @property
    def has_placed(self) -> bool:
        """True if the training step was placed."""

    @property
    def has_changed_step(self) -> bool | None:
        """True if the script trains with another step than that of the search.

        None if its training step was not compared with that.
        """

    @property
    def may_have_broken(self) -> bool:
        """True if something was placed that has not trained yet, and may make the script fail."""

    def after_eager_start(self) -> None:
        """Called when TensorFlow has created its devices, before it runs anything eagerly."""

    def before_graph_extension(self, session: Any) -> None:
        """Called before a session receives new operations of its graph; may move the session.

        Args:
            session: a BaseSession.
        """

    def before_session_run(
        self, session: Any, fetches: Any, feeds: Mapping[Any, Any] | None
    ) -> None:
        """Called before a run of a session.

        Args:
            session: a BaseSession.
            fetches: the fetches, as for `Session.run`.
            feeds: the `feed_dict`, as for `Session.run`.
        """

    def after_session_run(self) -> None:
        """Called after a successful run of a session, in the same thread."""

    def before_function_call(
        self, function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Callable[..., Any] | None:
        """Called before an eager call of a tf.function; may return a replacement to call."""

    def before_training(
        self, model: Any, look: Callable[[Callable[[Any], Any]], Any]
    ) -> Callable[[Any], None] | None:
        """Called before a Keras model is trained.

        Args:
            model: the model.
            look: calls a function with the first batch and returns its result; the process has to
                restart afterwards. See `capture_first_batch`.

        Returns:
            A function that the training calls with its first batch, or None.
        """


def instrument(watcher: Watcher) -> None:
    """Instruments the TensorFlow and Keras that this process imports later.

    Args:
        watcher: the callbacks.
    """
    used: list[Any] = []  # The Keras models with a running method.

    def watch_tensorflow(module: Any) -> None:
        del module
        _watch_devices(watcher)
        _watch_sessions(watcher)
        _watch_functions(watcher, used)

    def watch_keras(module: Any) -> None:
        train = functools.partial(_watch_training, watcher, used)
        for name in ("fit", "train_on_batch"):
            wrap(f"{module.__name__}.Model.{name}", train)
        for name in ("evaluate", "predict", "test_on_batch", "predict_on_batch"):
            wrap(f"{module.__name__}.Model.{name}", functools.partial(_hide_calls, used))

    run_after_import(
        {"tensorflow": watch_tensorflow, "keras": watch_keras, "tf_keras": watch_keras}
    )


def _watch_devices(watcher: Watcher) -> None:
    def initialize(call: Callable[..., None], context: Any, /) -> None:
        call(context)
        if context.executing_eagerly() and undo():
            watcher.after_eager_start()

    undo = wrap("tensorflow.Context.ensure_initialized", initialize)


def _watch_sessions(watcher: Watcher) -> None:
    def extend(call: Callable[..., None], session: Any, /) -> None:
        watcher.before_graph_extension(session)
        call(session)

    def run(
        call: Callable[..., Any],
        session: Any,
        /,
        fetches: Any,
        feed_dict: Any = None,
        *args: Any,
        **kwargs: Any,
    ) -> Any:
        watcher.before_session_run(session, fetches, feed_dict)
        result = call(session, fetches, feed_dict, *args, **kwargs)
        watcher.after_session_run()
        return result

    def make_callable(call: Callable[..., Any], session: Any, /, callable_options: Any) -> Any:
        function = call(session, callable_options)
        fetches = [*callable_options.fetch, *callable_options.target]

        def observe(*values: Any, **kwargs: Any) -> Any:
            watcher.before_session_run(
                session, fetches, dict(zip(callable_options.feed, values, strict=False))
            )
            result = function(*values, **kwargs)
            watcher.after_session_run()
            return result

        return observe

    wrap("tensorflow.BaseSession._extend_graph", extend)
    wrap("tensorflow.BaseSession.run", run)
    wrap("tensorflow.BaseSession._make_callable_from_options", make_callable)


def _watch_functions(watcher: Watcher, used: Sequence[Any]) -> None:
    import tensorflow as tf

    def call_function(call: Callable[..., Any], function: Any, /, *args: Any, **kwargs: Any) -> Any:
        # Keras's own functions take iterators over data sets; the step of the model is placed
        # instead.
        if not used and tf.executing_eagerly():
            other = watcher.before_function_call(function, args, kwargs)
            if other is not None:
                return other(*args, **kwargs)
        return call(function, *args, **kwargs)

    wrap("tensorflow.Function.__call__", call_function)


def _watch_training(
    watcher: Watcher,
    used: list[Any],
    train: Callable[..., Any],
    model: Any,
    /,
    *args: Any,
    **kwargs: Any,
) -> Any:
    # Imported here, because the script has to import TensorFlow first.
    from tf_placer.scripts.first_batches import capture_first_batch, intercept_first_batch

    look = functools.partial(capture_first_batch, model, train, args, kwargs)
    used.append(model)
    try:
        take = watcher.before_training(model, look) if len(used) == 1 else None
        if take is None:
            return train(model, *args, **kwargs)
        with intercept_first_batch(model, take):
            return train(model, *args, **kwargs)
    finally:
        used.pop()


def _hide_calls(
    used: list[Any], call: Callable[..., Any], model: Any, /, *args: Any, **kwargs: Any
) -> Any:
    """Hides the tf.functions that a method of a Keras model calls from the watcher."""
    used.append(model)
    try:
        return call(model, *args, **kwargs)
    finally:
        used.pop()
