"""Runs a script as the main module of this process, as `python SCRIPT ARGS...` does."""

from __future__ import annotations

import builtins
import importlib.machinery
import os
import pkgutil
import sys
import types
from collections.abc import Sequence
from typing import Any

__all__ = ["run_main_script"]

_MAIN = "__main__"


def run_main_script(script: str, args: Sequence[str]) -> None:
    """Runs a script to the end of its main module.

    Args:
        script: a Python file.
        args: the arguments of the script.

    Raises:
        BaseException: the script raises it. If it ends the process, Python prints it without the
            frames that called the script.
    """
    sys.argv = [script, *args]
    if not sys.flags.safe_path:
        # Later imports still need the entry that `python -m` has inserted at the front.
        sys.path.append(sys.path[0])
        sys.path[0] = os.path.dirname(os.path.realpath(script))
    path = os.path.join(os.getcwd(), script)
    main = types.ModuleType(_MAIN)
    main.__dict__.update(
        __builtins__=builtins,
        __cached__=None,
        __file__=path,
        __loader__=importlib.machinery.SourceFileLoader(_MAIN, path),
        __package__=None,
    )
    # The module stays after the script, whose threads and exit handlers may still use it.
    sys.modules[_MAIN] = main
    try:
        exec(_read_code(path), vars(main))
    except BaseException as error:
        _hide_callers(error)
        raise


def _read_code(path: str) -> Any:
    with open(path, "rb") as file:
        code = pkgutil.read_code(file)  # Returns None for source code.
    if code is None:
        with open(path, "rb") as file:
            code = compile(file.read(), path, "exec", dont_inherit=True)
    return code


def _hide_callers(error: BaseException) -> None:
    """Makes Python print an error that ends the process without the frames of tf_placer."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_globals.get("__name__") == __name__:
        trace = trace.tb_next
    show = sys.excepthook

    def show_without_callers(
        kind: type[BaseException], value: BaseException, shown: types.TracebackType | None
    ) -> None:
        if value is error:
            shown = trace
            value = value.with_traceback(trace)
        show(kind, value, shown)

    sys.excepthook = show_without_callers
