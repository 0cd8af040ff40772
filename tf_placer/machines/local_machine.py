"""Machines of several TensorFlow processes on this computer that share its cores."""

from __future__ import annotations

import itertools
import os
import re
from typing import Any

from absl import logging

from graph_passes.util.messages import quote
from tf_placer.machines.machine import Device, Machine, MachineError, name_worker_cpu

__all__ = ["find"]

_PREFIX = "local:"
# The number of links grows with the square of the number of processes.
_MAX_PROCESSES = 256
_NUMBER = re.compile("[0-9]{1,9}")


def find(spec: str, session_config: Any = None) -> Machine | None:
    """Makes the machine of "local:N" or "local:N,memory_mb=M"; see `find_machine`.

    Raises:
        MachineError: a number or an option is wrong.
    """
    if not spec.startswith(_PREFIX):
        return None
    count_text, *options = spec.removeprefix(_PREFIX).split(",")
    if not _NUMBER.fullmatch(count_text) or not 1 <= int(count_text) <= _MAX_PROCESSES:
        raise MachineError(
            f"machine {quote(spec)}: the number of processes must be from 1 to "
            f"{_MAX_PROCESSES}, not {quote(count_text)}"
        )
    memory_bytes = _parse_memory_bytes(spec, options)
    shares = _divide_cores(spec, int(count_text))
    devices = (
        Device(name_worker_cpu(task), "CPU", memory_bytes, share)
        for task, share in enumerate(shares)
    )
    return Machine(spec, "local", tuple(devices))


def _parse_memory_bytes(spec: str, options: list[str]) -> int | None:
    """Parses the memory limit of each process; None if there is no limit."""
    memory_bytes = None
    for option in options:
        name, _, value = option.partition("=")
        if name != "memory_mb":
            raise MachineError(
                f"machine {quote(spec)}: unknown option {quote(name)}, expected 'memory_mb'"
            )
        if not _NUMBER.fullmatch(value) or int(value) < 1:
            raise MachineError(
                f"machine {quote(spec)}: memory_mb must be a number of MiB, from 1 to 999999999, "
                f"not {quote(value)}"
            )
        memory_bytes = int(value) * 2**20
    return memory_bytes


def _divide_cores(spec: str, count: int) -> list[tuple[int, ...]]:
    """Divides the cores that this process may use among the processes."""
    cores = sorted(os.sched_getaffinity(0))
    if count > len(cores):
        logging.warning(
            "%s: %d processes share %d core%s, so their step times disturb each other",
            spec,
            count,
            len(cores),
            "" if len(cores) == 1 else "s",
        )
        return [(cores[task % len(cores)],) for task in range(count)]
    bounds = [task * len(cores) // count for task in range(count + 1)]
    return [tuple(cores[low:high]) for low, high in itertools.pairwise(bounds)]
