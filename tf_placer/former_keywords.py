"""Former names of keywords, which functions still accept for one version."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import ParamSpec, TypeVar

__all__ = ["accept_former_keywords"]

P = ParamSpec("P")
R = TypeVar("R")


def accept_former_keywords(**names: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Makes a function accept keywords by their former names, with a DeprecationWarning.

    The function raises a TypeError if a value is given by its former name and by today's.

    Args:
        names: today's names by the former names.
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        owner = function.__qualname__.removesuffix(".__init__")

        @functools.wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            former = [name for name in names if name in kwargs]
            for name in former:
                today, value = names[name], kwargs.pop(name)
                if kwargs.get(today) is not None:
                    raise TypeError(f"{owner}() got {name}= and {today}=: write {today}= only")
                kwargs[today] = value
            if former:
                given = ", ".join(f"{name}=" for name in former)
                wanted = ", ".join(f"{names[name]}=..." for name in former)
                text = f"the next version of {owner} has no {given}: write {wanted}"
                warnings.warn(text, DeprecationWarning, stacklevel=2)
            return function(*args, **kwargs)

        return call

    return decorate
