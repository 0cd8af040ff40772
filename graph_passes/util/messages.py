"""Messages, and what they quote, that stay short and show whatever is in them."""

from __future__ import annotations

import unicodedata

__all__ = ["plain_text", "quoted", "shortened"]

# Control and format characters, halves of characters, and ends of lines and paragraphs: a terminal
# obeys them, they reverse or hide the text around them, or XML does not take them.
_ACTIVE_CATEGORIES = ("Cc", "Cf", "Cs", "Zl", "Zp")
_NO_CHARACTERS = ("\ufffe", "\uffff")
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


def plain_text(text: str, *, lines: bool = False) -> str:
    r"""Escapes the characters that do something where a text is shown, as Python writes them.

    Everything that comes from elsewhere, such as names of operations and lines of logs, goes
    through this before it goes to a terminal, a table, a page or a picture.

    Args:
        text: any text.
        lines: whether it may have several lines.

    Example:
        >>> print(plain_text("a\x1b[31mb"))
        a\x1b[31mb
    """
    if text.isprintable():
        return text
    return "".join(
        each.encode("unicode_escape").decode() if _is_active(each, lines=lines) else each
        for each in text
    )


def _is_active(character: str, *, lines: bool) -> bool:
    if character == "\n":
        return not lines
    return unicodedata.category(character) in _ACTIVE_CATEGORIES or character in _NO_CHARACTERS
