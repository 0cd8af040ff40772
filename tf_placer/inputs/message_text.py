"""Reads protocol buffers in text format."""

from __future__ import annotations

from typing import TypeVar

from google.protobuf import message, text_format

__all__ = ["parse_message_text"]

_Message = TypeVar("_Message", bound=message.Message)


def parse_message_text(content: bytes, kind: type[_Message]) -> _Message:
    """Parses a message in text format, and checks that the binary format can hold it, too.

    Raises:
        ParseError, ValueError: the text is no such message; the error names the position.
    """
    try:
        parsed = text_format.Parse(content.decode(), kind())
        # The binary format has a lower limit for nesting than the text format.
        kind.FromString(parsed.SerializeToString())
    except UnicodeDecodeError as error:
        raise ValueError(f"it is not text in UTF-8, from byte {error.start} on") from None
    except (RecursionError, message.DecodeError):
        raise ValueError("it is nested too deeply") from None
    return parsed
