"""The registry of all methods and functions of TensorFlow and Keras that tf_placer wraps.

Attributes that are set on single objects, such as the training function of a model, do not count.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import threading
from collections.abc import Callable
from typing import Any

__all__ = ["PATCHES", "Patch", "wrap"]


@dataclasses.dataclass(frozen=True)
class Patch:
    """A method that can be wrapped.

    Attributes:
        module: the module of the class.
        kind: the name of the class, or of a module with a function.
        method: the name of the method.
        parameters: its first parameters, up to the last one that tf_placer relies on.
        versions: the major versions of the package that have the method.
    """

    module: str
    kind: str
    method: str
    parameters: tuple[str, ...] = ("self",)
    versions: tuple[int, ...] = (2,)

    @property
    def name(self) -> str:
        """The package, class and method: "tensorflow.BaseSession.run"."""
        return f"{self.module.partition('.')[0]}.{self.kind}.{self.method}"

    def find_class(self) -> Any:
        """Imports the module and returns the class."""
        return getattr(importlib.import_module(self.module), self.kind)


_SESSION = ("tensorflow.python.client.session", "BaseSession")
_FUNC_GRAPH = ("tensorflow.python.framework.func_graph", "FuncGraph")
_FUNCTION = ("tensorflow.python.eager.polymorphic_function.polymorphic_function", "Function")
_MODEL_METHODS = {
    "fit": ("self", "x", "y", "batch_size", "epochs", "verbose", "callbacks"),
    "train_on_batch": ("self",),
    "evaluate": ("self",),
    "predict": ("self",),
    "test_on_batch": ("self",),
    "predict_on_batch": ("self",),
}

PATCHES = {
    patch.name: patch
    for patch in (
        Patch("tensorflow.python.eager.context", "Context", "ensure_initialized"),
        Patch(*_SESSION, "_extend_graph"),
        Patch(*_SESSION, "run", ("self", "fetches", "feed_dict")),
        Patch(*_SESSION, "_make_callable_from_options", ("self", "callable_options")),
        Patch(*_FUNCTION, "__call__", ("self", "args", "kwds")),
        Patch("tensorflow", "config", "list_logical_devices", ("device_type",)),
        Patch(*_FUNC_GRAPH, "capture", ("self", "tensor", "name", "shape")),
        *(
            Patch(package, "Model", method, parameters, versions)
            for package, versions in (("keras", (2, 3)), ("tf_keras", (2,)))
            for method, parameters in _MODEL_METHODS.items()
        ),
        Patch("keras", "Model", "_resolve_auto_jit_compile", versions=(3,)),
    )
}


def wrap(name: str, around: Callable[..., Any]) -> Callable[[], bool]:
    """Wraps a method, so that all its calls go through a function.

    The function that was added last is called first. If other code replaces a wrapped method, the
    replacement stays, and later functions wrap it.

    Args:
        name: the name of the method in `PATCHES`.
        around: the function. It is called with the wrapped callable, followed by the instance and
            the caller's arguments.

    Returns:
        A function that removes `around` and returns whether it was still there. Removing the last
        function restores the original method.
    """
    patch = PATCHES[name]
    kind = patch.find_class()
    with _LOCK:
        wrapped = _WRAPPED.get(name)
        if wrapped is None or not wrapped.is_in_place:
            wrapped = _WRAPPED[name] = _WrappedMethod(kind, patch.method)
        key = wrapped.add(around)

    def undo() -> bool:
        with _LOCK:
            return wrapped.remove(key)

    return undo


class _WrappedMethod:
    """A method that replaces one of TensorFlow or Keras, and calls all functions around it.

    Args:
        kind: the class.
        name: the name of the method.
    """

    def __init__(self, kind: Any, name: str) -> None:
        self._kind, self._name = kind, name
        self._is_inherited = name not in vars(kind)
        self._original = self._call = getattr(kind, name)
        self._around: dict[object, Callable[..., Any]] = {}

        @functools.wraps(self._original)
        def method(*args: Any, **kwargs: Any) -> Any:
            return self._call(*args, **kwargs)

        self._method = method
        setattr(kind, name, method)

    @property
    def is_in_place(self) -> bool:
        """True if the class has this method, not the original or a replacement by other code."""
        return getattr(self._kind, self._name) is self._method

    def add(self, around: Callable[..., Any]) -> object:
        """Adds a function around all others; returns a key for `remove`."""
        key = object()
        self._around[key] = around
        self._nest()
        return key

    def remove(self, key: object) -> bool:
        """Removes a function, and restores the original method after the last one."""
        was_there = self._around.pop(key, None) is not None
        self._nest()
        # A replacement by other code may call this method, and stays in place.
        if not self._around and self.is_in_place:
            if self._is_inherited:
                delattr(self._kind, self._name)
            else:
                setattr(self._kind, self._name, self._original)
        return was_there

    def _nest(self) -> None:
        # One assignment, because other threads may call the method meanwhile.
        self._call = functools.reduce(
            lambda inner, around: functools.partial(around, inner),
            self._around.values(),
            self._original,
        )


_LOCK = threading.Lock()
_WRAPPED: dict[str, _WrappedMethod] = {}
