"""A watcher whose failures do not affect the script."""

from __future__ import annotations

import functools
import os
import sys
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from graph_passes.util.messages import shorten_text
from tf_placer.scripts.instrumentation import Watcher

__all__ = ["ScriptWatcher"]


class ScriptWatcher:
    """Forwards events to another watcher, until the first failure and in the script's process only.

    Processes that the script forks are not watched: they share the connections of this process, and
    cannot restart the script.
    """

    def __init__(self, make: Callable[[], Watcher], say: Callable[[str], None]) -> None:
        """Prepares to watch.

        Args:
            make: creates the other watcher; called after the script has imported TensorFlow.
            say: prints a line for the user.
        """
        self._make, self._say = make, say
        self._process, self._has_failed = os.getpid(), False

    @functools.cached_property
    def _watcher(self) -> Watcher:
        return self._make()

    @property
    def is_explained(self) -> bool:
        """True if the user was told the outcome for the training step."""
        return self._has_failed or ("_watcher" in vars(self) and self._watcher.is_explained)

    @property
    def has_placed(self) -> bool:
        """True if the training step was placed."""
        return "_watcher" in vars(self) and self._watcher.has_placed

    @property
    def has_changed_step(self) -> bool | None:
        """True if the step has changed since the search; None if it was not compared."""
        return self._watcher.has_changed_step if "_watcher" in vars(self) else None

    @property
    def may_have_broken(self) -> bool:
        """True if something was placed, and has not trained yet."""
        return "_watcher" in vars(self) and self._watcher.may_have_broken

    def after_eager_start(self) -> None:
        """Forwards the event."""
        self._forward(lambda watcher: watcher.after_eager_start())

    def before_graph_extension(self, session: Any) -> None:
        """Forwards the event."""
        self._forward(lambda watcher: watcher.before_graph_extension(session))

    def before_session_run(
        self, session: Any, fetches: Any, feeds: Mapping[Any, Any] | None
    ) -> None:
        """Forwards the event."""
        self._forward(lambda watcher: watcher.before_session_run(session, fetches, feeds))

    def after_session_run(self) -> None:
        """Forwards the event."""
        self._forward(lambda watcher: watcher.after_session_run())

    def before_function_call(
        self, function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Callable[..., Any] | None:
        """Forwards the event."""
        placed: Callable[..., Any] | None
        placed = self._forward(lambda watcher: watcher.before_function_call(function, args, kwargs))
        return placed

    def before_training(
        self, model: Any, look: Callable[[Callable[[Any], Any]], Any]
    ) -> Callable[[Any], None] | None:
        """Forwards the event."""
        take = self._forward(lambda watcher: watcher.before_training(model, look))
        if take is None:
            return None
        return lambda batch: self._forward(lambda watcher: take(batch))

    def _forward(self, tell: Callable[[Watcher], Any]) -> Any:
        """Forwards an event to the other watcher; reports its first error, and then stops."""
        if self._has_failed or os.getpid() != self._process:
            return None
        try:
            return tell(self._watcher)
        except KeyboardInterrupt as error:
            # The script may handle it.
            _print_in_a_line(error, self._say)
            raise
        except Exception as error:
            self._has_failed = True
            text = shorten_text(" ".join(f"{type(error).__name__}: {error}".split()))
            self._say(f"the script continues unchanged, because it could not be watched: {text}")
            return None


def _print_in_a_line(error: KeyboardInterrupt, say: Callable[[str], None]) -> None:
    """Has Python print an interrupt of this package that ends the process without a traceback."""
    show = sys.excepthook

    def show_others(
        kind: type[BaseException], value: BaseException, trace: types.TracebackType | None
    ) -> None:
        if value is error:
            say("interrupted while the training step was read or searched for")
        else:
            show(kind, value, trace)

    sys.excepthook = show_others
