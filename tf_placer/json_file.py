"""JSON files: read with an answer to what is wrong, and written whole or not at all."""

from __future__ import annotations

import contextlib
import json
import os
from typing import Any

__all__ = ["check_output", "read_json", "write_json", "write_text"]


def read_json(path: str | os.PathLike[str]) -> Any:
    """Reads a JSON file.

    Raises:
        OSError: it cannot be read.
        ValueError: it is not JSON.
    """
    path = os.fspath(path)
    try:
        with open(path, encoding="utf-8") as file:
            return json.load(file)
    except (ValueError, RecursionError) as error:
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
    path = os.path.realpath(path)
    if _is_special(path):
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        return
    temporary = _temporary(path)
    try:
        with open(temporary, "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        raise


def check_output(path: str | os.PathLike[str]) -> None:
    """Makes sure, before any work, that a file can be written to a path.

    Raises:
        OSError: it cannot be; the message names the path.
    """
    path = os.path.realpath(path)
    if os.path.isdir(path):
        raise OSError(f"cannot write to {path!r}: it is a directory")
    if _is_special(path):
        return
    temporary = _temporary(path)
    try:
        with open(temporary, "wb"):
            pass
        os.unlink(temporary)
    except OSError as error:
        raise OSError(f"cannot write to {path!r}: {error.strerror}") from error


def _temporary(path: str) -> str:
    # Beside the file: a rename is atomic within one file system only.
    return f"{path}.{os.getpid()}.tmp"


def _is_special(path: str) -> bool:
    """Whether this is something like /dev/null, which must not be replaced by a file."""
    return os.path.exists(path) and not os.path.isfile(path)
