"""A script as the main module of this process, as `python SCRIPT ARGS...` runs it."""

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
        args: its arguments.

    Raises:
        BaseException: what the script raises. If nobody catches it, Python shows it and ends as
            for the script alone: without the frames that called the script.
    """
    sys.argv = [script, *args]
    if not sys.flags.safe_path:
        # Later imports still need what `python -m` has put first.
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
    # It stays: threads and exit handlers of the script may run after it.
    sys.modules[_MAIN] = main
    try:
        exec(_read_code(path), vars(main))
    except BaseException as error:
        _hide_callers(error)
        raise


def _read_code(path: str) -> Any:
    with open(path, "rb") as file:
        code = pkgutil.read_code(file)  # None for source.
    if code is None:
        with open(path, "rb") as file:
            code = compile(file.read(), path, "exec", dont_inherit=True)
    return code


def _hide_callers(error: BaseException) -> None:
    """Has Python show an error that ends the process with the frames of the script alone."""
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
