"""Protocol buffers as text."""

from __future__ import annotations

from typing import TypeVar

from google.protobuf import message, text_format

__all__ = ["parse_message_text"]

_Message = TypeVar("_Message", bound=message.Message)


def parse_message_text(content: bytes, kind: type[_Message]) -> _Message:
    """Reads a message of a kind, which can be written in the binary form, too.

    Raises:
        ParseError, ValueError: it is none; the message says what is wrong, and where.
    """
    try:
        parsed = text_format.Parse(content.decode(), kind())
        # The binary form may be nested less deeply than the text.
        kind.FromString(parsed.SerializeToString())
    except UnicodeDecodeError as error:
        raise ValueError(f"it is not text in UTF-8, from byte {error.start} on") from None
    except (RecursionError, message.DecodeError):
        raise ValueError("it is nested too deeply") from None
    return parsed
