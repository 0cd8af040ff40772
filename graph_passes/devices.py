"""Device names: what they say, without a TensorFlow runtime."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["device_type_of", "home_device"]


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


def home_device(requested: str, device_names: Sequence[str]) -> int:
    """Finds the device that a request, possibly partial, means.

    Args:
        requested: such as "/cpu:0", "/job:worker/task:1" or "".
        device_names: full names of the devices there are.

    Returns:
        The first device that agrees with every part of the request; the first of all if none does.

    Example:
        >>> home_device("/gpu:0", ["/job:a/task:0/device:CPU:0", "/job:a/task:0/device:GPU:0"])
        1
    """
    wanted = _parse(requested)
    for i, name in enumerate(device_names):
        parts = _parse(name)
        if all(parts.get(key) == value for key, value in wanted.items()):
            return i
    return 0
