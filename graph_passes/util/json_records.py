"""Values from JSON, checked by their types, with messages that name the entry."""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import functools
import itertools
import math
import types
import typing
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, TypeVar

from graph_passes.util.json_text import format_value

__all__ = [
    "POSITIVE",
    "InvalidEntryError",
    "Rule",
    "check_entries",
    "check_format",
    "read_record",
    "read_value",
]

_Record = TypeVar("_Record")
_Reader = Callable[[Any], Any]


class InvalidEntryError(ValueError):
    """The error for an invalid value in JSON; its message names the entry."""

    def __init__(self, wrong: str, path: str = "", what: str = "it") -> None:
        """Makes the error.

        Args:
            wrong: the end of the message, such as "is 7: it must be a list".
            path: the entry within the document, such as ".devices[1].cores".
            what: the name of the whole document in messages.
        """
        super().__init__(wrong, path, what)
        self._wrong, self._path, self._what = wrong, path, what

    def within(self, step: str, what: str = "it") -> InvalidEntryError:
        """Returns the error for the enclosing value, whose entry ".name" or "[3]" is invalid."""
        return InvalidEntryError(self._wrong, step + self._path, what)

    def __str__(self) -> str:
        """Returns the message."""
        return f"{self._path.removeprefix('.') or self._what} {self._wrong}"


@dataclasses.dataclass(frozen=True)
class Rule:
    """A condition on the values of a field, beside its type: `Annotated[float, Rule(...)]`.

    Attributes:
        holds: returns whether a value of the type meets the condition.
        wanted: the condition in messages, after "it must be".
    """

    holds: Callable[[Any], object]
    wanted: str


POSITIVE = Rule(lambda number: number > 0, "greater than 0")
"""The rule for numbers that are divisors or arguments of logarithms."""


def read_record(
    record_type: type[_Record], value: object, what: str = "it", *, exact: bool = False
) -> _Record:
    """Builds a dataclass from a JSON object with its fields.

    Supported types of fields: str, float (finite), int (not negative; 12e9 is accepted), bool,
    enumerations and literals, `list[Any]`, tuples, mappings from str, other dataclasses, and unions
    of one of these with None, str or both. `Annotated` adds a `Rule`, or a function that reads the
    field instead. A class that defines `from_json` is read by it. A field with a default may be
    missing. A field whose name would be a keyword ends with "_".

    Args:
        record_type: the dataclass.
        value: the object, as `parse_json` returns it.
        what: the name of the value in messages.
        exact: refuses entries that are no fields, which files of later versions may have.

    Raises:
        ValueError: the value is not such an object.
    """
    record: _Record = _read(_record_reader(typing.cast(Any, record_type), exact), value, what)
    return record


def read_value(kind: Any, value: object, what: str) -> Any:
    """Reads a value of any type that a field of `read_record` may have.

    Raises:
        ValueError: the value is of another type.
    """
    return _read(_reader(kind, False), value, what)


def check_format(value: Any, number: int, what: str = "it") -> None:
    """Checks that a value is an object whose entry "format" is this number.

    Raises:
        ValueError: the value is another one.
    """
    check_entries(value, ("format",), what=what)
    _read(_choice_reader((number,)), value["format"], "format")


def check_entries(
    value: object,
    required: Collection[str],
    optional: Collection[str] | None = None,
    what: str = "it",
) -> None:
    """Checks that a value is an object with all required entries.

    Args:
        value: the value.
        required: the entries that it must have.
        optional: the other entries that it may have; None allows any.
        what: the name of the value in messages.

    Raises:
        ValueError: the value is no such object.
    """
    if not isinstance(value, dict):
        raise InvalidEntryError(f"is {format_value(value)}: it must be an object", what=what)
    if optional is not None:
        for name in value:
            if name not in required and name not in optional:
                expected = ", ".join((*required, *optional))
                wrong = f"has an unknown entry {format_value(name)}: expected {expected}"
                raise InvalidEntryError(wrong, what=what)
    for name in required:
        if name not in value:
            raise InvalidEntryError(f"has no entry {format_value(name)}", what=what)


def _read(reader: _Reader, value: object, what: str) -> Any:
    try:
        return reader(value)
    except InvalidEntryError as error:
        raise error.within("", what) from None


@functools.cache
def _reader(kind: Any, exact: bool) -> _Reader:
    """Builds the function that reads values of a type, and raises `InvalidEntryError`."""
    if kind in _PLAIN:
        return _PLAIN[kind]
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is typing.Annotated:
        return _rule_reader(arguments[0], arguments[1], exact)
    if origin in (types.UnionType, typing.Union):
        return _union_reader(arguments, exact)
    if origin is typing.Literal:
        return _choice_reader(arguments)
    if origin is tuple:
        return _tuple_reader(arguments, exact)
    if origin is not None:
        return _mapping_reader(_reader(arguments[1], exact))
    if issubclass(kind, enum.Enum):
        choose = _choice_reader([each.value for each in kind])
        return lambda value: kind(choose(value))
    from_json: _Reader | None = getattr(kind, "from_json", None)
    return from_json or _record_reader(kind, exact)


@functools.cache
def _record_reader(record_type: Any, exact: bool) -> _Reader:
    kinds = typing.get_type_hints(record_type, include_extras=True)
    fields: list[tuple[str, str, _Reader]] = []
    required: list[str] = []
    others: list[str] = []
    for field in dataclasses.fields(record_type):
        entry = field.name.removesuffix("_")
        fields.append((entry, field.name, _reader(kinds[field.name], exact)))
        is_required = field.default is field.default_factory is dataclasses.MISSING
        (required if is_required else others).append(entry)
    optional = others if exact else None

    def read(value: Any) -> Any:
        if isinstance(value, record_type):
            return value
        check_entries(value, required, optional)
        found = {}
        for entry, name, read_field in fields:
            if entry in value:
                try:
                    found[name] = read_field(value[entry])
                except InvalidEntryError as error:
                    raise error.within(f".{entry}") from None
        return record_type(**found)

    return read


def _rule_reader(kind: Any, rule: Rule | _Reader, exact: bool) -> _Reader:
    if not isinstance(rule, Rule):
        return rule
    read_any = _reader(kind, exact)

    def read(value: Any) -> Any:
        result = read_any(value)
        if not rule.holds(result):
            raise InvalidEntryError(f"is {format_value(value)}: it must be {rule.wanted}")
        return result

    return read


def _union_reader(kinds: Sequence[Any], exact: bool) -> _Reader:
    others = [kind for kind in kinds if kind is not types.NoneType]
    or_text = len(others) > 1
    (read_other,) = (_reader(kind, exact) for kind in others if not (or_text and kind is str))

    def read(value: Any) -> Any:
        if value is None and len(others) < len(kinds):
            return None
        return _parse_str(value) if or_text and isinstance(value, str) else read_other(value)

    return read


def _choice_reader(choices: Sequence[Any]) -> _Reader:
    names = [format_value(each) for each in choices]
    wanted = f"{', '.join(names[:-1])} or {names[-1]}" if names[1:] else names[0]

    def read(value: Any) -> Any:
        for each in choices:
            if each == value and isinstance(value, bool) == isinstance(each, bool):
                return each
        raise InvalidEntryError(f"is {format_value(value)}: it must be {wanted}")

    return read


def _tuple_reader(kinds: tuple[Any, ...], exact: bool) -> _Reader:
    readers = [_reader(kind, exact) for kind in kinds if kind is not Ellipsis]
    count = None if Ellipsis in kinds else len(kinds)

    def read(value: Any) -> tuple[Any, ...]:
        given = _parse_list(value)
        if count not in (None, len(given)):
            raise InvalidEntryError(f"has {len(given)} items: it must have {count}")
        if count is None:
            with contextlib.suppress(InvalidEntryError):  # The loop below finds the item.
                return tuple(map(readers[0], given))
        items: list[Any] = []
        try:
            for read_item, item in zip(itertools.cycle(readers), given, strict=False):
                items.append(read_item(item))
        except InvalidEntryError as error:
            raise error.within(f"[{len(items)}]") from None
        return tuple(items)

    return read


def _mapping_reader(read_item: _Reader) -> _Reader:
    def read(value: Any) -> Mapping[str, Any]:
        if not isinstance(value, dict):
            raise InvalidEntryError(f"is {format_value(value)}: it must be an object")
        items = {}
        for name, item in value.items():
            try:
                _parse_str(name)
                items[name] = read_item(item)
            except InvalidEntryError as error:
                raise error.within(f"[{format_value(name)}]") from None
        return items

    return read


def _parse_bool(value: object) -> bool:
    if not isinstance(value, bool):
        raise InvalidEntryError(f"is {format_value(value)}: it must be true or false")
    return value


def _parse_int(value: object) -> int:
    if type(value) is int and 0 <= value < 2**63:
        return value
    whole = int(value) if isinstance(value, float) and value.is_integer() else value
    if isinstance(whole, bool) or not isinstance(whole, int) or whole < 0:
        raise InvalidEntryError(f"is {format_value(value)}: it must be a whole number from 0 on")
    if whole >= 2**63:
        raise InvalidEntryError(f"is {format_value(value)}: it must be less than 2**63")
    return whole


def _parse_float(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidEntryError(f"is {format_value(value)}: it must be a number")
    if abs(value) > 1e300 or not math.isfinite(value):
        raise InvalidEntryError(f"is {format_value(value)}: it must be finite")
    return float(value)


def _parse_str(value: object) -> str:
    if not isinstance(value, str):
        raise InvalidEntryError(f"is {format_value(value)}: it must be a text")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise InvalidEntryError(f"is {format_value(value)}, which is half a character") from None
    return value


def _parse_list(value: object) -> Sequence[Any]:
    # Documents that were never written to a file still have tuples.
    if not isinstance(value, list | tuple):
        raise InvalidEntryError(f"is {format_value(value)}: it must be a list")
    return value


_PLAIN: dict[Any, _Reader] = {
    bool: _parse_bool,
    int: _parse_int,
    float: _parse_float,
    str: _parse_str,
    list[Any]: _parse_list,
    Any: lambda value: value,
}
