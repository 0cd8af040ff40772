"""Parsing and matching of device names, without a TensorFlow runtime."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

__all__ = [
    "device_type_of",
    "find_devices",
    "has_device",
    "home_device",
    "is_device_name",
    "is_device_request",
    "rename_device",
]

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
    """Returns whether TensorFlow accepts this as the name of one device.

    Example:
        >>> names = ["/job:worker/replica:0/task:1/device:CPU:0", "/gpu:0", "/gpu:zero", "CPU:-1"]
        >>> [is_device_name(name) for name in names]
        [True, True, False, False]
    """
    return isinstance(name, str) and _DEVICE_NAME.fullmatch(name) is not None


def is_device_request(name: str) -> bool:
    """Returns whether TensorFlow accepts this as a full or partial device name.

    Example:
        >>> requests = ["", "/gpu:0", "/job:worker", "/device:CPU:*", "/job:worker/gpu:zero", "gpu"]
        >>> [is_device_request(request) for request in requests]
        [True, True, True, True, False, False]
    """
    return _DEVICE_REQUEST.fullmatch(name) is not None


def _parse(name: str) -> dict[str, str]:
    """Parses a name into "job", "replica", "task", "type" and "index", as far as it has them."""
    parts = {}
    for part in name.split("/"):
        key, _, value = part.partition(":")
        if key in ("job", "replica", "task"):
            parts[key] = value
        elif key:
            # The short form is "/gpu:0".
            device_type, _, index = value.partition(":") if key == "device" else (key, "", value)
            parts["type"] = device_type.upper()
            parts["index"] = index
    # A star matches everything, just as a missing part does.
    return {key: value for key, value in parts.items() if value not in ("", "*")}


def device_type_of(name: str) -> str:
    """Extracts the device type from a name.

    Example:
        >>> device_type_of("/job:worker/replica:0/task:1/device:CPU:0")
        'CPU'
        >>> device_type_of("/job:worker")
        ''
    """
    return _parse(name).get("type", "")


def has_device(requested: str, device_names: Sequence[str], *, soft: bool = False) -> bool:
    """Returns whether TensorFlow finds a device for a request.

    Args:
        requested: a full or partial name such as "/gpu:0", "/job:worker/task:1" or "".
        device_names: the full names of all devices.
        soft: assumes `allow_soft_placement`: only job and task must agree.

    Example:
        >>> names = ["/job:worker/replica:0/task:0/device:CPU:0"]
        >>> [has_device("/gpu:0", names), has_device("/gpu:0", names, soft=True)]
        [False, True]
    """
    return (
        _find_first(_parse_job_and_task(requested) if soft else _parse(requested), device_names)
        >= 0
    )


def find_devices(requested: str, device_names: Sequence[str]) -> list[str]:
    """Finds all devices that agree with every part of a name.

    Args:
        requested: a full or partial name such as "/gpu:0" or "/job:worker/task:1".
        device_names: the full names of all devices.

    Example:
        >>> find_devices("/job:a", ["/job:a/task:0/device:CPU:0", "/job:b/task:0/device:CPU:0"])
        ['/job:a/task:0/device:CPU:0']
    """
    wanted = _parse(requested)
    return [name for name in device_names if _agrees(wanted, name)]


def home_device(requested: str, device_names: Sequence[str]) -> int:
    """Finds the device for a request.

    Args:
        requested: a full or partial name such as "/cpu:0", "/job:worker/task:1" or "".
        device_names: the full names of all devices.

    Returns:
        The index of the first device that agrees with every part of the request; if none does,
        of the first that agrees in job and task, as in TensorFlow's soft placement; else 0.

    Example:
        >>> home_device("/gpu:0", ["/job:a/task:0/device:CPU:0", "/job:a/task:0/device:GPU:0"])
        1
    """
    found = _find_first(_parse(requested), device_names)
    if found < 0:
        found = _find_first(_parse_job_and_task(requested), device_names)
    return max(found, 0)


def rename_device(name: str, new_names: Mapping[str, str]) -> str:
    """Renames a device by the first old name whose parts it all has.

    Args:
        name: a full or partial name.
        new_names: new names of devices by their old names. Parts that a new name lacks, such as the
            job, stay as they are.

    Returns:
        The new name in TensorFlow's form, or `name` itself if no old name agrees with it.

    Example:
        >>> new_names = {"/device:GPU:0": "/device:GPU:2"}
        >>> rename_device("/job:a/replica:0/task:0/device:GPU:0", new_names)
        '/job:a/replica:0/task:0/device:GPU:2'
        >>> [rename_device(name, new_names) for name in ("/gpu:0", "/device:GPU:1", "")]
        ['/device:GPU:2', '/device:GPU:1', '']
    """
    parts = _parse(name)
    for old, new in new_names.items():
        if all(parts.get(key) == value for key, value in _parse(old).items()):
            parts |= _parse(new)
            place = "".join(
                f"/{key}:{parts[key]}" for key in ("job", "replica", "task") if key in parts
            )
            return f"{place}/device:{parts['type']}:{parts['index']}"
    return name


def _parse_job_and_task(requested: str) -> dict[str, str]:
    parts = _parse(requested)
    return {key: value for key, value in parts.items() if key not in ("type", "index")}


def _find_first(wanted: dict[str, str], device_names: Sequence[str]) -> int:
    """Finds the first device that agrees with all parts of a name; -1 if none does."""
    return next((i for i, name in enumerate(device_names) if _agrees(wanted, name)), -1)


def _agrees(wanted: dict[str, str], name: str) -> bool:
    parts = _parse(name)
    return all(parts.get(key) == value for key, value in wanted.items())
