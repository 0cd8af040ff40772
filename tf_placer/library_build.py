"""Builds C++ libraries against the installed TensorFlow, once for each version of it."""

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
from tf_placer.scratch import scratch_directory

__all__ = ["LibraryError", "build_library", "library_path"]

#: The preprocessor sees what TensorFlow saw (NDEBUG changes classes), and of TensorFlow's headers
#: nobody wants to read warnings.
_FLAGS = ("-DNDEBUG", "-O1", "-w", "-fPIC", "-shared", "-fvisibility=hidden")
#: The library with most of the runtime, which `get_link_flags` leaves out.
_RUNTIME = ("-l:libtensorflow_cc.so.2",)
_COMPILERS = ("g++", "c++", "clang++")
_SHOWN_CHARS = 300


class LibraryError(ImportError):
    """A library cannot be built or loaded; the message says why and what to do."""


def library_path(source: pathlib.Path) -> pathlib.Path:
    """Finds where the library of a source file is, or would be, that fits this TensorFlow."""
    made_of = [tf.version.GIT_VERSION, *_flags(), source.read_text()]
    digest = hashlib.sha256("\n".join(made_of).encode()).hexdigest()[:16]
    name = f"{source.stem}-{tf.__version__}-{digest}.so"
    return cache_directory() / source.parent.name / name


def build_library(source: pathlib.Path, header: str, *, what: str) -> pathlib.Path:
    """Builds the library of a source file if it was not built before.

    Args:
        source: C++ that includes headers of TensorFlow.
        header: one of these, whose absence tells that TensorFlow came without headers.
        what: the name of the library in messages.

    Returns:
        The library.

    Raises:
        LibraryError: there is no compiler, TensorFlow came without its headers, the compiler fails,
            or others may write where the library is to be.
    """
    path = library_path(source)
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
    with scratch_directory(path.parent) as directory:
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
        # Whole or not at all, whoever else builds it at the same time.
        os.replace(made, path)
    return path


def _flags() -> list[str]:
    return [*tf.sysconfig.get_compile_flags(), *_FLAGS]


def _compiler(what: str) -> list[str]:
    """Finds the C++ compiler: $CXX, or the first of the usual ones."""
    named = shlex.split(os.environ.get("CXX", ""))
    for command in [named] if named else [[name] for name in _COMPILERS]:
        if shutil.which(command[0]):
            return command
    raise LibraryError(
        f"{what} is not built for TensorFlow {tf.__version__}, and there is no C++ compiler: "
        "install one (Debian: apt-get install g++) and start again"
    )


def _make_private(directory: pathlib.Path, what: str) -> None:
    """Makes sure that nobody else puts code where this process loads it from."""
    # The mode is that of the last directory alone.
    for each in (directory.parent, directory):
        each.mkdir(parents=True, exist_ok=True, mode=0o700)
    status = directory.stat()
    if status.st_uid != os.getuid() or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise LibraryError(
            f"others may write to {directory}, where {what} is kept: set XDG_CACHE_HOME to a "
            "directory of your own"
        )
