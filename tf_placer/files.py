"""Files that are written whole or not at all; JSON, read with an answer to what is wrong."""

from __future__ import annotations

import json
import os
import pathlib
from typing import Any

from graph_passes.json_text import parse_json
from graph_passes.whole_file import check_takes_files, write_whole

__all__ = [
    "cache_directory",
    "check_output",
    "read_json",
    "write_bytes",
    "write_json",
    "write_text",
]


def cache_directory() -> pathlib.Path:
    """Finds the directory for what can be found out again: `$XDG_CACHE_HOME` or `~/.cache`."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return pathlib.Path(base, "tf_placer")


def read_json(path: str | os.PathLike[str]) -> Any:
    """Reads a JSON file.

    Raises:
        OSError: it cannot be read.
        ValueError: it is not JSON.
    """
    path = os.fspath(path)
    try:
        with open(path, "rb") as file:
            return parse_json(file.read())
    except ValueError as error:
        raise ValueError(f"{path} is not a JSON file: {error}") from None


def write_json(path: str | os.PathLike[str], value: Any) -> None:
    """Writes a JSON file; what was there before stays until the new one is whole.

    Raises:
        OSError: it cannot be written.
        ValueError: a number in it is not finite.
    """
    write_text(path, json.dumps(value, allow_nan=False) + "\n")


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Writes a text file; what was there before stays until the new one is whole.

    Raises:
        OSError: it cannot be written.
    """
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
