"""Restrictions of placements that users state by the names of operations."""

from __future__ import annotations

import dataclasses
import difflib
import fnmatch
import re
from collections.abc import Iterable, Mapping, Sequence

from graph_passes.devices import device_type_of, find_devices, is_device_request
from graph_passes.errors import GraphError
from graph_passes.util.messages import quote

__all__ = [
    "ANY_GPU",
    "Restrictions",
    "check_keep_together",
    "check_pins",
    "match_names",
    "resolve_restrictions",
    "suggest_names",
]

#: The beginning of a pattern that is a regular expression.
#: The device of a pin to all GPUs of a machine.
ANY_GPU = "/GPU:*"
_ANY_GPU = re.compile(r"/?(device:)?GPU:\*", re.IGNORECASE)
_REGEX = "re:"
_MAX_SUGGESTIONS, _MAX_COMPARED = 3, 2000


@dataclasses.dataclass(frozen=True)
class Restrictions:
    """Restrictions of the placements of a step on a machine.

    A pattern matches whole names of operations. It is a glob, whose star stands for any characters,
    slashes included; or, behind "re:", a regular expression.

    Attributes:
        pin: by pattern, the full name of the device of the operations that match; or `ANY_GPU`:
            those that have a kernel for GPUs stay on any of them.
        keep_together: sets of patterns; the operations that match a pattern of a set share one
            device.
        devices: the full names of all devices of the machine.
    """

    pin: Mapping[str, str]
    keep_together: tuple[tuple[str, ...], ...]
    devices: tuple[str, ...]


def check_pins(pin: object) -> dict[str, str]:
    """Checks the pins of a search: devices by pattern.

    Raises:
        ValueError: the value is no such mapping, or a pattern is invalid.
    """
    if not isinstance(pin, Mapping):
        raise ValueError(
            "pin maps patterns of names to devices, such as {'embedding/*': '/CPU:0'}, unlike "
            f"{quote(pin)}"
        )
    for pattern, device in pin.items():
        _compile(pattern, "pin")
        if not isinstance(device, str) or not device:
            raise ValueError(
                f"pin {quote(pattern)}: a device is a text such as '/GPU:1', not {quote(device)}"
            )
    return dict(pin)


def check_keep_together(sets: object) -> tuple[tuple[str, ...], ...]:
    """Checks sets of patterns, each a list of patterns or one pattern.

    Returns:
        The sets, each as a tuple.

    Raises:
        ValueError: the value is no such list, or a pattern is invalid.
    """
    if isinstance(sets, str) or not isinstance(sets, Sequence):
        raise ValueError(
            "keep_together is a list, each item of which is a pattern of names or a list of them, "
            f"such as [['a/*', 'b/*']], unlike {quote(sets)}"
        )
    checked = []
    for each in sets:
        patterns = (each,) if isinstance(each, str) else each
        if not isinstance(patterns, Sequence) or not patterns:
            raise ValueError(
                "an item of keep_together is a pattern of names or a list of them, not "
                f"{quote(each)}"
            )
        for pattern in patterns:
            _compile(pattern, "keep_together")
        checked.append(tuple(patterns))
    return tuple(checked)


def resolve_restrictions(
    pin: Mapping[str, str],
    keep_together: tuple[tuple[str, ...], ...],
    devices: Sequence[str],
) -> Restrictions | None:
    """Finds the devices of a machine that pins mean.

    Args:
        pin: a full or partial name of a device by pattern, checked.
        keep_together: sets of patterns, checked.
        devices: the full names of the devices of the machine.

    Returns:
        The restrictions; None if there are none.

    Raises:
        GraphError: a device does not exist, or is one of several.
    """
    if not pin and not keep_together:
        return None
    found = {pattern: _find_device(pattern, device, devices) for pattern, device in pin.items()}
    return Restrictions(found, keep_together, tuple(devices))


def _find_device(pattern: str, device: str, devices: Sequence[str]) -> str:
    """Finds the device that a pin means; see `resolve_restrictions`."""
    listed = ", ".join(devices)
    request = device if device.startswith("/") else f"/{device}"
    subject = f"pin {quote(pattern)}: {quote(device)}"
    if _ANY_GPU.fullmatch(device):
        if not any(device_type_of(each) == "GPU" for each in devices):
            raise GraphError(f"{subject} is for GPUs, and the machine has none: leave it out")
        return ANY_GPU
    if not is_device_request(request):
        raise GraphError(f"{subject} is no name of a device, as '/GPU:0' is: name one of {listed}")
    found = find_devices(request, devices)
    if not found:
        raise GraphError(f"{subject} is not on the machine: name one of {listed}")
    if len(found) > 1:
        are_gpus = all(device_type_of(each) == "GPU" for each in found)
        more = f", or all GPUs by {ANY_GPU!r}" if are_gpus else ""
        raise GraphError(
            f"{subject} may be each of {', '.join(found)}: name one of them in full{more}"
        )
    return found[0]


def match_names(pattern: str, names: Iterable[str]) -> list[str]:
    """Lists the names that a pattern matches.

    Example:
        >>> names = ["embedding", "embedding/w/read", "tower/embedding/w"]
        >>> match_names("embedding/*", names)
        ['embedding/w/read']
        >>> match_names("re:.*/w", names)
        ['tower/embedding/w']
    """
    matches = _compile(pattern, "a pattern").fullmatch
    return [name for name in names if matches(name)]


def suggest_names(pattern: str, names: Sequence[str]) -> list[str]:
    """Finds patterns next to one that matches none of some names: scopes, or names.

    Example:
        >>> suggest_names("embeding/*", ["embedding/w", "embedding/b", "softmax/w"])[0]
        'embedding/*'
        >>> suggest_names("w", ["embedding/w", "softmax/b"])
        ['embedding/w']
    """
    text = pattern.removeprefix(_REGEX)
    words = [word for word in re.split(r"[^\w/]+", text.strip("/*.")) if word]
    longest = max(words, key=len, default="").strip("/").lower()
    scopes: dict[str, str] = {}
    for name in names:
        parts = name.split("/")
        for depth in range(1, len(parts)):
            scope = "/".join(parts[:depth])
            scopes.setdefault(scope.lower(), f"{scope}/*")
    known = scopes | {name.lower(): name for name in names}
    within = [known[key] for key in sorted(known, key=len) if longest and longest in key]
    if within:
        return within[:_MAX_SUGGESTIONS]
    keys = sorted(known, key=len)[:_MAX_COMPARED]
    near = difflib.get_close_matches(longest, keys, _MAX_SUGGESTIONS)
    return [known[key] for key in near] or list(scopes.values())[:_MAX_SUGGESTIONS]


def _compile(pattern: object, setting: str) -> re.Pattern[str]:
    """Compiles a pattern.

    Raises:
        ValueError: the value is no pattern.
    """
    if not isinstance(pattern, str) or not pattern.removeprefix(_REGEX):
        raise ValueError(
            f"{setting}: a pattern of names is a text such as 'embedding/*', not {quote(pattern)}"
        )
    if not pattern.startswith(_REGEX):
        return re.compile(fnmatch.translate(pattern))
    try:
        return re.compile(pattern.removeprefix(_REGEX))
    except re.error as error:
        raise ValueError(f"{setting} {quote(pattern)} is no regular expression: {error}") from None
