"""The classes of devices of described machines.

The numbers are data with sources: `data/device_classes.json`. Published specifications are
unchanged. The efficiency of TensorFlow is stated per class and never per neural network: the share
of the peak that large contractions reach, the share of the memory bandwidth that all other
operations reach, and the constant cost of each operation.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib.resources
from typing import Any

from graph_passes.util.json_records import read_record
from graph_passes.util.json_text import parse_json
from tf_placer.machines.machine import DeviceClass

__all__ = ["read_device_classes"]

_FILE = "device_classes.json"


@dataclasses.dataclass(frozen=True)
class _File:
    format: Any
    classes: tuple[DeviceClass, ...]


@functools.cache
def read_device_classes() -> dict[str, DeviceClass]:
    """Reads the classes of this package, by name."""
    file = importlib.resources.files("tf_placer.machines") / "data" / _FILE
    known = read_record(_File, parse_json(file.read_text(encoding="utf-8")), _FILE, exact=True)
    return {each.name: each for each in known.classes}
