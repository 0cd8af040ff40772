"""Reads and writes files: atomic writes, standard streams, and JSON with clear error messages."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import pathlib
import sys
import tempfile
from collections.abc import Iterator
from typing import Any

from graph_passes.util.atomic_write import check_file_writable, is_special, write_atomically
from graph_passes.util.json_text import parse_json

__all__ = [
    "cache_directory",
    "check_output",
    "is_persistent_directory",
    "is_standard_output",
    "is_stream",
    "make_persistent_directory",
    "name_file_in_errors",
    "read_bytes",
    "read_json",
    "write_bytes",
    "write_json",
    "write_text",
]


# "-" means standard output as an output file, and standard input as an input file.
_STREAM = "-"
_OUTPUT_NAME = "standard output"
_PERSISTENT_PREFIX = "tf_placer_"
_STANDARD_OUTPUT = (_STREAM, "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1")


def cache_directory() -> pathlib.Path:
    """Returns tf_placer's directory in the user's cache: in `$XDG_CACHE_HOME` or `~/.cache`.

    For a user without a home directory, returns a path that cannot be created.
    """
    for base in (os.environ.get("XDG_CACHE_HOME", ""), os.path.expanduser("~/.cache")):
        # A relative path would mean a different cache in every working directory.
        if os.path.isabs(base):
            return pathlib.Path(base, "tf_placer")
    return pathlib.Path("/nonexistent/.cache/tf_placer")


def make_persistent_directory() -> pathlib.Path:
    """Creates a directory among the temporary files that is not deleted at exit.

    Only this user can access it.

    Raises:
        OSError: the directory cannot be created.
    """
    return pathlib.Path(tempfile.mkdtemp(prefix=_PERSISTENT_PREFIX))


def is_persistent_directory(path: str | os.PathLike[str]) -> bool:
    """Returns whether a directory has such a name as `make_persistent_directory` gives."""
    of = pathlib.Path(path)
    is_temporary = of.parent == pathlib.Path(tempfile.gettempdir())
    return is_temporary and of.name.startswith(_PERSISTENT_PREFIX)


def is_standard_output(path: str | os.PathLike[str]) -> bool:
    """Says whether a path names the standard output of this process: "-" or /dev/stdout."""
    return os.fspath(path) in _STANDARD_OUTPUT


def is_stream(path: str | os.PathLike[str]) -> bool:
    """Says whether a path names a stream, such as a pipe, which cannot be written again."""
    return is_standard_output(path) or is_special(os.fspath(path))


def read_bytes(path: str | os.PathLike[str]) -> bytes:
    """Reads a file, or standard input if the path is "-".

    Raises:
        OSError: the file cannot be read.
    """
    if os.fspath(path) == _STREAM:
        if sys.stdin is None:
            raise OSError(errno.EBADF, "it is closed", "standard input")
        return sys.stdin.buffer.read()
    with open(path, "rb") as file:
        return file.read()


def read_json(path: str | os.PathLike[str]) -> Any:
    """Reads a JSON file, or standard input if the path is "-".

    Raises:
        OSError: the file cannot be read.
        ValueError: the file is not JSON.
    """
    path = os.fspath(path)
    try:
        return parse_json(read_bytes(path))
    except ValueError as error:
        raise ValueError(f"{path} is not a JSON file: {error}") from None


@contextlib.contextmanager
def name_file_in_errors(path: str | os.PathLike[str], what: str) -> Iterator[None]:
    """Adds the name of a file to any ValueError in the block, which parses the file.

    Args:
        path: the file.
        what: the expected content: "the result of a search".

    Raises:
        ValueError: the block raises a ValueError.
    """
    path = os.fspath(path)
    try:
        yield
    except ValueError as error:
        if path in str(error):  # The message names the file already, as those of `read_json` do.
            raise
        raise ValueError(f"{path} is not {what}: {error}") from error


def write_json(path: str | os.PathLike[str], value: Any) -> None:
    """Writes a JSON file atomically.

    Raises:
        OSError: the file cannot be written.
        ValueError: a number is not finite.
    """
    write_text(path, json.dumps(value, allow_nan=False) + "\n")


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Writes a text file atomically, or appends to a stream.

    Args:
        path: the file or stream; "-" is standard output.
        text: the content.

    Raises:
        OSError: the file cannot be written.
    """
    if is_standard_output(path):
        if sys.stdout is None:
            raise OSError(errno.EBADF, "it is closed", _OUTPUT_NAME)
        try:
            sys.stdout.write(text)
            sys.stdout.flush()
        except BrokenPipeError:
            raise
        except OSError as error:
            raise OSError(error.errno, error.strerror, _OUTPUT_NAME) from error
    else:
        write_bytes(path, text.encode("utf-8"))


def write_bytes(path: str | os.PathLike[str], data: bytes) -> None:
    """Writes a file atomically.

    Raises:
        OSError: the file cannot be written.
    """
    write_atomically(path, data)


def check_output(path: str | os.PathLike[str], *others: str | os.PathLike[str] | None) -> None:
    """Checks, before any work, that a file can be written to a path.

    Args:
        path: the output file.
        others: other files of the command, which must not be overwritten; None for none.

    Raises:
        OSError: the file cannot be written; the message names the path.
    """
    if is_standard_output(path):
        return
    if not os.fspath(path):
        raise OSError("cannot write to a file with an empty name")
    for other in others:
        if other is not None and _are_same(path, other):
            raise OSError(
                f"cannot write to {os.fspath(path)!r}: it would replace another file of the command"
            )
    if os.path.isdir(path):
        raise OSError(f"cannot write to {os.fspath(path)!r}: it is a directory")
    try:
        check_file_writable(path)
    except FileNotFoundError as error:
        parent = os.path.dirname(os.fspath(path))
        raise FileNotFoundError(
            f"cannot write to {os.fspath(path)!r}: {error.strerror}: {parent!r}"
        ) from error
    except OSError as error:
        raise OSError(f"cannot write to {os.fspath(path)!r}: {error.strerror}") from error


def _are_same(one: str | os.PathLike[str], other: str | os.PathLike[str]) -> bool:
    """Says whether two paths lead to the same file, through symbolic or hard links."""
    if os.path.realpath(one) == os.path.realpath(other):
        return True
    try:
        return os.path.samefile(one, other) and os.path.isfile(one)
    except OSError:
        return False  # One of the files does not exist.
