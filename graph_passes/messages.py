"""Messages, and what they quote, that stay short."""

from __future__ import annotations

__all__ = ["quoted", "shortened"]

_LONGEST, _LONGEST_NAME = 1200, 60


def shortened(text: str) -> str:
    """Leaves out the middle of a message that is too long to be read."""
    if len(text) <= _LONGEST:
        return text
    return f"{text[: _LONGEST * 2 // 3]} … {text[-_LONGEST // 3 :]}"


def quoted(value: object) -> str:
    """Writes a value as Python does, a text in quotes; of one that is long only the beginning."""
    if isinstance(value, str) and len(value) > _LONGEST_NAME:
        return f"{value[: _LONGEST_NAME - 1]!r}…"
    try:
        text = repr(value)
    except ValueError:
        return "a number of thousands of digits"
    return text if len(text) <= 2 * _LONGEST_NAME else f"{text[: _LONGEST_NAME - 1]}…"
