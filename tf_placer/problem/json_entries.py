"""Strict reading of JSON values, with messages that name the entry."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Sequence
from typing import Any

import numpy as np

from tf_placer.problem.problem_error import ProblemError, shown

__all__ = [
    "check_all_entries",
    "check_entries",
    "list_at",
    "object_with_unique_entries",
    "whole_number",
    "whole_numbers",
]

# Under this key, which no JSON object has, stands the name of an entry that an object has twice.
_TWICE = None


def object_with_unique_entries(pairs: list[tuple[str, Any]]) -> dict[str | None, Any]:
    """Makes a JSON object of its entries; for `json.loads(..., object_pairs_hook=)`.

    An entry that stands twice is left for `check_entries` to find, which knows where it is.
    """
    entries: dict[str | None, Any] = dict(pairs)
    if len(entries) < len(pairs):
        names = [name for name, _ in pairs]
        entries[_TWICE] = next(name for name in names if names.count(name) > 1)
    return entries


def check_all_entries(
    items: Sequence[Any], where: str, required: Collection[str], optional: Collection[str] = ()
) -> None:
    """Checks the entries of each object of a list, which `where` names; see `check_entries`.

    Raises:
        ProblemError: one is no object, or has other entries.
    """
    least, most = frozenset(required), frozenset((*required, *optional))
    for index, item in enumerate(items):
        if type(item) is not dict or (item.keys() != least and item.keys() != most):
            check_entries(item, f"{where}[{index}]", required, optional)


def check_entries(
    item: object, where: str, required: Collection[str], optional: Collection[str] = ()
) -> None:
    """Checks that a value is an object with all required entries and no unknown ones.

    Raises:
        ProblemError: it is not; the message names it as `where`.
    """
    if not isinstance(item, dict):
        raise ProblemError(f"{where} is {shown(item)}: it must be an object")
    if _TWICE in item:
        raise ProblemError(f"{where} has the entry {shown(item[_TWICE])} twice")
    for name in item:
        if name not in required and name not in optional:
            raise ProblemError(f"{where} has an unknown entry {shown(name)}")
    for name in required:
        if name not in item:
            raise ProblemError(f"{where} has no entry {shown(name)}")


def list_at(value: object, where: str) -> list[Any]:
    """Checks that a value is a list.

    Raises:
        ProblemError: it is not; the message names it as `where`.
    """
    if not isinstance(value, list):
        raise ProblemError(f"{where} is {shown(value)}: it must be a list")
    return value


def whole_numbers(values: Sequence[Any], entry: Callable[[int], str]) -> np.ndarray:
    """Reads whole numbers, each of which may be written as 12e9.

    Args:
        values: the values.
        entry: what a message calls the value of an index.

    Returns:
        int64 [len(values)].

    Raises:
        ProblemError: one is something else.
    """
    if {int}.issuperset(map(type, values)):
        with contextlib.suppress(OverflowError):
            return np.array(values, np.int64)
    return np.array(
        [
            whole_number(value, lambda index=index: entry(index))  # type: ignore[misc]
            for index, value in enumerate(values)
        ],
        np.int64,
    )


def whole_number(value: object, entry: Callable[[], str]) -> int:
    """Reads a whole number, which may be written as 12e9.

    Args:
        value: the value.
        entry: gives what a message calls it.

    Returns:
        The number, between -2**63 and 2**63.

    Raises:
        ProblemError: it is something else.
    """
    if type(value) is int or (type(value) is float and value.is_integer()):
        if abs(value) < 2**63:
            return int(value)
        raise ProblemError(f"{entry()} is {shown(value)}: it must be less than 2**63")
    raise ProblemError(f"{entry()} is {shown(value)}: it must be a whole number")
