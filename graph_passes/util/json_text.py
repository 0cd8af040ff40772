"""Parsing JSON text and formatting its values for messages."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

__all__ = ["format_value", "parse_json"]

_SHOWN_CHARS = 60
# The key for the name of a duplicate entry; keys of JSON objects are never None.
_DUPLICATE = None


def parse_json(text: str | bytes, *, finite: bool = True) -> Any:
    """Parses a JSON text.

    Args:
        text: the text, or its bytes in UTF-8.
        finite: refuses `NaN` and `Infinity`, which are not JSON but which Python writes. Callers
            that check every number pass False, because their messages can name the entry.

    Raises:
        ValueError: the text is not JSON, or an object has an entry twice; the message tells the
            place.
    """
    twice = False

    def build_object(pairs: list[tuple[Any, Any]]) -> dict[Any, Any]:
        nonlocal twice
        entries = dict(pairs)
        if len(entries) < len(pairs):
            twice = True
            names = [name for name, _ in pairs]
            entries[_DUPLICATE] = next(name for name in names if names.count(name) > 1)
        return entries

    try:
        value = json.loads(
            # Some editors write a byte order mark.
            text.removeprefix("\ufeff") if isinstance(text, str) else text,
            object_pairs_hook=build_object,
            parse_constant=_refuse_constant if finite else None,
        )
        if twice:
            _refuse_duplicates(value, "")
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
    return value


def _refuse_duplicates(value: Any, place: str) -> None:
    """Raises an error about the first object that has an entry twice, if there is one."""
    if isinstance(value, dict):
        if _DUPLICATE in value:
            raise ValueError(
                f"{place or 'it'} has the entry {format_value(value[_DUPLICATE])} twice"
            )
        for name, item in value.items():
            _refuse_duplicates(item, f"{place}.{name}" if place else name)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            _refuse_duplicates(item, f"{place}[{index}]")


def _refuse_constant(text: str) -> float:
    raise ValueError(f"{text} is no number of JSON")


def format_value(value: object) -> str:
    """Formats a value as JSON writes it, short enough for a message."""
    value = value.item() if isinstance(value, np.generic) else value
    if isinstance(value, list | tuple):
        return "a list"
    if isinstance(value, dict):
        return "an object"
    # A long text need not be encoded as a whole.
    value = value[: _SHOWN_CHARS + 1] if isinstance(value, str) else value
    try:
        text = json.dumps(value) if isinstance(value, str | int | float | None) else repr(value)
    except ValueError:
        return "a number of thousands of digits"
    return text if len(text) <= _SHOWN_CHARS else f"{text[: _SHOWN_CHARS - 1]}…"
