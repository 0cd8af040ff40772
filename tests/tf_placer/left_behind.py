"""Leaves files of a killed process behind."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys

__all__ = ["leave_stale_directory"]

_VICTIM = """
import os, signal, sys
from tf_placer.temporary_directory import temporary_directory
with temporary_directory(sys.argv[1], **({"prefix": sys.argv[2]} if sys.argv[2:] else {})) as path:
    open(path + "/file", "w").write("text")
    print(path, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


def leave_stale_directory(parent: str | os.PathLike[str], *prefix: str) -> pathlib.Path:
    """Kills a process that has a temporary directory; returns the directory."""
    killed = subprocess.run(
        [sys.executable, "-c", _VICTIM, os.fspath(parent), *prefix],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=subprocess.PIPE,
        text=True,
    )
    return pathlib.Path(killed.stdout.strip())
