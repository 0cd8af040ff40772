"""Python as this process runs it, for the processes that it starts.

Most processes are a `python` with a script. An interpreter that a program embeds has no
`sys.executable`, or the program itself stands there, and no `sys.argv`; and `sys.path` holds
whatever somebody has put there.
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

__all__ = ["command_line", "interpreter", "python_environment"]

_ANSWER_SECS = 30.0


def interpreter() -> str:
    """Finds the program that runs other processes of this Python.

    Raises:
        SearchError: there is none.
    """
    # `multiprocessing.set_executable` is how programs that embed Python name one.
    asked = multiprocessing.spawn.get_executable()
    return _found_interpreter(sys.executable, os.fsdecode(asked) if asked else None)


@functools.cache
def _found_interpreter(own: str | None, asked: str | None) -> str:
    if own and asked in (None, own) and _runs_this_process(own):
        return own
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    beside = [
        os.path.join(prefix, "bin", name)
        for prefix in (sys.exec_prefix, sys.base_exec_prefix)
        for name in (version, "python3", "python")
    ]
    # Where Python is embedded, `sys.executable` is any python of $PATH, or what embeds this one.
    for path in (asked if asked != own else None, *beside, own):
        if path and _is_python(path) and _has_this_version(path):
            return path
    raise SearchError(
        f"no Python {sys.version_info.major}.{sys.version_info.minor} is found that could run "
        f"other processes: sys.executable is {own!r}, and there is no {beside[0]!r}; "
        "multiprocessing.set_executable(PATH) names one"
    )


def _is_python(path: str) -> bool:
    # A program that embeds Python has another name, and must not be started.
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


def python_environment(environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """Makes environment variables for a Python that finds the modules that this one finds.

    Args:
        environ: the variables to start from; the variables of this process when None.

    Returns:
        A changed copy.
    """
    result = dict(os.environ if environ is None else environ)
    if sys.flags.ignore_environment:
        # As this process does (-E, -I); one of them may not even let Python start.
        result = {name: value for name, value in result.items() if not name.startswith("PYTHON")}
    # Python imports from nothing else, such as a `pathlib.Path` on its path, and the variable has
    # no way to write a path with its own separator.
    paths = [_absolute(path) for path in sys.path if isinstance(path, str)]
    result["PYTHONPATH"] = os.pathsep.join(
        path for path in paths if path is not None and os.pathsep not in path
    )
    return result


def _absolute(path: str) -> str | None:
    try:
        return os.path.abspath(path)
    except OSError:  # Somebody has deleted the working directory: nothing can be found there.
        return None


def command_line(program: str | None = None) -> str:
    """Writes the command line of this process as a shell reads it; what is not UTF-8 by number.

    Args:
        program: what stands there for the program; what the process was called when None.
    """
    arguments = [os.fsdecode(each) for each in getattr(sys, "argv", ())]
    if program is not None:
        arguments[:1] = [program]
    return shlex.join(arguments).encode("utf-8", "backslashreplace").decode()
