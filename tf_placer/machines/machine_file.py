"""Reads machine files, which describe machines.

A machine file is JSON. This one has a CPU and one GPU of a model that ships with the package:

    {"format": 1,
     "name": "my-box",
     "devices": [
       {"name": "/job:localhost/replica:0/task:0/device:CPU:0", "class": "CPU"},
       {"name": "/job:localhost/replica:0/task:0/device:GPU:0", "class": "V100",
        "memory_bytes": 32e9}
     ],
     "links": [
       {"source": "/job:localhost/replica:0/task:0/device:CPU:0",
        "destination": "/job:localhost/replica:0/task:0/device:GPU:0",
        "latency_secs": 25e-6, "bandwidth_bytes_per_sec": 11e9, "channel": "to the GPUs"},
       {"source": "/job:localhost/replica:0/task:0/device:GPU:0",
        "destination": "/job:localhost/replica:0/task:0/device:CPU:0",
        "latency_secs": 25e-6, "bandwidth_bytes_per_sec": 11e9}
     ]}

`devices`: the first is the CPU that runs operations without a device. Names are TensorFlow's full
names, and the type in a name must match its class. `memory_bytes` defaults to the memory of the
class. A class is the name of one of `read_device_classes`, or an object with the entries of
`DeviceClass` (those with a default are optional); later devices may use the name of such a class.

`links`: one per ordered pair of devices. Links with the same `channel` carry one transfer at a time
together; a link without a `channel` has one of its own.

Other entries are rejected. Integers may be written like 12e9.
"""

from __future__ import annotations

import dataclasses
import itertools
import re
from typing import Annotated, Any

from graph_passes.util.json_records import Rule, check_format, read_record
from graph_passes.util.json_text import format_value, parse_json
from tf_placer.machines.device_classes import read_device_classes
from tf_placer.machines.machine import (
    Count,
    Device,
    DeviceClass,
    Link,
    Machine,
    MachineError,
    Name,
)

__all__ = ["parse_machine", "read_machine_file"]

_FORMAT = 1
_DEVICE_NAME = re.compile(r"/job:\w+/replica:\d+/task:\d+/device:(CPU|GPU):\d+", re.ASCII)


@dataclasses.dataclass(frozen=True)
class _Device:
    name: Annotated[
        str,
        Rule(
            _DEVICE_NAME.fullmatch,
            "a full device name like '/job:localhost/replica:0/task:0/device:GPU:0'",
        ),
    ]
    class_: str | DeviceClass
    memory_bytes: Count | None = None


@dataclasses.dataclass(frozen=True)
class _File:
    format: Any
    name: Name
    devices: tuple[_Device, ...]
    links: tuple[Link, ...]


def read_machine_file(path: str) -> Machine:
    """Reads a machine file.

    Raises:
        MachineError: the file cannot be read or is invalid; the message names the entry.
    """
    try:
        with open(path, "rb") as file:
            value = parse_json(file.read(), finite=False)
    except OSError as error:
        raise MachineError(f"machine file {path}: {error.strerror}") from None
    except ValueError as error:
        raise MachineError(f"machine file {path} is not JSON: {error}") from None
    return parse_machine(value, f"machine file {path}:")


def parse_machine(value: object, where: str) -> Machine:
    """Builds a machine from the contents of a machine file.

    Args:
        value: the contents of the file.
        where: the name of the file for errors; ends with ":".

    Returns:
        A machine of kind "described", its `spec` the name in the file.

    Raises:
        MachineError: the value is not a machine; the message names the entry.
    """
    try:
        check_format(value, _FORMAT, "the machine")
        file = read_record(_File, value, "the machine", exact=True)
        devices, classes = _build_devices(file)
        links = _sort_links(file, [device.name for device in devices])
    except ValueError as error:
        raise MachineError(f"{where} {error}") from None
    return Machine(file.name, "described", devices, links, classes)


def _build_devices(file: _File) -> tuple[tuple[Device, ...], tuple[DeviceClass, ...]]:
    """Builds the devices, and finds their classes."""
    devices: dict[str, Device] = {}
    known, used = dict(read_device_classes()), dict[str, DeviceClass]()
    for index, described in enumerate(file.devices):
        where, name = f"devices[{index}]", described.name
        if name in devices:
            raise ValueError(f"{where}.name is there twice: {format_value(name)}")
        device_class = _find_class(described.class_, f"{where}.class", known)
        device_type = name.split(":")[-2]
        if device_type != device_class.type:
            raise ValueError(
                f"{where}.class is a {device_class.type}, but the name of the device says "
                f"{device_type}: {format_value(name)}"
            )
        known[device_class.name] = used[device_class.name] = device_class
        devices[name] = Device(
            name,
            device_class.type,
            described.memory_bytes or device_class.memory_bytes,
            model=device_class.name,
        )
    first = next(iter(devices.values()), None)
    if first is None or first.type != "CPU":
        raise ValueError("devices must begin with the CPU that operations without a device run on")
    return tuple(devices.values()), tuple(used.values())


def _find_class(named: str | DeviceClass, where: str, known: dict[str, DeviceClass]) -> DeviceClass:
    if isinstance(named, str):
        if named not in known:
            raise ValueError(
                f"{where} is not a known class: {format_value(named)}; there are {', '.join(known)}"
            )
        return known[named]
    if known.get(named.name, named) != named:
        raise ValueError(f"{where}.name is the name of another class: {format_value(named.name)}")
    return named


def _sort_links(file: _File, names: list[str]) -> tuple[Link, ...]:
    """Checks the links, and sorts them by the pairs of devices."""
    links: dict[tuple[str, str], Link] = {}
    for index, link in enumerate(file.links):
        where, pair = f"links[{index}]", (link.source, link.destination)
        for end, name in zip(("source", "destination"), pair, strict=True):
            if name not in names:
                raise ValueError(f"{where}.{end} is not a device: {format_value(name)}")
        if pair[0] == pair[1]:
            raise ValueError(f"{where} leads from a device to itself: {format_value(pair[0])}")
        if pair in links:
            raise ValueError(f"{where} is the second link from {pair[0]} to {pair[1]}")
        links[pair] = link
    for pair in itertools.permutations(names, 2):
        if pair not in links:
            raise ValueError(f"links has no link from {pair[0]} to {pair[1]}")
    return tuple(links[pair] for pair in itertools.permutations(names, 2))
