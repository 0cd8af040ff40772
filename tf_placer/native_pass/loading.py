"""Loads the pass into this process and gives it a placement."""

from __future__ import annotations

import ctypes
import os
import pathlib
from collections.abc import Mapping

from tf_placer.errors import require_tensorflow

__all__ = ["build_pass", "place", "place_as_environment_says"]

_PLACEMENT_VARIABLE = "TF_PLACER_PLACEMENT"
_SOURCE = pathlib.Path(__file__).parent / "pre_placement_pass.cc"
_HEADER = "tensorflow/core/common_runtime/optimization_registry.h"


def build_pass() -> pathlib.Path:
    """Builds the library of the pass if it was not built before.

    Raises:
        LibraryError: it cannot be built.
    """
    from tf_placer.library_build import build_library

    return build_library(_SOURCE, _HEADER, what="the pass")


def place_as_environment_says() -> None:
    """Places all later graphs as the file says that the environment names, if it names one.

    Raises:
        GraphError: the file cannot be read or is not a placement; the message names it.
        LibraryError: the pass is not built, and cannot be.
    """
    path = os.environ.get(_PLACEMENT_VARIABLE)
    if path:
        require_tensorflow()
        from graph_passes.placement import read_placement

        place(read_placement(path).assignment)


def place(assignment: Mapping[str, str]) -> None:
    """Places all graphs that a session or a function of this process runs first from now on.

    Builds the pass where it was not built. Operations that come with a device keep it, and a graph
    that has less than half of the names is another one and stays as it is. Each graph that is
    placed has a line on standard error.

    Args:
        assignment: the device of each operation, by name; nothing, to place no longer.

    Raises:
        LibraryError: the pass is not built and cannot be, or cannot be loaded.
    """
    from tf_placer.library_build import LibraryError

    path = build_pass()
    try:
        # TensorFlow is loaded by now, so that the library finds it.
        function = ctypes.CDLL(str(path)).tf_placer_place
    except (OSError, AttributeError) as error:
        raise LibraryError(
            f"the pass cannot be loaded: {error}; delete {path}, and it is built anew"
        ) from error
    texts = ctypes.c_char_p * len(assignment)
    function.argtypes, function.restype = [ctypes.c_int64, texts, texts], None
    names = texts(*(name.encode() for name in assignment))
    function(len(assignment), names, texts(*(device.encode() for device in assignment.values())))
