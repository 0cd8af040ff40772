"""The memory of this computer."""

from __future__ import annotations

import dataclasses
import os
import pathlib

from tf_placer.machines.machine import Machine

__all__ = ["read_computer_memory_bytes", "set_cpu_memory"]


def set_cpu_memory(machine: Machine) -> Machine:
    """Sets the memory of the CPUs of a machine to that of this computer."""
    memory_bytes = read_computer_memory_bytes()
    return dataclasses.replace(
        machine,
        devices=tuple(
            dataclasses.replace(device, memory_bytes=memory_bytes)
            if device.type == "CPU"
            else device
            for device in machine.devices
        ),
    )


def read_computer_memory_bytes() -> int:
    """Reads the memory size of this computer, or the limit of the container of this process."""
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    for path in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        try:
            total = min(total, int(pathlib.Path(path).read_text()))
        except (OSError, ValueError):
            continue  # No control group, or one without a limit ("max").
    return total
