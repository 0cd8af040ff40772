"""Files of weights, written whole or not at all."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable

__all__ = ["write_weights"]


def write_weights(save: Callable[[str], None], path: str | os.PathLike[str]) -> None:
    """Writes weights; what was there before stays until the new file is whole.

    Args:
        save: writes them to a path, as the `save_weights` of Keras does.
        path: where they go; ends in ".weights.h5".

    Raises:
        OSError: they cannot be written; names the file.
    """
    path = os.path.realpath(path)
    directory, name = os.path.split(path)
    # Keras looks at the end of the name.
    temporary = os.path.join(directory, f".{os.getpid()}.{name}")
    try:
        save(temporary)
        os.replace(temporary, path)
    except OSError as error:
        if error.errno is None:
            raise
        # HDF5 says where in its memory the bytes were.
        raise OSError(error.errno, os.strerror(error.errno), path) from error
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
