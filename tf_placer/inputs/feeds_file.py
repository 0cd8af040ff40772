"""Reads files with a value for each placeholder."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping

import numpy as np

from graph_passes.errors import GraphError

__all__ = ["read_feeds"]


def read_feeds(path: str) -> dict[str, np.ndarray]:
    """Reads the values of placeholders, by name.

    Args:
        path: an `.npz` file.

    Raises:
        GraphError: the file is not an `.npz` file.
        OSError: the file cannot be read; the message names it.
    """
    try:
        file = open(path, "rb")  # noqa: SIM115
    except OSError as error:
        raise type(error)(f"cannot read the feeds {path!r}: {error.strerror or error}") from error
    try:
        with file:
            if not zipfile.is_zipfile(file):
                raise ValueError("no zip archive")
            file.seek(0)
            with np.load(file, allow_pickle=False) as arrays:
                return {name: _read_array(arrays, name) for name in arrays.files}
    except Exception as error:  # A damaged file makes NumPy and zipfile raise almost any exception.
        # NumPy takes an entry without its header for pickled Python objects.
        reason = "it does not begin like one" if "allow_pickle" in str(error) else error
        raise GraphError(f"the feeds {path!r} are not an .npz file: {reason}") from error


def _read_array(arrays: Mapping[str, np.ndarray], name: str) -> np.ndarray:
    try:
        array = arrays[name]
    except (MemoryError, OverflowError):
        raise ValueError(f"{name!r} says that it is larger than the memory") from None
    except ValueError as error:
        if "allow_pickle" in str(error):
            raise ValueError(f"{name!r} holds objects of Python, not numbers or texts") from None
        raise
    if not isinstance(array, np.ndarray):
        raise ValueError(f"{name!r} is no array")
    return array
