"""A pause of garbage collection."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator

__all__ = ["pause_garbage_collection"]


@contextlib.contextmanager
def pause_garbage_collection() -> Iterator[None]:
    """Pauses garbage collection, for code that makes many objects and keeps them.

    Python repeatedly looks for garbage among all objects, which for a large graph takes longer
    than making the objects. Nested pauses end with the outermost one.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
