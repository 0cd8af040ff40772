"""Finds the live objects of a class in this process."""

from __future__ import annotations

import gc
from typing import Any

__all__ = ["find_living"]


def find_living(*kinds: type) -> list[Any]:
    """Finds all live objects of some classes."""
    # `isinstance` would call the `__class__` property of some objects, which may have effects.
    return [each for each in gc.get_objects() if issubclass(type(each), kinds)]
