"""Shortening and escaping the text of messages."""

from __future__ import annotations

import unicodedata

__all__ = ["plain_text", "quote", "shorten_text"]

# Control and format characters, surrogates, and ends of lines and paragraphs: terminals execute
# them, they reverse or hide the text around them, or XML forbids them.
_CONTROL_CATEGORIES = ("Cc", "Cf", "Cs", "Zl", "Zp")
_NONCHARACTERS = ("\ufffe", "\uffff")
_MAX_CHARS, _MAX_VALUE_CHARS = 1200, 60


def shorten_text(text: str) -> str:
    """Leaves out the middle of a long message."""
    if len(text) <= _MAX_CHARS:
        return text
    return f"{text[: _MAX_CHARS * 2 // 3]} … {text[-_MAX_CHARS // 3 :]}"


def quote(value: object) -> str:
    """Formats a value as `repr`, and cuts long values."""
    if isinstance(value, str) and len(value) > _MAX_VALUE_CHARS:
        return f"{value[: _MAX_VALUE_CHARS - 1]!r}…"
    try:
        text = repr(value)
    except ValueError:
        return "a number of thousands of digits"
    return text if len(text) <= 2 * _MAX_VALUE_CHARS else f"{text[: _MAX_VALUE_CHARS - 1]}…"


def plain_text(text: str, *, lines: bool = False) -> str:
    r"""Escapes control characters, and others that affect how a text is displayed.

    Text from outside, such as names of operations and lines of logs, must pass through this
    function before it is written to a terminal, a table, a page or a picture.

    Args:
        text: any text.
        lines: keeps line breaks.

    Example:
        >>> print(plain_text("a\x1b[31mb"))
        a\x1b[31mb
    """
    if text.isprintable():
        return text
    return "".join(
        each.encode("unicode_escape").decode() if _is_control(each, lines=lines) else each
        for each in text
    )


def _is_control(character: str, *, lines: bool) -> bool:
    if character == "\n":
        return not lines
    return unicodedata.category(character) in _CONTROL_CATEGORIES or character in _NONCHARACTERS
