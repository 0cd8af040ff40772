"""Files of weights, written whole or not at all."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable
from typing import Any

from tf_placer.temporary_directory import temporary_directory

__all__ = ["most_bytes", "write_weights"]

# What HDF5 writes beside the numbers, of each variable and of all.
_HEADER_BYTES, _FILE_BYTES = 2**14, 2**16
# Some keep the state of an optimizer, too: up to two numbers per weight.
_COPIES = 3


def most_bytes(weights: Iterable[Any]) -> int:
    """Computes how large a file with some variables may become."""
    each = [math.prod(weight.shape) * 8 for weight in weights]
    return _FILE_BYTES + sum(_COPIES * (size + _HEADER_BYTES) for size in each)


def write_weights(
    save: Callable[[str], None], path: str | os.PathLike[str], size_bytes: int = 0
) -> None:
    """Writes weights; what was there before stays until the new file is whole.

    Args:
        save: writes them to a path, as the `save_weights` of Keras does.
        path: where they go; ends in ".weights.h5".
        size_bytes: how much room there must be.

    Raises:
        OSError: they cannot be written; names the file.
    """
    target = os.path.realpath(path)
    try:
        # Beside the file: a rename is atomic within one file system only.
        with temporary_directory(os.path.dirname(target)) as directory:
            _check_room(os.path.join(directory, "room"), size_bytes)
            # Keras looks at the end of the name.
            new = os.path.join(directory, "new.weights.h5")
            save(new)
            os.replace(new, target)
    except OSError as error:
        if error.errno is None:
            raise
        # HDF5 says where in its memory the bytes were.
        raise OSError(error.errno, os.strerror(error.errno), os.fspath(path)) from error


def _check_room(path: str, size_bytes: int) -> None:
    """Makes sure that there is room for a file: HDF5 ends the process with SIGSEGV where it is not.

    Raises:
        OSError: there is too little.
    """
    file = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    try:
        if size_bytes:
            os.posix_fallocate(file, 0, size_bytes)
    finally:
        os.close(file)
        os.unlink(path)
