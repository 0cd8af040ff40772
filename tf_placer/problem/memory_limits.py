"""Limits on the memory that placements may use on devices."""

from __future__ import annotations

import dataclasses
import numbers
import re
from collections.abc import Mapping, Sequence
from typing import TypeVar

from graph_passes.util.json_text import format_value
from tf_placer.machines.machine import Device
from tf_placer.problem.placement_problem import PlacementProblem
from tf_placer.problem.problem_device import ProblemDevice

__all__ = [
    "OFFLOAD_HEADROOM",
    "check_headroom",
    "limit_devices",
    "limit_problem",
    "parse_size",
    "read_max_memory",
]

OFFLOAD_HEADROOM = 0.1
"""The share of memory that stays free if tensors wait elsewhere: fragments leave no room else."""

_Device = TypeVar("_Device", Device, ProblemDevice)
_SIZE = re.compile(r"([0-9]{1,19}(?:\.[0-9]{1,19})?) ?([a-zA-Z]*)")
_UNITS = {
    "": 1,
    "b": 1,
    **{f"{prefix}b": 1000**power for power, prefix in enumerate("kmgt", start=1)},
    **{f"{prefix}ib": 1024**power for power, prefix in enumerate("kmgt", start=1)},
}


def read_max_memory(value: object) -> dict[str, int]:
    """Reads limits on the memory of devices.

    Args:
        value: by device, a number of bytes or a size such as "4GB"; None for no limit. A device is
            given by its name or a part of it: "GPU:0", "task:1", or "GPU" for all GPUs.

    Returns:
        Bytes by device.

    Raises:
        ValueError: the value is no such mapping.
    """
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise ValueError(
            "max_memory maps devices to sizes, such as {'GPU:0': '4GB'}, unlike "
            f"{format_value(value)}"
        )
    for name in value:
        if not isinstance(name, str) or not _list_parts(name):
            raise ValueError(f"a device in max_memory is a name, not {format_value(name)}")
    return {name: _read_bytes(name, size) for name, size in value.items()}


def _read_bytes(name: str, size: object) -> int:
    if isinstance(size, str):
        return parse_size(size, f"max_memory of {format_value(name)}")
    is_whole = isinstance(size, numbers.Integral) and not isinstance(size, bool)
    if not is_whole or not 1 <= size < 2**63:  # type: ignore[operator]
        raise ValueError(
            f"max_memory of {format_value(name)} is a number of bytes from 1 on, or a size such as "
            f"'4GB', not {format_value(size)}"
        )
    return int(size)  # type: ignore[call-overload]


def parse_size(text: str, subject: str) -> int:
    """Parses a size in bytes, such as "4GB", "1.5 GiB" or "1000000".

    Args:
        text: the size; GB stands for 10**9 bytes, and GiB for 2**30.
        subject: the subject of the error.

    Raises:
        ValueError: the text is no size, or less than a byte.

    Example:
        >>> parse_size("4GB", "size")
        4000000000
    """
    match = _SIZE.fullmatch(text.strip())
    unit = None if match is None else _UNITS.get(match[2].lower())
    size = 0 if match is None or unit is None else int(float(match[1]) * unit)
    if not 1 <= size < 2**63:
        raise ValueError(
            f"{subject} is {format_value(text)}, which is no size: write a number with MB, MiB, GB "
            "or GiB, such as 4GB"
        )
    return size


def check_headroom(value: object) -> float:
    """Checks the share of memory to leave free, and converts it to Python's own number.

    Raises:
        ValueError: the value is no number from 0 to below 1.
    """
    is_number = isinstance(value, numbers.Real) and not isinstance(value, bool)
    if not is_number or not 0.0 <= float(value) < 1.0:  # type: ignore[arg-type]
        raise ValueError(
            "headroom is the share of memory to leave free, from 0 to below 1, such as 0.1, not "
            f"{format_value(value)}"
        )
    return float(value)  # type: ignore[arg-type]


def limit_devices(
    devices: Sequence[_Device], max_memory: Mapping[str, int], headroom: float
) -> tuple[_Device, ...]:
    """Lowers the memory of devices to limits.

    Args:
        devices: the devices of a machine or of a problem.
        max_memory: bytes by device; see `read_max_memory`. Of several limits for a device the
            smallest counts.
        headroom: share of each device's own memory that stays free; devices whose memory is
            unknown or unlimited have none.

    Raises:
        ValueError: a limit is for a device that is not there.
    """
    parts = [_list_parts(device.name) | {_find_type(device.name)} for device in devices]
    for name in max_memory:
        if not any(_list_parts(name) <= each for each in parts):
            listed = ", ".join(device.name for device in devices)
            raise ValueError(
                f"max_memory is for {format_value(name)}, and no device is called so: name one of "
                f"{listed}, or a part of a name, such as GPU:0 or task:1"
            )
    limited = []
    for device, own_parts in zip(devices, parts, strict=True):
        sizes = [size for name, size in max_memory.items() if _list_parts(name) <= own_parts]
        if device.memory_bytes is not None:
            sizes.append(device.memory_bytes - int(headroom * device.memory_bytes))
        limited.append(dataclasses.replace(device, memory_bytes=min(sizes)) if sizes else device)
    return tuple(limited)


def limit_problem(
    problem: PlacementProblem, max_memory: Mapping[str, int], headroom: float
) -> PlacementProblem:
    """Lowers the memory of the devices of a problem; see `limit_devices`.

    Raises:
        ValueError: a limit is for a device that is not there.
    """
    devices = limit_devices(problem.devices, max_memory, headroom)
    return problem if devices == problem.devices else dataclasses.replace(problem, devices=devices)


def _list_parts(name: str) -> frozenset[str]:
    """Lists the parts of a device's name, "job:worker", "task:1" and "gpu:0", say."""
    return frozenset(part.removeprefix("device:") for part in name.lower().split("/") if part)


def _find_type(name: str) -> str:
    """Finds the type in a device's name, such as "gpu"."""
    return name.lower().rpartition("/")[2].removeprefix("device:").partition(":")[0]
