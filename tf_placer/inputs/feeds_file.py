"""Files of values by placeholder."""

from __future__ import annotations

import zipfile
import zlib

import numpy as np

from graph_passes.errors import GraphError

__all__ = ["read_feeds"]


def read_feeds(path: str) -> dict[str, np.ndarray]:
    """Reads values by placeholder.

    Args:
        path: an `.npz` file.

    Raises:
        GraphError: it cannot be read.
    """
    try:
        with open(path, "rb") as file:
            if not zipfile.is_zipfile(file):
                raise ValueError("no zip archive")
            file.seek(0)
            with np.load(file, allow_pickle=False) as arrays:
                return {name: arrays[name] for name in arrays.files}
    except OSError as error:
        raise GraphError(f"cannot read the feeds {path!r}: {error.strerror or error}") from error
    except (ValueError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise GraphError(f"the feeds {path!r} are not an .npz file: {error}") from error
