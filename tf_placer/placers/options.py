"""Options of placers: frozen dataclasses list them, mappings override their defaults."""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Mapping
from typing import Any, Literal, TypeVar

from graph_passes.util.messages import quote
from graph_passes.util.suggestions import suggest
from tf_placer.placers.former_names import rename_former

__all__ = ["Setting", "config_from_options", "list_settings"]

T = TypeVar("T")


@dataclasses.dataclass(frozen=True)
class Setting:
    """A setting of a placer.

    Attributes:
        name: the name of the option.
        value: its value.
        help: its line of help.
        part: the name of the component that the setting belongs to.
    """

    name: str
    value: object
    help: str
    part: str


def list_settings(part: str, config: Any) -> list[Setting]:
    """Lists the settings in a configuration.

    Args:
        part: the name of the component that the configuration belongs to.
        config: a dataclass whose fields are annotated with their lines of help.
    """
    helps = typing.get_type_hints(type(config), include_extras=True)
    return [
        Setting(
            field.name,
            getattr(config, field.name),
            " ".join(getattr(helps[field.name], "__metadata__", ())),
            part,
        )
        for field in dataclasses.fields(config)
    ]


_KINDS = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}
_BOOLEANS = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}


def config_from_options(
    config_type: type[T] | None, options: Mapping[str, object] | None, *, owner: str
) -> T | None:
    """Makes a configuration from options that override its defaults.

    Args:
        config_type: a dataclass with fields of type bool, int, float, str or a Literal of strings,
            or one of these or None, or a tuple of any number of one of these; None if there are no
            settings.
        options: values by field name. Strings, as from a command line, are converted to the
            field's type; members of tuples are separated by commas.
        owner: the owner of the options, for messages.

    Returns:
        The configuration, or None without a `config_type`.

    Raises:
        ValueError: an option is unknown, or its value is invalid.
    """
    kinds = {} if config_type is None else typing.get_type_hints(config_type)
    values = {}
    for name, value in rename_former(options or {}, owner=owner).items():
        if name not in kinds:
            known = ", ".join(sorted(kinds)) or "none"
            raise ValueError(
                f"{owner} has no option {quote(name)}{suggest(name, kinds)}; its options are: "
                f"{known}"
            )
        try:
            values[name] = _convert(value, kinds[name])
        except ValueError as error:
            raise ValueError(f"option {name!r} of {owner} {error}") from None
    return None if config_type is None else config_type(**values)


def _convert(value: object, kind: Any) -> object:
    """Converts the value to the given type."""
    if types.NoneType in typing.get_args(kind):
        if value is None or value == "none":
            return None
        (kind,) = (member for member in typing.get_args(kind) if member is not types.NoneType)
    if typing.get_origin(kind) is tuple:
        members = value.split(",") if isinstance(value, str) else value
        if not isinstance(members, list | tuple):
            raise ValueError(f"must be values with commas between them, not {quote(value)}")
        return tuple(_convert(member, typing.get_args(kind)[0]) for member in members if member)
    if typing.get_origin(kind) is Literal:
        choices = typing.get_args(kind)
        if value not in choices:
            raise ValueError(f"must be one of {', '.join(choices)}, not {quote(value)}")
        return value
    if isinstance(value, kind) and isinstance(value, bool) == (kind is bool):
        return value
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if isinstance(value, str):
        if kind is bool and value.lower() in _BOOLEANS:
            return _BOOLEANS[value.lower()]
        if kind in (int, float):
            try:
                return kind(value)
            except ValueError:
                pass
    raise ValueError(f"must be {_KINDS[kind]}, not {quote(value)}")
