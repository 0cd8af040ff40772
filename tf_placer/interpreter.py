"""Finds the Python interpreter and the environment for child processes.

If a program embeds Python, `sys.executable` is missing or names the program, `sys.argv` may be
missing, and `sys.path` may contain anything.
"""

from __future__ import annotations

import functools
import multiprocessing.spawn
import os
import shlex
import subprocess
import sys
from collections.abc import Mapping

from tf_placer.errors import SearchError

__all__ = ["build_python_environment", "find_interpreter", "format_command_line", "is_notebook"]

_ANSWER_SECS = 30.0


def find_interpreter() -> str:
    """Finds the Python program to start child processes with.

    Raises:
        SearchError: there is no such program.
    """
    # Programs that embed Python can name an interpreter by `multiprocessing.set_executable`.
    asked = multiprocessing.spawn.get_executable()
    return _search_interpreter(sys.executable, os.fsdecode(asked) if asked else None)


@functools.cache
def _search_interpreter(own: str | None, asked: str | None) -> str:
    if own and asked in (None, own) and _runs_this_process(own):
        return own
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    beside = [
        os.path.join(prefix, "bin", name)
        for prefix in (sys.exec_prefix, sys.base_exec_prefix)
        for name in (version, "python3", "python")
    ]
    # If Python is embedded, `sys.executable` is any python of $PATH or the embedding program, so it
    # comes last.
    for path in (asked if asked != own else None, *beside, own):
        if path and _is_python(path) and _has_this_version(path):
            return path
    raise SearchError(
        f"no Python {sys.version_info.major}.{sys.version_info.minor} is found that could run "
        f"other processes: sys.executable is {own!r}, and there is no {beside[0]!r}; "
        "multiprocessing.set_executable(PATH) names one"
    )


def _is_python(path: str) -> bool:
    # Judged by name, because a program that embeds Python must not be started to find out.
    return "python" in os.path.basename(path)


def _runs_this_process(path: str) -> bool:
    try:
        return _is_python(path) and os.path.samefile(path, "/proc/self/exe")
    except OSError:
        return False


def _has_this_version(python: str) -> bool:
    code = "import sys; print(sys.version_info[:2])"
    try:
        answer = subprocess.run(
            [python, "-I", "-S", "-c", code],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_ANSWER_SECS,
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return answer.stdout.decode(errors="replace").strip() == str(sys.version_info[:2])


def build_python_environment(environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """Builds environment variables for a child Python that finds the modules of this process.

    Args:
        environ: the variables to start from; None for the variables of this process.

    Returns:
        A changed copy.
    """
    result = dict(os.environ if environ is None else environ)
    if sys.flags.ignore_environment:
        # This process ignores them (-E, -I), and some could even keep a child from starting.
        result = {name: value for name, value in result.items() if not name.startswith("PYTHON")}
    # Python ignores entries that are no strings, such as a `pathlib.Path`. PYTHONPATH cannot
    # express paths that contain its separator.
    paths = [_absolute(path) for path in sys.path if isinstance(path, str)]
    result["PYTHONPATH"] = os.pathsep.join(
        path for path in paths if path is not None and os.pathsep not in path
    )
    return result


def _absolute(path: str) -> str | None:
    try:
        return os.path.abspath(path)
    except OSError:  # The working directory was deleted, so that it contains no modules.
        return None


def is_notebook() -> bool:
    """Returns whether this process is the kernel of a notebook."""
    return "ipykernel" in sys.modules and "IPython" in sys.modules


def format_command_line() -> str:
    """Formats the command line of this process for a shell, with escapes for invalid UTF-8.

    Returns:
        The command line, which begins with "tf_placer" for a command of ours; "a notebook" in the
        kernel of one, whose command line says nothing.
    """
    if is_notebook():
        return "a notebook"
    arguments = [os.fsdecode(each) for each in getattr(sys, "argv", ())]
    if arguments and os.path.basename(arguments[0].removesuffix("/__main__.py")) == "tf_placer":
        arguments[0] = "tf_placer"
    return shlex.join(arguments).encode("utf-8", "backslashreplace").decode()
