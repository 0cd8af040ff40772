"""Garbage collection, and when it has to wait."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator

__all__ = ["paused_garbage_collection"]


@contextlib.contextmanager
def paused_garbage_collection() -> Iterator[None]:
    """Pauses garbage collection; for code that makes many objects and keeps them.

    Again and again Python looks for garbage among all objects there are, which for a large graph
    takes longer than making them. What has been paused already stays so afterwards.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
