"""What is known of the models of device that described machines are made of.

The numbers are data with sources: `data/device_classes.json`. What makers publish is
taken as it is. What TensorFlow makes of it is stated per class and never per model of network: the
share of the peak that large contractions reach, the share of the memory bandwidth that everything
else reaches, and what each operation costs beside its work.
"""

from __future__ import annotations

import functools
import importlib.resources
import json

from tf_placer.machines.entries import Entries
from tf_placer.machines.machine import DeviceClass, MachineError

__all__ = ["DeviceClass", "device_class_from_json", "device_classes"]

_FILE = "device_classes.json"
_ENTRIES = (
    "name",
    "type",
    "memory_bytes",
    "peak_flops",
    "memory_bandwidth_bytes_per_sec",
    "launch_secs",
    "compute_fraction",
    "bandwidth_fraction",
    "slots",
    "source",
)


@functools.cache
def device_classes() -> dict[str, DeviceClass]:
    """Reads the classes that ship with this package, by name."""
    file = importlib.resources.files("tf_placer.machines") / "data" / _FILE
    value = json.loads(file.read_text(encoding="utf-8"))
    classes = [
        device_class_from_json(item, f"{_FILE}: classes[{i}]")
        for i, item in enumerate(value["classes"])
    ]
    return {known.name: known for known in classes}


def device_class_from_json(value: object, where: str) -> DeviceClass:
    """Reads a class.

    Args:
        value: an object with the attributes of `DeviceClass`; `slots` is 1 and `source` empty
            unless they are given.
        where: the file and the entry, for errors.

    Returns:
        The class.

    Raises:
        MachineError: an entry is missing, unknown or out of range.
    """
    entries = Entries(value, where, _ENTRIES)
    device_type = entries.text("type")
    if device_type not in ("CPU", "GPU"):
        raise MachineError(f"{entries.place('type')} must be 'CPU' or 'GPU', not {device_type!r}")
    for name in ("compute_fraction", "bandwidth_fraction"):
        if entries.number(name, positive=True) > 1:
            raise MachineError(f"{entries.place(name)} is more than 1: {entries[name]!r}")
    return DeviceClass(
        name=entries.text("name"),
        type=device_type,
        memory_bytes=entries.whole("memory_bytes"),
        peak_flops=entries.number("peak_flops", positive=True),
        memory_bandwidth_bytes_per_sec=entries.number(
            "memory_bandwidth_bytes_per_sec", positive=True
        ),
        launch_secs=entries.number("launch_secs"),
        compute_fraction=entries.number("compute_fraction"),
        bandwidth_fraction=entries.number("bandwidth_fraction"),
        slots=entries.whole("slots") if "slots" in entries else 1,
        source=entries.text("source") if "source" in entries else "",
    )
