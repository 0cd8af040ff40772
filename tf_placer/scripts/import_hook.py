"""An import hook: calls functions right after the first import of a module."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import sys
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any

__all__ = ["run_after_import"]


def run_after_import(actions: Mapping[str, Callable[[Any], None]]) -> None:
    """Installs an import hook.

    The hook exists because a script may set environment variables before it imports TensorFlow or
    Keras, so that they must not be imported earlier.

    Args:
        actions: functions that are called with a module right after its first import, by module
            name. The modules must not have been imported yet.
    """
    sys.meta_path.insert(0, _Finder(actions))


class _Finder(importlib.abc.MetaPathFinder):
    def __init__(self, actions: Mapping[str, Callable[[Any], None]]) -> None:
        self._actions = dict(actions)
        self._sought: set[str] = set()

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,
        target: types.ModuleType | None = None,
    ) -> importlib.machinery.ModuleSpec | None:
        """Returns the spec of a module with an action, extended so that it runs the action."""
        # `importlib.util.find_spec` below asks all finders, this one included.
        if fullname not in self._actions or fullname in self._sought:
            return None
        self._sought.add(fullname)
        try:
            spec = importlib.util.find_spec(fullname)
        finally:
            self._sought.remove(fullname)
        if spec is None or spec.loader is None:
            return None
        execute = spec.loader.exec_module

        def execute_and_act(module: types.ModuleType) -> None:
            execute(module)
            # Not in `find_spec`, because a module that is found need not be imported.
            action = self._actions.pop(fullname, None)
            if action is not None:
                action(module)

        spec.loader.exec_module = execute_and_act  # type: ignore[method-assign]
        return spec
