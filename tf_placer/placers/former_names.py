"""The former names of options, which scripts and logs may still use."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

__all__ = ["FORMER_NAMES", "rename_former"]

V = TypeVar("V")

# Former name: today's name.
FORMER_NAMES = {
    "neighbours": "neighbors",
    "normalise": "normalize",
}


def rename_former(options: Mapping[str, V], *, owner: str) -> dict[str, V]:
    """Replaces the former names of options by today's.

    Args:
        options: values by option name.
        owner: the owner of the options, for messages.

    Raises:
        ValueError: an option is given by its former name and by today's.
    """
    for former, name in FORMER_NAMES.items():
        if former in options and name in options:
            raise ValueError(
                f"{owner} has options {former!r} and {name!r}, which are the same option; "
                f"give {name!r} only"
            )
    return {FORMER_NAMES.get(name, name): value for name, value in options.items()}
