"""Checks of settings."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["check_fields"]


def check_fields(
    config: Any, names: tuple[str, ...], is_valid: Callable[[float], bool], what: str
) -> None:
    """Refuses settings outside their range; None is not looked at.

    Args:
        config: a dataclass.
        names: of the fields to look at.
        is_valid: whether a number may be a value of them; must say no to NaN.
        what: what they must be, for the message.

    Raises:
        ValueError: a value is not valid.
    """
    for name in names:
        value = getattr(config, name)
        if value is not None and not is_valid(value):
            raise ValueError(f"{name} must be {what}, not {value}")
