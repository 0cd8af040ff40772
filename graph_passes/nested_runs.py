"""Recursion beyond Python's limit on nested calls."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, TypeVar

__all__ = ["Nested", "run_nested"]

_Result = TypeVar("_Result")

#: A recursive computation, which yields each computation whose result it needs.
Nested = Generator["Nested[Any]", Any, _Result]


def run_nested(computation: Nested[_Result]) -> _Result:
    """Runs a recursive computation on an explicit stack.

    Functions of a graph may call each other hundreds of levels deep, and Python's limit is a
    thousand calls.

    Args:
        computation: a generator in which `yield inner(x)` evaluates the computation `inner(x)` and
            returns its result.

    Returns:
        The result of the computation.

    Example:
        >>> def sum_up_to(n):
        ...     return n + (yield sum_up_to(n - 1)) if n else 0
        >>> run_nested(sum_up_to(10_000))
        50005000
    """
    stack: list[Nested[Any]] = [computation]
    result: Any = None
    error: Exception | None = None
    while True:
        try:
            inner = stack[-1].send(result) if error is None else stack[-1].throw(error)
        except StopIteration as end:
            result, error = end.value, None
            stack.pop()
            if not stack:
                return result
        except Exception as raised:
            result, error = None, raised
            stack.pop()
            if not stack:
                raise
        else:
            stack.append(inner)
            result, error = None, None
