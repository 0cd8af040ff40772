"""The memory of this computer."""

from __future__ import annotations

import dataclasses
import os
import pathlib

from tf_placer.machines.machine import Machine

__all__ = ["computer_memory_bytes", "with_memory_of_computer"]


def with_memory_of_computer(machine: Machine) -> Machine:
    """Gives the CPUs of a machine in one process the memory of this computer."""
    memory_bytes = computer_memory_bytes()
    return dataclasses.replace(
        machine,
        devices=tuple(
            dataclasses.replace(device, memory_bytes=memory_bytes)
            if device.type == "CPU"
            else device
            for device in machine.devices
        ),
    )


def computer_memory_bytes() -> int:
    """Bytes of memory that this computer, or the container around this process, has."""
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    for path in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        try:
            total = min(total, int(pathlib.Path(path).read_text()))
        except (OSError, ValueError):
            continue  # No control group, or one without a limit ("max").
    return total
