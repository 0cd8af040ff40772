"""How the functions of the simulator are compiled."""

from __future__ import annotations

import hashlib
import os
import pathlib
from types import ModuleType
from typing import Any

import numba

__all__ = ["compiled"]


def compiled(function: Any, *modules: ModuleType) -> Any:
    """Compiles without the interpreter lock, and keeps the result for the next process.

    numba takes what it has kept under the name of a function, if the file of that function is the
    same. So the name tells of the other files that matter to it, and the file is where it really
    is: Bazel shows it to every test in another place.

    Args:
        function: what to compile.
        modules: all other modules with functions that it calls or that these call, and with the
            types of its arguments.

    Returns:
        The function, which is compiled when it is called.
    """
    code = function.__code__
    function.__code__ = code.replace(co_filename=os.path.realpath(code.co_filename))
    sources = hashlib.sha256()
    try:
        for module in modules:
            sources.update(pathlib.Path(str(module.__file__)).read_bytes())
        function.__qualname__ += f"_{sources.hexdigest()[:16]}"
        return numba.njit(nogil=True, cache=True, error_model="numpy")(function)
    except (OSError, RuntimeError):  # There is no file, or no folder to keep it in.
        return numba.njit(nogil=True, error_model="numpy")(function)
