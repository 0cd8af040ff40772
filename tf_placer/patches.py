"""All methods of TensorFlow and Keras that tf_placer changes, and the one way to change them.

What is set on a single object, such as the training function of one model, is not among them.
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
    """A method that functions are put around.

    Attributes:
        module: where its class is found.
        kind: the name of the class.
        method: its own name.
        parameters: its first ones, up to the last that is relied on.
        versions: the major versions of its package that have it.
    """

    module: str
    kind: str
    method: str
    parameters: tuple[str, ...] = ("self",)
    versions: tuple[int, ...] = (2,)

    @property
    def name(self) -> str:
        """Its name behind that of its class and package: "tensorflow.BaseSession.run"."""
        return f"{self.module.partition('.')[0]}.{self.kind}.{self.method}"

    def find_class(self) -> Any:
        """Returns the class, whose module is imported if it was not."""
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
    """Has the calls of a method go through a function, whoever makes them.

    Of several functions the last one is called first. A method that others put in the place of one
    that was wrapped stays, and is wrapped in turn by what comes later.

    Args:
        name: of the method, in `PATCHES`.
        around: is called with what it stands for, followed by the instance and what the caller
            gives.

    Returns:
        Takes the function away, and says whether it was still there. With the last one the class
        gets back the very method that it had.
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
    """A method in the place of one of TensorFlow or Keras, for all that is put around it.

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
        """Whether the class has this method, and not the original or one of others."""
        return getattr(self._kind, self._name) is self._method

    def add(self, around: Callable[..., Any]) -> object:
        """Puts a function around all others; returns what `remove` takes."""
        key = object()
        self._around[key] = around
        self._nest()
        return key

    def remove(self, key: object) -> bool:
        """Takes a function away, and puts the original back when none is left."""
        was_there = self._around.pop(key, None) is not None
        self._nest()
        # A method that others have put in its place since then may call it, and stays.
        if not self._around and self.is_in_place:
            if self._is_inherited:
                delattr(self._kind, self._name)
            else:
                setattr(self._kind, self._name, self._original)
        return was_there

    def _nest(self) -> None:
        # In one go: others may call the method meanwhile.
        self._call = functools.reduce(
            lambda inner, around: functools.partial(around, inner),
            self._around.values(),
            self._original,
        )


_LOCK = threading.Lock()
_WRAPPED: dict[str, _WrappedMethod] = {}
