"""JSON as text, with messages in words of JSON."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

__all__ = ["parse_json", "shown"]

_SHOWN_CHARS = 60
# Under this key, which no JSON object has, stands the name of an entry that an object has twice.
_TWICE = None


def parse_json(text: str | bytes, *, finite: bool = True) -> Any:
    """Reads a JSON text.

    Args:
        text: the text, or its bytes in UTF-8.
        finite: whether `NaN` and `Infinity`, which are not JSON but which Python writes, are
            refused; whoever checks every number can name the entry.

    Raises:
        ValueError: it is not JSON, or an object has an entry twice; the message says what is wrong,
            and where.
    """
    twice = False

    def as_object(pairs: list[tuple[Any, Any]]) -> dict[Any, Any]:
        nonlocal twice
        entries = dict(pairs)
        if len(entries) < len(pairs):
            twice = True
            names = [name for name, _ in pairs]
            entries[_TWICE] = next(name for name in names if names.count(name) > 1)
        return entries

    try:
        value = json.loads(
            # Some editors write a byte order mark.
            text.removeprefix("\ufeff") if isinstance(text, str) else text,
            object_pairs_hook=as_object,
            parse_constant=_refuse_constant if finite else None,
        )
        if twice:
            _refuse_twice(value, "")
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


def _refuse_twice(value: Any, place: str) -> None:
    """Raises an error about the first object that has an entry twice, if there is one."""
    if isinstance(value, dict):
        if _TWICE in value:
            raise ValueError(f"{place or 'it'} has the entry {shown(value[_TWICE])} twice")
        for name, item in value.items():
            _refuse_twice(item, f"{place}.{name}" if place else name)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            _refuse_twice(item, f"{place}[{index}]")


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
