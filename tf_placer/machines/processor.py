"""The processor of this computer."""

from __future__ import annotations

import pathlib
import platform

__all__ = ["find_processor_name"]


def find_processor_name() -> str:
    """Finds the model of the processor, or its architecture if the model is unknown."""
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.machine()
