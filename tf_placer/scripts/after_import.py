"""Calls something as soon as a module has been imported, by whomever."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import sys
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any

__all__ = ["after_import"]


def after_import(actions: Mapping[str, Callable[[Any], None]]) -> None:
    """Has something done with modules right behind their first import.

    A script sets variables of the environment before it imports TensorFlow or Keras, so that
    nobody may import them earlier.

    Args:
        actions: by name of a module that was not imported yet, what is called with it.
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
        """Finds a module as others do, if something is to be done behind its import."""
        # Others are asked, too, and so is this one again.
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
            # Who looks for a module need not import it, so this is not done before.
            action = self._actions.pop(fullname, None)
            if action is not None:
                action(module)

        spec.loader.exec_module = execute_and_act  # type: ignore[method-assign]
        return spec
