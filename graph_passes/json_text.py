"""JSON as text and as values, with messages in words of JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

__all__ = [
    "list_entry",
    "number",
    "number_entry",
    "object_entry",
    "parse_json",
    "shown",
    "text",
    "text_entry",
    "whole",
    "whole_entry",
]

_SHOWN_CHARS = 60
_MOST = 2**63


def parse_json(
    text: str | bytes,
    object_pairs_hook: Callable[[list[tuple[str, Any]]], Any] | None = None,
    *,
    finite: bool = True,
) -> Any:
    """Reads a JSON text.

    Args:
        text: the text, or its bytes in UTF-8.
        object_pairs_hook: makes an object of its entries; by default a dictionary, and an entry
            that stands twice is refused.
        finite: whether `NaN` and `Infinity`, which are not JSON but which Python writes, are
            refused; whoever checks every number can name the entry.

    Raises:
        ValueError: it is not JSON; the message says what is wrong, and where.
    """
    try:
        return json.loads(
            # Some editors write a byte order mark.
            text.removeprefix("\ufeff") if isinstance(text, str) else text,
            object_pairs_hook=object_pairs_hook or _unique_entries,
            parse_constant=_refuse_constant if finite else None,
        )
    except json.JSONDecodeError:
        raise
    except UnicodeDecodeError as error:
        raise ValueError(f"it is not text in UTF-8, from byte {error.start} on") from None
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    except ValueError as error:
        if "integer string conversion" in str(error):
            raise ValueError("it has a number of thousands of digits") from None
        raise


def _unique_entries(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    entries = dict(pairs)
    if len(entries) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"an object has the entry {shown(twice)} twice")
    return entries


def _refuse_constant(text: str) -> float:
    raise ValueError(f"{text} is no number of JSON")


def shown(value: object) -> str:
    """Formats a value as JSON writes it, short enough for a message."""
    value = value.item() if isinstance(value, np.generic) else value
    if isinstance(value, list | tuple):
        return "a list"
    if isinstance(value, dict):
        return "an object"
    # Only the beginning of a long text is looked at.
    value = value[: _SHOWN_CHARS + 1] if isinstance(value, str) else value
    try:
        text = json.dumps(value) if isinstance(value, str | int | float | None) else repr(value)
    except ValueError:
        return "a number of thousands of digits"
    return text if len(text) <= _SHOWN_CHARS else f"{text[: _SHOWN_CHARS - 1]}…"


def number(value: object, what: str) -> float:
    """Reads a finite number.

    Raises:
        ValueError: it is something else; the message calls it `what`.
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{what} is {shown(value)}: it must be a number")
    if abs(value) > 1e300 or not math.isfinite(value):
        raise ValueError(f"{what} is {shown(value)}: it must be finite")
    return float(value)


def whole(value: object, what: str, least: int = 0) -> int:
    """Reads a whole number that is not less than another one, and less than 2**63.

    Raises:
        ValueError: it is something else; the message calls it `what`.
    """
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value < _MOST:
        raise ValueError(f"{what} is {shown(value)}: it must be a whole number from {least} on")
    return value


def text(value: object, what: str) -> str:
    """Reads a text that UTF-8 can write.

    Raises:
        ValueError: it is something else; the message calls it `what`.
    """
    if not isinstance(value, str):
        raise ValueError(f"{what} is {shown(value)}: it must be a text")
    _check_writable(value, what)
    return value


def number_entry(value: Mapping[str, Any], name: str) -> float:
    """Reads an entry that is a finite number.

    Raises:
        KeyError, ValueError: there is none, or it is something else.
    """
    return number(value[name], repr(name))


def whole_entry(value: Mapping[str, Any], name: str, least: int = 0) -> int:
    """Reads an entry that is a whole number.

    Raises:
        KeyError, ValueError: there is none, or it is something else.
    """
    return whole(value[name], repr(name), least)


def text_entry(value: Mapping[str, Any], name: str) -> str:
    """Reads an entry that is a text, and that UTF-8 can write.

    Raises:
        KeyError, ValueError: there is none, or it is something else.
    """
    return text(value[name], repr(name))


def list_entry(value: Mapping[str, Any], name: str) -> list[Any]:
    """Reads an entry that is a list.

    Raises:
        KeyError, ValueError: there is none, or it is something else.
    """
    items = value[name]
    if not isinstance(items, list):
        raise ValueError(f"{name!r} is {shown(items)}: it must be a list")
    return items


def object_entry(value: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Reads an entry that is an object.

    Raises:
        KeyError, ValueError: there is none, or it is something else.
    """
    item = value[name]
    if not isinstance(item, dict):
        raise ValueError(f"{name!r} is {shown(item)}: it must be an object")
    for key in item:
        _check_writable(key, f"a name in {name!r}")
    return item


def _check_writable(text: str, what: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError(f"{what} is {shown(text)}, which is half a character") from None
