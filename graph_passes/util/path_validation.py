"""Validation of paths that users pass."""

from __future__ import annotations

import os

from graph_passes.util.json_text import format_value
from graph_passes.util.messages import quote

__all__ = ["check_path"]

# PATH_MAX of Linux.
_MAX_CHARS = 4096


def check_path(path: object, argument: str, kind: str) -> None:
    """Checks that a value can be a path.

    Args:
        path: the value.
        argument: its name in messages.
        kind: the kind of object at the path, such as "file".

    Raises:
        ValueError: the value cannot be a path.
    """
    wanted = f"{argument} is the path of a {kind}, not"
    if not isinstance(path, str | os.PathLike) or not isinstance(text := os.fspath(path), str):
        raise ValueError(f"{wanted} {quote(path)}")
    try:
        is_path = bool(text) and b"\0" not in os.fsencode(text)
    except UnicodeEncodeError:  # Lone surrogates.
        is_path = False
    if not is_path or len(text) > _MAX_CHARS:
        raise ValueError(f"{wanted} {format_value(text)}")
    if not os.path.isabs(text):
        try:
            os.getcwd()
        except OSError:
            raise ValueError(
                f"{argument} {format_value(text)} is a path in the working directory, which has "
                "been deleted: give the whole path"
            ) from None
