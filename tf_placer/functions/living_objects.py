"""Objects of this process, found by their class."""

from __future__ import annotations

import gc
from typing import Any

__all__ = ["find_living"]


def find_living(*kinds: type) -> list[Any]:
    """Finds all objects of some classes that anybody in this process has."""
    # Some objects answer when they are asked for their class.
    return [each for each in gc.get_objects() if issubclass(type(each), kinds)]
