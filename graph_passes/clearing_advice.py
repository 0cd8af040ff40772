"""Advice to clear the devices of a graph, as the reader of the message can follow it."""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Iterator

__all__ = [
    "CLEARING_ARGUMENT",
    "CLEARING_FLAG",
    "advise_clearing",
    "clear_by",
    "find_clearing_setting",
]

CLEARING_ARGUMENT = "clear_devices=True"
"""The argument of functions that clears the devices of a graph."""

CLEARING_FLAG = "--clear_devices"
"""The flag of commands that does so."""

_setting: contextvars.ContextVar[str | None] = contextvars.ContextVar(
    "clearing_setting", default=CLEARING_ARGUMENT
)


@contextlib.contextmanager
def clear_by(setting: str | None) -> Iterator[None]:
    """Sets how readers of messages clear the devices of a graph.

    Args:
        setting: the argument or flag, such as "--clear_devices"; None where there is none.
    """
    token = _setting.set(setting)
    try:
        yield
    finally:
        _setting.reset(token)


def find_clearing_setting() -> str | None:
    """Returns the argument or flag that clears the devices of a graph; None if there is none."""
    return _setting.get()


def advise_clearing() -> str:
    """Advises to clear the devices of a graph, in an imperative clause.

    Example:
        >>> advise_clearing()
        "clear the graph's devices (clear_devices=True)"
        >>> with clear_by(None):
        ...     advise_clearing()
        'build the graph without tf.device'
    """
    setting = _setting.get()
    if setting is None:
        return "build the graph without tf.device"
    return f"clear the graph's devices ({setting})"
