"""The loader of the compiled core, which simulates steps and anneals placements.

Setuptools and Bazel build the core from `core.cc`, each to a file of a different name in the folder
of this module.
"""

from __future__ import annotations

import ctypes
import functools
import pathlib
from typing import Any

import numpy as np

from tf_placer.native.digest import compute_sources_digest

__all__ = [
    "CoreError",
    "Struct",
    "array_of",
    "core",
    "int64",
    "make_owner",
    "pointer_to",
    "random_struct",
]

_FOLDER = pathlib.Path(__file__).parent
_HOW_TO_BUILD = (
    "`pip install -e .` in the folder of tf_placer builds it, and needs a C++ compiler "
    "(Debian: apt-get install g++)"
)

int64 = ctypes.c_int64


class CoreError(ImportError):
    """The error for a compiled core that is missing, or was built from other sources."""


class _Pointer(ctypes.c_void_p):
    dtype: np.dtype


@functools.cache
def array_of(dtype: Any) -> type[_Pointer]:
    """Makes the type of the fields of a `Struct` that point to an array of a dtype."""
    return type("Pointer", (_Pointer,), {"dtype": np.dtype(dtype)})


class Struct(ctypes.Structure):
    """A struct of the core, of pointers to arrays and of numbers. It keeps the arrays alive.

    A field that points to an array has a type made by `array_of`; `struct["name"]` is the array.
    """

    def __init__(self, **fields: Any) -> None:
        """Fills in all fields.

        Args:
            fields: the arrays and numbers by name.

        Raises:
            TypeError: a field is missing or unknown.
            ValueError: an array has another dtype than its field, or is not in C order.
        """
        types: dict[str, Any] = {name: kind for name, kind, *_ in self._fields_}
        if fields.keys() != types.keys():
            raise TypeError(f"wrong fields: {sorted(fields.keys() ^ types.keys())}")
        self._arrays: dict[str, np.ndarray] = {}
        values = {}
        for name, value in fields.items():
            if issubclass(types[name], _Pointer):
                self._arrays[name] = value
                value = types[name](pointer_to(value, types[name].dtype, name).value)
            values[name] = value
        super().__init__(**values)

    def __getitem__(self, name: str) -> np.ndarray:
        """Returns the array that a field points to."""
        return self._arrays[name]


def pointer_to(array: np.ndarray, dtype: Any, name: str = "array") -> ctypes.c_void_p:
    """Makes a pointer to an array, which the caller keeps alive.

    Raises:
        ValueError: the array has another dtype, or is not in C order.
    """
    if array.dtype != dtype or not array.flags.c_contiguous:
        raise ValueError(f"{name}: {np.dtype(dtype)} in C order is needed, not {array.dtype}")
    return ctypes.c_void_p(array.ctypes.data)


class _Random(ctypes.Structure):
    _fields_ = (("state", ctypes.c_void_p), ("next_double", ctypes.c_void_p))


def random_struct(generator: np.random.Generator) -> ctypes.Structure:
    """Makes the struct by which the core draws from a generator of NumPy, and keeps it alive."""
    interface = generator.bit_generator.ctypes
    struct = _Random(
        interface.state_address, ctypes.cast(interface.next_double, ctypes.c_void_p).value
    )
    struct.generator = generator
    return struct


def make_owner(pointer: int, free: Any) -> Any:
    """Makes an object that frees the memory at a pointer when it is garbage-collected.

    No Python code runs then, because Python prints and ignores a KeyboardInterrupt during a
    finalizer written in Python.

    Args:
        pointer: an address, not 0.
        free: the C function that frees it.
    """
    capsule = _new_capsule(pointer, None, _address(core().tf_placer_free_capsule))
    _set_context(capsule, _address(free))
    return capsule


def _address(function: Any) -> int | None:
    return ctypes.cast(function, ctypes.c_void_p).value


_new_capsule = ctypes.pythonapi.PyCapsule_New
_new_capsule.restype = ctypes.py_object
_new_capsule.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
_set_context = ctypes.pythonapi.PyCapsule_SetContext
_set_context.restype, _set_context.argtypes = ctypes.c_int, [ctypes.py_object, ctypes.c_void_p]


@functools.cache
def core() -> ctypes.CDLL:
    """Loads the core, whose functions run without the interpreter lock.

    Raises:
        CoreError: the core is missing, or was built from other sources.
    """
    found = sorted([*_FOLDER.glob("core.so"), *_FOLDER.glob("_core*.so")])
    if not found:
        raise CoreError(f"the compiled core of tf_placer is not in {_FOLDER}: {_HOW_TO_BUILD}")
    library = ctypes.CDLL(str(found[0]))
    library.tf_placer_digest.restype = ctypes.c_char_p
    made_of, there = library.tf_placer_digest().decode(), compute_sources_digest(_FOLDER)
    # Bazel embeds no digest, because it rebuilds the core itself.
    if made_of and there and made_of != there:
        raise CoreError(
            f"{found[0]} was made of other sources than those beside it: {_HOW_TO_BUILD}"
        )
    pointer, double = ctypes.c_void_p, ctypes.c_double
    for name, result, arguments in (
        ("earliest_starts", int64, [pointer] * 2),
        ("make_step", pointer, [pointer]),
        ("free_step", None, [pointer]),
        ("simulate", None, [*[pointer] * 2, int64, ctypes.c_bool, double, *[pointer] * 3]),
        ("trace", int64, [pointer] * 9),
        ("draw_move", int64, [*[pointer] * 5, double]),
        ("make_chain", pointer, [*[pointer] * 3, ctypes.c_bool]),
        ("free_chain", None, [pointer]),
        ("restart", None, [pointer] * 2),
        ("anneal", int64, [*[pointer] * 4, ctypes.c_bool, int64, pointer]),
        ("make_order", pointer, [pointer] * 3),
        ("free_order", None, [pointer]),
        ("anneal_order", int64, [*[pointer] * 2, double, int64]),
    ):
        function = getattr(library, f"tf_placer_{name}")
        function.restype, function.argtypes = result, arguments
    library.tf_placer_set_capsule_readers(
        pointer(_address(ctypes.pythonapi.PyCapsule_GetPointer)),
        pointer(_address(ctypes.pythonapi.PyCapsule_GetContext)),
    )
    return library
