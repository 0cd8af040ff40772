"""Weight files, written atomically."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable
from typing import Any

from tf_placer.temporary_directory import temporary_directory

__all__ = ["compute_max_bytes", "write_weights"]

# Upper bounds of the metadata that HDF5 writes for each variable and for the file.
_HEADER_BYTES, _FILE_BYTES = 2**14, 2**16
# Files may include the state of an optimizer: up to two numbers per weight.
_COPIES = 3


def compute_max_bytes(weights: Iterable[Any]) -> int:
    """Computes an upper bound of the size of a file with these variables."""
    each = [math.prod(weight.shape) * 8 for weight in weights]
    return _FILE_BYTES + sum(_COPIES * (size + _HEADER_BYTES) for size in each)


def write_weights(
    save: Callable[[str], None], path: str | os.PathLike[str], size_bytes: int = 0
) -> None:
    """Writes weights atomically: an existing file stays until the new one is complete.

    Args:
        save: writes the weights to a path, as `save_weights` of Keras.
        path: the file; its name ends in ".weights.h5".
        size_bytes: required free space.

    Raises:
        OSError: the weights cannot be written; names the file.
    """
    target = os.path.realpath(path)
    try:
        # Use a directory beside the file: a rename is atomic within one file system only.
        with temporary_directory(os.path.dirname(target)) as directory:
            _check_free_space(os.path.join(directory, "room"), size_bytes)
            # Keras requires this suffix.
            new = os.path.join(directory, "new.weights.h5")
            save(new)
            os.replace(new, target)
    except OSError as error:
        if error.errno is None:
            raise
        # Replace the message of HDF5, which contains memory addresses.
        raise OSError(error.errno, os.strerror(error.errno), os.fspath(path)) from error


def _check_free_space(path: str, size_bytes: int) -> None:
    """Checks for free space, because HDF5 crashes with SIGSEGV on a full disk.

    Raises:
        OSError: there is too little space.
    """
    file = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    try:
        if size_bytes:
            os.posix_fallocate(file, 0, size_bytes)
    finally:
        os.close(file)
        os.unlink(path)
