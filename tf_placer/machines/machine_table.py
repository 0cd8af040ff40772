"""One machine in detail: its devices and links, and the sources of their numbers."""

from __future__ import annotations

import dataclasses
import textwrap
from collections.abc import Sequence
from typing import Any

from tf_placer.machines.catalog import find_machine_source
from tf_placer.machines.gpu_memory import compute_plan_bytes, compute_usable_bytes
from tf_placer.machines.lookup import find_machine
from tf_placer.machines.machine import Device, Machine
from tf_placer.machines.numa_nodes import format_cores
from tf_placer.text.table import table
from tf_placer.text.units import format_bytes, format_step

__all__ = ["build_machine_values", "format_machine"]

_WIDTH = 100


def format_machine(spec: str) -> str:
    """Formats the devices of a machine; if it is described, also its links and their sources.

    Args:
        spec: the name of the machine, as `find_machine` takes it.

    Raises:
        MachineError: there is no such machine.
    """
    machine = find_machine(spec)
    if not machine.backend.is_described:
        return _process_table(machine)
    sources = {machine.spec: find_machine_source(spec)}
    sources |= {each.name: each.source for each in machine.classes}
    lines = [
        textwrap.fill(f"{name}: {source}", _WIDTH, subsequent_indent="    ")
        for name, source in sources.items()
        if source
    ]
    return "\n\n".join([_device_table(machine), _link_table(machine), "\n".join(lines)])


def build_machine_values(specs: Sequence[str]) -> dict[str, Any]:
    """Builds the JSON form of machines, like that of the catalog.

    Raises:
        MachineError: there is no such machine.
    """
    machines = {spec: find_machine(spec) for spec in specs}
    classes = {each.name: each for machine in machines.values() for each in machine.classes}
    return {
        "machines": [
            {
                "name": machine.spec,
                "max_gpus": None,
                "source": find_machine_source(spec),
                "devices": [dataclasses.asdict(device) for device in machine.devices],
                "links": [dataclasses.asdict(link) for link in machine.links],
            }
            for spec, machine in machines.items()
        ],
        "device_classes": [dataclasses.asdict(each) for each in classes.values()],
    }


def _process_table(machine: Machine) -> str:
    """Formats a row for each device of a machine that is there."""
    rows = [
        [
            device.name,
            format_cores(device.cores) or "-",
            "-" if device.memory_bytes is None else format_bytes(device.memory_bytes),
        ]
        for device in machine.devices
    ]
    return table(["device", "cores", "memory"], rows, "llr")


def _device_table(machine: Machine) -> str:
    """Formats a row for each group of equal devices."""
    equal: dict[tuple[str | None, int | None], list[Device]] = {}
    for device in machine.devices:
        equal.setdefault((device.model, device.memory_bytes), []).append(device)
    rows = []
    for devices in equal.values():
        known = machine.find_class(devices[0])
        rows.append(
            [
                len(devices),
                known.type,
                known.name,
                format_bytes(devices[0].memory_bytes or 0),
                _format_tensor_bytes(machine, devices[0]),
                f"{known.peak_flops / 1e12:g} x {known.compute_fraction:g}",
                f"{known.memory_bandwidth_bytes_per_sec / 1e9:g} x {known.bandwidth_fraction:g}",
                format_step(known.launch_secs),
            ]
        )
    headers = ["number", "type", "class", "memory", "for tensors", "TFLOPS", "memory GB/s"]
    return (
        table([*headers, "per operation"], rows, "rllrrrrr")
        + "\nx: the share that TensorFlow is assumed to reach; for tensors: what it leaves of the "
        "memory, and\nplans use"
    )


def _format_tensor_bytes(machine: Machine, device: Device) -> str:
    """Formats the memory that plans use of a device."""
    if device.type != "GPU":
        return "all"
    managed_bytes = device.memory_bytes or 0
    if not machine.backend.is_timed:
        managed_bytes = compute_usable_bytes(managed_bytes)
    return format_bytes(compute_plan_bytes(managed_bytes))


def _link_table(machine: Machine) -> str:
    """Formats a row for each group of equal links between devices of the same types.

    GPUs of several models count as different types.
    """
    models = {device.model for device in machine.devices if device.type == "GPU"}
    types = {
        device.name: str(device.model) if device.type == "GPU" and len(models) > 1 else device.type
        for device in machine.devices
    }
    equal: dict[tuple[str, str, float, float], list[str | None]] = {}
    for link in machine.links:
        ends = types[link.source], types[link.destination]
        speed = link.bandwidth_bytes_per_sec, link.latency_secs
        equal.setdefault((*ends, *speed), []).append(link.channel)
    rows = []
    for (source, destination, bandwidth, latency_secs), channels in equal.items():
        num_channels = len(set(filter(None, channels))) + channels.count(None)
        rows.append(
            [
                f"{source} to {destination}",
                len(channels),
                num_channels,
                f"{bandwidth / 1e9:g}",
                format_step(latency_secs),
            ]
        )
    headers = ["links", "number", "channels", "GB/s", "latency"]
    return table(headers, rows, "lrrrr") + "\na channel carries one transfer at a time"
