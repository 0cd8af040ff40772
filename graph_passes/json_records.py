"""Dataclasses from JSON, each field checked by its type, with messages in words of JSON."""

from __future__ import annotations

import dataclasses
import enum
import functools
import types
import typing
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from graph_passes.json_text import number, shown, text, whole

__all__ = ["read_record", "wrong_value"]

_Record = TypeVar("_Record")


def read_record(record_type: type[_Record], value: object, what: str = "it") -> _Record:
    """Makes a dataclass of a JSON object with its fields.

    A field may be text, a number (finite), a whole number (not negative), a truth value, an
    enumeration or a choice of texts by value, a tuple, a mapping from texts, another dataclass, or
    None or one of these. A class with a `from_json` of its own is read by that. Entries that are no
    fields, as later versions may have, are ignored; a field with a default may be missing.

    Args:
        record_type: the dataclass.
        value: as `json.loads` gives it.
        what: what messages call the value.

    Raises:
        KeyError, TypeError, ValueError: the value is not such an object; see `wrong_value`.
    """
    if not isinstance(value, dict):
        raise ValueError(f"{what} is {shown(value)}: it must be an object")
    fields = {}
    for field in dataclasses.fields(typing.cast(Any, record_type)):
        if field.name in value:
            kind = _types(typing.cast(Any, record_type))[field.name]
            fields[field.name] = _read(kind, value[field.name], repr(field.name))
        elif field.default is field.default_factory is dataclasses.MISSING:
            raise ValueError(f"{what} has no entry {field.name!r}")
    return record_type(**fields)


def wrong_value(error: Exception) -> str:
    """Says what is wrong with a value that could not be read, from the error that it met.

    Args:
        error: a KeyError, TypeError or ValueError.
    """
    if isinstance(error, KeyError):
        return f"it has no entry {error}"
    if isinstance(error, ValueError):
        return str(error)
    return "an entry is of the wrong kind"


@functools.cache
def _types(record_type: Any) -> dict[str, Any]:
    return typing.get_type_hints(record_type)


def _read(kind: Any, value: Any, what: str) -> Any:
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if kind is Any:
        return value
    if origin in (types.UnionType, typing.Union):
        if value is None:
            return None
        (kind,) = (each for each in arguments if each is not types.NoneType)
        return _read(kind, value, what)
    if origin is typing.Literal:
        return _choice(arguments, value, what)
    if origin is tuple:
        return _tuple(arguments, value, what)
    if origin is not None:
        if not isinstance(value, dict):
            raise ValueError(f"{what} is {shown(value)}: it must be an object")
        return {
            text(name, f"a name in {what}"): _read(arguments[1], item, f"{name!r} of {what}")
            for name, item in value.items()
        }
    if issubclass(kind, enum.Enum):
        return kind(_choice([each.value for each in kind], value, what))
    if hasattr(kind, "from_json"):
        return kind.from_json(value)
    if kind in _PLAIN:
        return _PLAIN[kind](value, what)
    return read_record(kind, value, what)


def _truth(value: object, what: str) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"{what} is {shown(value)}: it must be true or false")
    return value


_PLAIN: dict[Any, Callable[[Any, str], Any]] = {bool: _truth, int: whole, float: number, str: text}


def _choice(names: Sequence[str], value: Any, what: str) -> str:
    if not isinstance(value, str) or value not in names:
        either = ", ".join(shown(name) for name in names[:-1])
        raise ValueError(f"{what} is {shown(value)}: it must be {either} or {shown(names[-1])}")
    return value


def _tuple(kinds: tuple[Any, ...], value: Any, what: str) -> tuple[Any, ...]:
    # What was never written has the tuples that it was made of.
    if not isinstance(value, list | tuple):
        raise ValueError(f"{what} is {shown(value)}: it must be a list")
    if kinds[-1] is Ellipsis:
        return tuple(_read(kinds[0], item, f"an item of {what}") for item in value)
    if len(value) != len(kinds):
        raise ValueError(f"{what} has {len(value)} items: it must have {len(kinds)}")
    items = zip(kinds, value, strict=True)
    return tuple(_read(kind, item, f"an item of {what}") for kind, item in items)
