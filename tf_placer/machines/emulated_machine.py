"""Described machines whose GPUs are emulated in TensorFlow's own runtime on this computer."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from typing import Any

from graph_passes.util.messages import quote
from tf_placer.machines.catalog import make_described_machine
from tf_placer.machines.computer_memory import set_cpu_memory
from tf_placer.machines.gpu_memory import compute_usable_bytes
from tf_placer.machines.machine import Device, Machine, MachineError

__all__ = ["PREFIX", "EmulationOptions", "find", "make_emulated_machine", "parse_emulation_options"]

PREFIX = "emulated:"
_SLOWDOWN = re.compile(r"slowdown=([0-9]+(?:\.[0-9]+)?)")
# TensorFlow's allocator keeps a table on the host with 8 bytes for every 256 bytes of a GPU.
_ALLOCATOR_TABLE_SHARE = 8 / 256


@dataclasses.dataclass(frozen=True)
class EmulationOptions:
    """The options in the name of an emulated machine.

    Attributes:
        machine: the name of the described machine, or the path of its file.
        computes_values: true if kernels compute their values on the CPU; false if they compute
            only shapes, and only their durations are emulated.
        slowdown: factor on all times of the machine, for steps that the host cannot emulate in
            real time.
    """

    machine: str
    computes_values: bool = False
    slowdown: float = 1.0


def find(spec: str, session_config: Any = None) -> Machine | None:
    """Makes the machine of "emulated:NAME" on this computer; see `find_machine`.

    Raises:
        MachineError: see `make_emulated_machine`; or the tables that TensorFlow keeps of the memory
            of its GPUs do not fit into this computer.
    """
    if not spec.startswith(PREFIX):
        return None
    emulated = set_cpu_memory(make_emulated_machine(spec, session_config))
    _check_tables_fit(emulated)
    return emulated


def parse_emulation_options(spec: str) -> EmulationOptions:
    """Reads "emulated:MACHINE[,values][,slowdown=FACTOR]".

    Raises:
        MachineError: an option is unknown or out of range.

    Example:
        >>> parse_emulation_options("emulated:2xK80,slowdown=4")
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
                f"machine {quote(spec)}: unknown option {quote(option)}, expected 'values' or "
                "'slowdown=F' with a factor F of at least 1"
            )
    return EmulationOptions(machine, computes_values, slowdown)


def make_emulated_machine(spec: str, session_config: Any = None) -> Machine:
    """Makes a machine that emulates a described machine.

    Args:
        spec: see `parse_emulation_options`.
        session_config: the ConfigProto of the sessions, which may hide GPUs and limit their memory;
            None for TensorFlow's default.

    Returns:
        A machine of kind "emulated" with the devices, links and classes of the described machine,
        whose GPUs have the memory that TensorFlow can use.

    Raises:
        MachineError: there is no such machine or option, the devices are not a CPU and GPUs of one
            process, a GPU has settings that cannot be emulated, or the configuration names GPUs
            that the machine does not have.
    """
    described = make_described_machine(parse_emulation_options(spec).machine)
    for number, device in enumerate(described.devices):
        name = _build_device_name(number)
        if device.name != name:
            raise MachineError(
                f"machine {quote(spec)}: only a CPU and GPUs of one process can be emulated, so "
                f"device {number} must be {name!r}, not {device.name!r}"
            )
    for known in described.classes:
        if known.copies_in_stream or known.full_product_size > 1:
            raise MachineError(
                f"machine {quote(spec)}: a {known.name} cannot be emulated, because TensorFlow "
                "today neither copies in the stream of operations nor has small products take "
                f"longer: plan for {described.spec}, or emulate a machine with other GPUs"
            )
    numbers: Sequence[int] = range(1, len(described.devices))
    fraction = 0.0
    if session_config is not None:
        numbers = _find_visible_gpus(spec, session_config, numbers)
        fraction = session_config.gpu_options.per_process_gpu_memory_fraction
    return _restrict(
        dataclasses.replace(described, spec=spec, kind="emulated"), [0, *numbers], fraction
    )


def _build_device_name(number: int) -> str:
    kind, ordinal = ("CPU", 0) if number == 0 else ("GPU", number - 1)
    return f"/job:localhost/replica:0/task:0/device:{kind}:{ordinal}"


def _find_visible_gpus(spec: str, session_config: Any, numbers: Sequence[int]) -> Sequence[int]:
    """Lists the device numbers of the visible GPUs, in the order of the sessions.

    Raises:
        MachineError: the configuration names GPUs that the machine does not have.
    """
    listed = session_config.gpu_options.visible_device_list
    if listed:
        by_text = {str(number - 1): number for number in numbers}
        try:
            numbers = [by_text[text.strip()] for text in listed.split(",")]
        except KeyError as error:
            raise MachineError(
                f"visible_device_list {quote(listed)} in session_config: {quote(spec)} has no "
                f"GPU {error}"
            ) from None
    return numbers[: session_config.device_count.get("GPU", len(numbers))]


def _restrict(machine: Machine, numbers: Sequence[int], fraction: float) -> Machine:
    """Restricts a machine to some devices, and numbers them as TensorFlow does."""
    names = {machine.devices[k].name: _build_device_name(i) for i, k in enumerate(numbers)}
    devices = tuple(
        dataclasses.replace(
            device, name=names[device.name], memory_bytes=_compute_session_bytes(device, fraction)
        )
        for device in (machine.devices[k] for k in numbers)
    )
    links = tuple(
        dataclasses.replace(link, source=names[link.source], destination=names[link.destination])
        for link in machine.links
        if {link.source, link.destination} <= names.keys()
    )
    return dataclasses.replace(machine, devices=devices, links=links)


def _compute_session_bytes(device: Device, fraction: float) -> int | None:
    if device.type != "GPU" or device.memory_bytes is None:
        return device.memory_bytes
    # Like TensorFlow, apply a fraction to the whole memory, without a reserve for the system.
    return (
        int(fraction * device.memory_bytes)
        if fraction
        else compute_usable_bytes(device.memory_bytes)
    )


def _check_tables_fit(machine: Machine) -> None:
    """Checks that TensorFlow's tables of the memory of all GPUs fit into this computer.

    Args:
        machine: an emulated machine, whose CPU has the memory of this computer.

    Raises:
        MachineError: they do not fit.
    """
    gpus = [device.memory_bytes or 0 for device in machine.devices if device.type == "GPU"]
    needed_bytes = sum(gpus) * _ALLOCATOR_TABLE_SHARE
    computer_bytes = machine.devices[0].memory_bytes or 0
    if needed_bytes > computer_bytes:
        raise MachineError(
            f"machine {quote(machine.spec)}: TensorFlow keeps tables of its GPUs' memory, which "
            f"take {needed_bytes / 2**30:.0f} GiB, and this computer has "
            f"{computer_bytes / 2**30:.0f} GiB: emulate fewer GPUs, or let sessions take "
            "a per_process_gpu_memory_fraction"
        )
