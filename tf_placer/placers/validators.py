"""Validators of settings."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["check_fields"]


def check_fields(
    config: Any, names: tuple[str, ...], is_valid: Callable[[float], bool], expected: str
) -> None:
    """Checks that settings are within their range; None passes.

    Args:
        config: a dataclass.
        names: names of the fields to check.
        is_valid: returns whether a number is in the range; must return False for NaN.
        expected: the range, for the message.

    Raises:
        ValueError: a value is not valid.
    """
    for name in names:
        value = getattr(config, name)
        if value is not None and not is_valid(value):
            raise ValueError(f"{name} must be {expected}, not {value}")
