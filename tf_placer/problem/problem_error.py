"""What is said of something that is no placement problem."""

from __future__ import annotations

import json

import numpy as np

__all__ = ["ProblemError", "shown"]


class ProblemError(ValueError):
    """This is no placement problem; one sentence names the entry that is wrong."""


def shown(value: object) -> str:
    """Formats a value as the file format writes it, short enough for a message."""
    value = value.item() if isinstance(value, np.generic) else value
    if isinstance(value, list | tuple):
        return "a list"
    if isinstance(value, dict):
        return "an object"
    text = json.dumps(value) if isinstance(value, str | int | float | None) else repr(value)
    return text if len(text) <= 60 else f"{text[:59]}…"
