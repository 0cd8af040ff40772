"""Builds the pass, loads it into this process, and gives it a placement."""

from __future__ import annotations

import ctypes
import os
import pathlib
from collections.abc import Mapping

from tf_placer.errors import require_tensorflow

__all__ = ["build_pass", "place", "place_by_environment"]

_PLACEMENT_VARIABLE = "TF_PLACER_PLACEMENT"
_SOURCE = pathlib.Path(__file__).parent / "pre_placement_pass.cc"
_HEADER = "tensorflow/core/common_runtime/optimization_registry.h"


def build_pass() -> pathlib.Path:
    """Builds the library of the pass if it was not built before.

    Raises:
        LibraryError: the library cannot be built.
    """
    from tf_placer.library_build import build_library

    return build_library(_SOURCE, _HEADER, what="the pass")


def place_by_environment() -> None:
    """Places all later graphs by the placement file that the environment variable names, if any.

    Raises:
        GraphError: the file cannot be read or is not a placement; the message names it.
        LibraryError: the pass cannot be built or loaded.
    """
    path = os.environ.get(_PLACEMENT_VARIABLE)
    if path:
        require_tensorflow()
        from graph_passes.placement import read_placement

        place(read_placement(path).assignment)


def place(assignment: Mapping[str, str]) -> None:
    """Places all graphs that sessions or functions of this process run for the first time later.

    Builds the pass if necessary. Operations with a device keep it. A graph with less than half of
    the names is not the placed one, and is not changed. The pass prints a line to standard error
    for each graph that it places.

    Args:
        assignment: the device of each operation, by name; empty to stop placing.

    Raises:
        LibraryError: the pass cannot be built or loaded.
    """
    from tf_placer.library_build import LibraryError

    path = build_pass()
    try:
        # `build_pass` has loaded TensorFlow, whose symbols the library needs.
        function = ctypes.CDLL(str(path)).tf_placer_place
    except (OSError, AttributeError) as error:
        raise LibraryError(
            f"the pass cannot be loaded: {error}; delete {path}, and it is built anew"
        ) from error
    texts = ctypes.c_char_p * len(assignment)
    function.argtypes, function.restype = [ctypes.c_int64, texts, texts], None
    names = texts(*(name.encode() for name in assignment))
    function(len(assignment), names, texts(*(device.encode() for device in assignment.values())))
