"""A watcher that nothing of a script depends on: where it fails, the script runs on."""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from graph_passes.messages import shortened
from tf_placer.scripts.watched_runs import Watcher

__all__ = ["ScriptWatcher"]


class ScriptWatcher:
    """Passes what it is told on to another watcher, in the process of the script alone.

    Processes that the script forks run as they do without it: they share the connections of this
    one, and cannot begin the script anew.
    """

    def __init__(self, make: Callable[[], Watcher], say: Callable[[str], None]) -> None:
        """Prepares to watch.

        Args:
            make: makes the other watcher, once the script has imported TensorFlow.
            say: tells people something.
        """
        self._make, self._say = make, say
        self._process, self._has_failed = os.getpid(), False

    @functools.cached_property
    def _watcher(self) -> Watcher:
        return self._make()

    @property
    def has_met_step(self) -> bool:
        """Whether there was a training step, placeable or not."""
        return self._has_failed or ("_watcher" in vars(self) and self._watcher.has_met_step)

    @property
    def may_have_broken(self) -> bool:
        """Whether something was placed, and has not trained yet."""
        return "_watcher" in vars(self) and self._watcher.may_have_broken

    def eager_begins(self) -> None:
        """Passes it on."""
        with self._guarded() as watcher:
            if watcher is not None:
                watcher.eager_begins()

    def graph_extended(self, session: Any) -> None:
        """Passes it on."""
        with self._guarded() as watcher:
            if watcher is not None:
                watcher.graph_extended(session)

    def session_runs(self, session: Any, fetches: Any, feeds: Mapping[Any, Any] | None) -> None:
        """Passes it on."""
        with self._guarded() as watcher:
            if watcher is not None:
                watcher.session_runs(session, fetches, feeds)

    def session_ran(self) -> None:
        """Passes it on."""
        with self._guarded() as watcher:
            if watcher is not None:
                watcher.session_ran()

    def function_called(
        self, function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Callable[..., Any] | None:
        """Passes it on."""
        with self._guarded() as watcher:
            if watcher is not None:
                return watcher.function_called(function, args, kwargs)
        return None

    def model_trains(self, model: Any, first_batch: Callable[[], Any], data: Any) -> None:
        """Passes it on."""
        with self._guarded() as watcher:
            if watcher is not None:
                watcher.model_trains(model, first_batch, data)

    @contextlib.contextmanager
    def _guarded(self) -> Iterator[Watcher | None]:
        """Yields the other watcher, if it is to be told; its first error is said, not raised."""
        if self._has_failed or os.getpid() != self._process:
            yield None
            return
        try:
            yield self._watcher
        except Exception as error:
            self._has_failed = True
            text = shortened(" ".join(f"{type(error).__name__}: {error}".split()))
            self._say(f"the script runs on as it came, because it could not be watched: {text}")
