"""The classes of devices of described machines.

The numbers are data with sources: `data/device_classes.json`. What makers publish is
taken as it is. What TensorFlow makes of it is stated per class and never per model of network: the
share of the peak that large contractions reach, the share of the memory bandwidth that everything
else reaches, and what each operation costs beside its work.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib.resources
from typing import Any

from graph_passes.util.json_records import read_record
from graph_passes.util.json_text import parse_json
from tf_placer.machines.machine import DeviceClass

__all__ = ["device_classes"]

_FILE = "device_classes.json"


@dataclasses.dataclass(frozen=True)
class _File:
    format: Any
    classes: tuple[DeviceClass, ...]


@functools.cache
def device_classes() -> dict[str, DeviceClass]:
    """Reads the classes that ship with this package, by name."""
    file = importlib.resources.files("tf_placer.machines") / "data" / _FILE
    known = read_record(_File, parse_json(file.read_text(encoding="utf-8")), _FILE, exact=True)
    return {each.name: each for each in known.classes}
