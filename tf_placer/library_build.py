"""Builds C++ libraries against the installed TensorFlow, once for each of its versions."""

from __future__ import annotations

import hashlib
import os
import pathlib
import shlex
import shutil
import stat
import subprocess

import tensorflow as tf
from absl import logging

from tf_placer.files import cache_directory
from tf_placer.temporary_directory import temporary_directory

__all__ = ["LibraryError", "build_library", "find_library"]

# NDEBUG has to be defined as in the build of TensorFlow, because it changes the layout of classes.
# -w silences warnings from TensorFlow's headers.
_FLAGS = ("-DNDEBUG", "-O1", "-w", "-fPIC", "-shared", "-fvisibility=hidden")
# The library with most of the runtime, which is missing in `get_link_flags`.
_RUNTIME = ("-l:libtensorflow_cc.so.2",)
_COMPILERS = ("g++", "c++", "clang++")
_SHOWN_CHARS = 300


class LibraryError(ImportError):
    """The error for a library that cannot be built or loaded; the message says what to do."""


def find_library(source: pathlib.Path) -> pathlib.Path:
    """Returns the path of the library of a source file for this TensorFlow, built or not."""
    made_of = [tf.version.GIT_VERSION, *_flags(), source.read_text()]
    digest = hashlib.sha256("\n".join(made_of).encode()).hexdigest()[:16]
    name = f"{source.stem}-{tf.__version__}-{digest}.so"
    return cache_directory() / source.parent.name / name


def build_library(source: pathlib.Path, header: str, *, what: str) -> pathlib.Path:
    """Builds the library of a source file if it was not built before.

    Args:
        source: C++ source code that includes headers of TensorFlow.
        header: one of these headers, to check that TensorFlow is installed with headers.
        what: the name of the library in messages.

    Returns:
        The path of the library.

    Raises:
        LibraryError: there is no compiler, TensorFlow has no headers, the compiler fails, or other
            users may write to the directory of the library.
    """
    path = find_library(source)
    _make_private(path.parent, what)
    if path.exists():
        return path
    include = pathlib.Path(tf.sysconfig.get_include())
    if not (include / header).exists():
        raise LibraryError(
            f"{what} cannot be built: this TensorFlow has no {include / header}; install the "
            "package of TensorFlow from PyPI"
        )
    compiler = _compiler(what)
    logging.warning(
        "building %s of tf_placer for TensorFlow %s, once: %s", what, tf.__version__, path
    )
    with temporary_directory(path.parent) as directory:
        made = pathlib.Path(directory, path.name)
        command = [*compiler, *_flags(), str(source), "-o", str(made)]
        ended = subprocess.run(
            [*command, *tf.sysconfig.get_link_flags(), *_RUNTIME], capture_output=True, text=True
        )
        if ended.returncode:
            lines = ended.stderr.splitlines()
            first = next((line for line in lines if "error" in line), " ".join(lines))
            raise LibraryError(
                f"{what} cannot be built for TensorFlow {tf.__version__}: {compiler[0]} says "
                f"{first[:_SHOWN_CHARS]!r}"
            )
        # Atomic, because other processes may build the library at the same time.
        os.replace(made, path)
    return path


def _flags() -> list[str]:
    return [*tf.sysconfig.get_compile_flags(), *_FLAGS]


def _compiler(what: str) -> list[str]:
    """Finds the C++ compiler: $CXX, or the first installed one of `_COMPILERS`."""
    named = shlex.split(os.environ.get("CXX", ""))
    for command in [named] if named else [[name] for name in _COMPILERS]:
        if shutil.which(command[0]):
            return command
    raise LibraryError(
        f"{what} is not built for TensorFlow {tf.__version__}, and there is no C++ compiler: "
        "install one (Debian: apt-get install g++) and start again"
    )


def _make_private(directory: pathlib.Path, what: str) -> None:
    """Creates a directory for libraries, and checks that no other user can write to it."""
    # One by one, because `mkdir` ignores the mode for the parents that it creates.
    for each in (directory.parent, directory):
        each.mkdir(parents=True, exist_ok=True, mode=0o700)
    status = directory.stat()
    if status.st_uid != os.getuid() or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise LibraryError(
            f"others may write to {directory}, where {what} is kept: set XDG_CACHE_HOME to a "
            "directory of your own"
        )
