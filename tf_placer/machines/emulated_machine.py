"""Described machines whose GPUs are emulated in TensorFlow's own runtime on this computer."""

from __future__ import annotations

import dataclasses
import re

from graph_passes.messages import quoted
from tf_placer.machines.catalogue import described_machine
from tf_placer.machines.gpu_memory import usable_bytes
from tf_placer.machines.machine import Device, Machine, MachineError

__all__ = ["PREFIX", "EmulationOptions", "emulated_machine", "emulation_options"]

PREFIX = "emulated:"
_SLOWDOWN = re.compile(r"slowdown=([0-9]+(?:\.[0-9]+)?)")


@dataclasses.dataclass(frozen=True)
class EmulationOptions:
    """Options behind the name of an emulated machine.

    Attributes:
        machine: the name of the described machine, or the path of its file.
        computes_values: true where kernels compute their values on the CPU; false where only
            shapes are computed, and kernels take their time.
        slowdown: factor on all times of the machine, for steps that the host cannot keep up with.
    """

    machine: str
    computes_values: bool = False
    slowdown: float = 1.0


def emulation_options(spec: str) -> EmulationOptions:
    """Reads "emulated:MACHINE[,values][,slowdown=FACTOR]".

    Raises:
        MachineError: an option is unknown or out of range.

    Example:
        >>> emulation_options("emulated:2xK80,slowdown=4")
        EmulationOptions(machine='2xK80', computes_values=False, slowdown=4.0)
    """
    machine, *options = spec.removeprefix(PREFIX).split(",")
    computes_values, slowdown = False, 1.0
    for option in options:
        match = _SLOWDOWN.fullmatch(option)
        if option == "values":
            computes_values = True
        elif match and float(match[1]) >= 1.0:
            slowdown = float(match[1])
        else:
            raise MachineError(
                f"machine {quoted(spec)}: unknown option {quoted(option)}, expected 'values' or "
                "'slowdown=F' with a factor F of at least 1"
            )
    return EmulationOptions(machine, computes_values, slowdown)


def emulated_machine(spec: str) -> Machine:
    """Makes the machine that emulates a described one.

    Args:
        spec: see `emulation_options`.

    Returns:
        A machine of kind "emulated" with the devices, links and classes of the described one, where
        GPUs have the memory that TensorFlow gets of it.

    Raises:
        MachineError: there is no such machine or option, or its devices are not a CPU and GPUs of
            one process.
    """
    described = described_machine(emulation_options(spec).machine)
    devices = []
    for number, device in enumerate(described.devices):
        kind, ordinal = ("CPU", 0) if number == 0 else ("GPU", number - 1)
        name = f"/job:localhost/replica:0/task:0/device:{kind}:{ordinal}"
        if device.name != name:
            raise MachineError(
                f"machine {quoted(spec)}: emulated are a CPU and GPUs of one process, whose device "
                f"{number} is {name!r}, not {device.name!r}"
            )
        devices.append(_with_usable_memory(device))
    return dataclasses.replace(described, spec=spec, kind="emulated", devices=tuple(devices))


def _with_usable_memory(device: Device) -> Device:
    if device.type != "GPU" or device.memory_bytes is None:
        return device
    return dataclasses.replace(device, memory_bytes=usable_bytes(device.memory_bytes))
