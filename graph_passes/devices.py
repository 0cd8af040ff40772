"""Device names: what they say, without a TensorFlow runtime."""

from __future__ import annotations

import re
from collections.abc import Sequence

__all__ = ["device_type_of", "has_device", "home_device", "is_device_name", "is_device_request"]

_DEVICE_NAME = re.compile(
    r"(/job:[A-Za-z][\w-]*)?(/replica:\d{1,9})?(/task:\d{1,9})?"
    r"(/device:[A-Za-z]\w*:\d{1,9}|/[cg]pu:\d{1,9}|/[CG]PU:\d{1,9})",
    re.ASCII,
)
# The parts of a request may stand in any order.
_DEVICE_REQUEST = re.compile(
    r"/|(?:/(?:job:(?:\*|[A-Za-z][\w-]*)|(?:replica|task):(?:\*|\d{1,9})"
    r"|device:(?:\*|[A-Za-z_]\w*)(?::(?:\*|\d{1,9}))?|(?:[cg]pu|[CG]PU):(?:\*|\d{1,9})))*",
    re.ASCII,
)


def is_device_name(name: object) -> bool:
    """Says whether this names one device in a way that TensorFlow understands.

    Example:
        >>> names = ["/job:worker/replica:0/task:1/device:CPU:0", "/gpu:0", "/gpu:zero", "CPU:-1"]
        >>> [is_device_name(name) for name in names]
        [True, True, False, False]
    """
    return isinstance(name, str) and _DEVICE_NAME.fullmatch(name) is not None


def is_device_request(name: str) -> bool:
    """Says whether this names devices, or some of them, in a way that TensorFlow understands.

    Example:
        >>> requests = ["", "/gpu:0", "/job:worker", "/device:CPU:*", "/job:worker/gpu:zero", "gpu"]
        >>> [is_device_request(request) for request in requests]
        [True, True, True, True, False, False]
    """
    return _DEVICE_REQUEST.fullmatch(name) is not None


def _parse(name: str) -> dict[str, str]:
    """Reads from a name what it says of "job", "replica", "task", "type" and "index"."""
    parts = {}
    for part in name.split("/"):
        key, _, value = part.partition(":")
        if key in ("job", "replica", "task"):
            parts[key] = value
        elif key:
            # Also in the short form, "/gpu:0".
            device_type, _, index = value.partition(":") if key == "device" else (key, "", value)
            parts["type"] = device_type.upper()
            parts["index"] = index
    # A star stands for anything, as nothing does.
    return {key: value for key, value in parts.items() if value not in ("", "*")}


def device_type_of(name: str) -> str:
    """Reads the type out of a device name.

    Example:
        >>> device_type_of("/job:worker/replica:0/task:1/device:CPU:0")
        'CPU'
        >>> device_type_of("/job:worker")
        ''
    """
    return _parse(name).get("type", "")


def has_device(requested: str, device_names: Sequence[str], *, soft: bool = False) -> bool:
    """Says whether TensorFlow finds a device for a request among these.

    Args:
        requested: such as "/gpu:0", "/job:worker/task:1" or "".
        device_names: full names of the devices there are.
        soft: whether sessions have `allow_soft_placement`, so that job and task alone must agree.

    Example:
        >>> names = ["/job:worker/replica:0/task:0/device:CPU:0"]
        >>> [has_device("/gpu:0", names), has_device("/gpu:0", names, soft=True)]
        [False, True]
    """
    return _first_with(_without_type(requested) if soft else _parse(requested), device_names) >= 0


def home_device(requested: str, device_names: Sequence[str]) -> int:
    """Finds the device that a request, possibly partial, means.

    Args:
        requested: such as "/cpu:0", "/job:worker/task:1" or "".
        device_names: full names of the devices there are.

    Returns:
        The first device that agrees with every part of the request; if none does, the first that
        agrees in job and task, as of TensorFlow's soft placement; and else the first of all.

    Example:
        >>> home_device("/gpu:0", ["/job:a/task:0/device:CPU:0", "/job:a/task:0/device:GPU:0"])
        1
    """
    found = _first_with(_parse(requested), device_names)
    if found < 0:
        found = _first_with(_without_type(requested), device_names)
    return max(found, 0)


def _without_type(requested: str) -> dict[str, str]:
    parts = _parse(requested)
    return {key: value for key, value in parts.items() if key not in ("type", "index")}


def _first_with(wanted: dict[str, str], device_names: Sequence[str]) -> int:
    """Finds the first device that agrees with all these parts of a name; -1 if none does."""
    for i, name in enumerate(device_names):
        parts = _parse(name)
        if all(parts.get(key) == value for key, value in wanted.items()):
            return i
    return -1
