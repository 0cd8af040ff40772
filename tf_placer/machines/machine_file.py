"""Machines that somebody described in a file.

A machine file is JSON. This one has a processor and one GPU of a model that ships with the package:

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

`devices`: the first is the CPU that operations without a device run on. Names are TensorFlow's full
names, and the type in a name is that of its class. `memory_bytes` is that of the class unless it is
given. A class is the name of one of `device_classes.device_classes`, or an object
with the entries of `DeviceClass` (`slots` and `source` may be left out); devices further down may
name such a class too.

`links`: one per ordered pair of devices. Links that name the same `channel` carry one transfer at a
time among them all; a link without one is its own channel.

Other entries are refused, and whole numbers may be written like 12e9.
"""

from __future__ import annotations

import itertools
import re

from graph_passes.json_text import parse_json, shown
from tf_placer.machines.device_classes import device_class_from_json, device_classes
from tf_placer.machines.entries import Entries
from tf_placer.machines.machine import Device, DeviceClass, Link, Machine, MachineError

__all__ = ["machine_from_description", "read_machine_file"]

_FORMAT = 1
_DEVICE_NAME = re.compile(r"/job:\w+/replica:\d+/task:\d+/device:(CPU|GPU):\d+", re.ASCII)


def read_machine_file(path: str) -> Machine:
    """Reads a machine file.

    Raises:
        MachineError: the file cannot be read, or is not such a file; names the entry.
    """
    try:
        with open(path, "rb") as file:
            value = parse_json(file.read(), finite=False)
    except OSError as error:
        raise MachineError(f"machine file {path}: {error.strerror}") from None
    except ValueError as error:
        raise MachineError(f"machine file {path} is not JSON: {error}") from None
    return machine_from_description(value, f"machine file {path}:")


def machine_from_description(value: object, where: str) -> Machine:
    """Makes the machine that a machine file describes.

    Args:
        value: the content of the file.
        where: the file, for errors; ends with ":".

    Returns:
        A machine of kind "described", its `spec` the name in the file.

    Raises:
        MachineError: the value is not a machine; names the entry.
    """
    entries = Entries(value, where, ("format", "name", "devices", "links"))
    version = entries["format"]
    if isinstance(version, bool) or version != _FORMAT:
        raise MachineError(
            f"{entries.place('format')} is {shown(version)}, but only {_FORMAT} can be read"
        )
    name = entries.text("name")
    devices, classes = _read_devices(entries)
    return Machine(name, "described", devices, _read_links(entries, devices), classes)


def _read_devices(entries: Entries) -> tuple[tuple[Device, ...], tuple[DeviceClass, ...]]:
    """Reads the devices, and the classes that they have."""
    devices: dict[str, Device] = {}
    known, used = dict(device_classes()), dict[str, DeviceClass]()
    for item, where in entries.items("devices"):
        entry = Entries(item, where, ("name", "class", "memory_bytes"))
        name = entry.text("name")
        match = _DEVICE_NAME.fullmatch(name)
        if not match:
            raise MachineError(
                f"{entry.place('name')} is not a full device name like "
                f"'/job:localhost/replica:0/task:0/device:GPU:0': {shown(name)}"
            )
        if name in devices:
            raise MachineError(f"{entry.place('name')} is there twice: {shown(name)}")
        device_class = _read_class(entry, known)
        if match[1] != device_class.type:
            raise MachineError(
                f"{entry.place('class')} is a {device_class.type}, but the name of the device says "
                f"{match[1]}: {shown(name)}"
            )
        known[device_class.name] = used[device_class.name] = device_class
        memory_bytes = (
            entry.whole("memory_bytes") if "memory_bytes" in entry else device_class.memory_bytes
        )
        devices[name] = Device(name, device_class.type, memory_bytes, model=device_class.name)
    first = next(iter(devices.values()), None)
    if first is None or first.type != "CPU":
        raise MachineError(
            f"{entries.place('devices')} must begin with the CPU that operations without a device "
            "run on"
        )
    return tuple(devices.values()), tuple(used.values())


def _read_class(entry: Entries, known: dict[str, DeviceClass]) -> DeviceClass:
    value = entry["class"]
    if isinstance(value, str):
        if value not in known:
            raise MachineError(
                f"{entry.place('class')} is not a known class: {shown(value)}; there are "
                f"{', '.join(known)}"
            )
        return known[value]
    device_class = device_class_from_json(value, entry.place("class"))
    if known.get(device_class.name, device_class) != device_class:
        raise MachineError(
            f"{entry.place('class')}.name is that of another class: {shown(device_class.name)}"
        )
    return device_class


def _read_links(entries: Entries, devices: tuple[Device, ...]) -> tuple[Link, ...]:
    """Reads the links, in the order of the pairs of devices."""
    names = [device.name for device in devices]
    links: dict[tuple[str, str], Link] = {}
    for item, where in entries.items("links"):
        entry = Entries(
            item,
            where,
            ("source", "destination", "latency_secs", "bandwidth_bytes_per_sec", "channel"),
        )
        for end in ("source", "destination"):
            if entry.text(end) not in names:
                raise MachineError(f"{entry.place(end)} is not a device: {shown(entry[end])}")
        pair = (entry.text("source"), entry.text("destination"))
        if pair[0] == pair[1]:
            raise MachineError(f"{where} leads from a device to itself: {shown(pair[0])}")
        if pair in links:
            raise MachineError(f"{where} is the second link from {pair[0]} to {pair[1]}")
        links[pair] = Link(
            *pair,
            latency_secs=entry.number("latency_secs"),
            bandwidth_bytes_per_sec=entry.number("bandwidth_bytes_per_sec", positive=True),
            channel=entry.text("channel") if "channel" in entry else None,
        )
    for pair in itertools.permutations(names, 2):
        if pair not in links:
            raise MachineError(f"{entries.place('links')} has no link from {pair[0]} to {pair[1]}")
    return tuple(links[pair] for pair in itertools.permutations(names, 2))
