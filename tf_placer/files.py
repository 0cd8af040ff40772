"""Files that are written whole or not at all; JSON, read with an answer to what is wrong."""

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

from graph_passes.util.json_text import parse_json
from graph_passes.util.whole_file import check_takes_files, is_special, write_whole

__all__ = [
    "cache_directory",
    "check_output",
    "is_standard_output",
    "is_stream",
    "lasting_directory",
    "read_bytes",
    "read_json",
    "reading",
    "write_bytes",
    "write_json",
    "write_text",
]


# "-" is standard output to those who write, and standard input to those who read.
_STREAM = "-"
_OUTPUT_NAME = "standard output"
_STANDARD_OUTPUT = (_STREAM, "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1")


def cache_directory() -> pathlib.Path:
    """Finds the directory for what can be found out again: `$XDG_CACHE_HOME` or `~/.cache`.

    A user without a home gets one that cannot be made, and so keeps nothing.
    """
    for base in (os.environ.get("XDG_CACHE_HOME", ""), os.path.expanduser("~/.cache")):
        # A relative one would be another one in every working directory.
        if os.path.isabs(base):
            return pathlib.Path(base, "tf_placer")
    return pathlib.Path("/nonexistent/.cache/tf_placer")


def lasting_directory() -> pathlib.Path:
    """Makes a directory among the temporary files that stays, and that only this user can enter.

    Raises:
        OSError: it cannot be made.
    """
    return pathlib.Path(tempfile.mkdtemp(prefix="tf_placer_"))


def is_standard_output(path: str | os.PathLike[str]) -> bool:
    """Says whether a path names the standard output of this process: "-" or /dev/stdout."""
    return os.fspath(path) in _STANDARD_OUTPUT


def is_stream(path: str | os.PathLike[str]) -> bool:
    """Says whether a path names a stream, such as a pipe, to which a value is written only once."""
    return is_standard_output(path) or is_special(os.fspath(path))


def read_bytes(path: str | os.PathLike[str]) -> bytes:
    """Reads a file, or standard input, which is called "-".

    Raises:
        OSError: it cannot be read.
    """
    if os.fspath(path) == _STREAM:
        if sys.stdin is None:
            raise OSError(errno.EBADF, "it is closed", "standard input")
        return sys.stdin.buffer.read()
    with open(path, "rb") as file:
        return file.read()


def read_json(path: str | os.PathLike[str]) -> Any:
    """Reads a JSON file, or standard input, which is called "-".

    Raises:
        OSError: it cannot be read.
        ValueError: it is not JSON.
    """
    path = os.fspath(path)
    try:
        return parse_json(read_bytes(path))
    except ValueError as error:
        raise ValueError(f"{path} is not a JSON file: {error}") from None


@contextlib.contextmanager
def reading(path: str | os.PathLike[str], what: str) -> Iterator[None]:
    """Names the file where what is read of it turns out to be something else.

    Args:
        path: the file.
        what: what it should be: "the result of a search".

    Raises:
        ValueError: the block raises one.
    """
    path = os.fspath(path)
    try:
        yield
    except ValueError as error:
        if path in str(error):  # `read_json` has said it.
            raise
        raise ValueError(f"{path} is not {what}: {error}") from error


def write_json(path: str | os.PathLike[str], value: Any) -> None:
    """Writes a JSON file; what was there before stays until the new one is whole.

    Raises:
        OSError: it cannot be written.
        ValueError: a number in it is not finite.
    """
    write_text(path, json.dumps(value, allow_nan=False) + "\n")


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Writes a text file; what was there before stays until the new one is whole.

    Args:
        path: the file; a stream is written to, "-" is standard output.
        text: its content.

    Raises:
        OSError: it cannot be written.
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
    """Writes a file; what was there before stays until the new one is whole.

    Raises:
        OSError: it cannot be written.
    """
    write_whole(path, data)


def check_output(path: str | os.PathLike[str], *others: str | os.PathLike[str] | None) -> None:
    """Makes sure, before any work, that a file can be written to a path.

    Args:
        path: where the file goes.
        others: files that are read or written, too, so that it must not replace them; None for
            none.

    Raises:
        OSError: it cannot be; the message names the path.
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
        check_takes_files(path)
    except OSError as error:
        raise OSError(f"cannot write to {os.fspath(path)!r}: {error.strerror}") from error


def _are_same(one: str | os.PathLike[str], other: str | os.PathLike[str]) -> bool:
    """Says whether two paths are one file, by links of either kind."""
    if os.path.realpath(one) == os.path.realpath(other):
        return True
    try:
        return os.path.samefile(one, other) and os.path.isfile(one)
    except OSError:
        return False  # One of them is not there.
