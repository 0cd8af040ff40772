"""Described machines with names: those of the papers and current ones.

A name says how many GPUs of which model: "4xK80" is the machine of the first paper on learned
device placement with 4 GPUs, "post-8xK80" that of the second with 8. `data/machines.json` has one
entry per kind of machine, with the sources of its numbers. Every number of GPUs up to the
`max_gpus` of the entry gives a machine, the CPU first.

An entry says how the GPUs hang together:

- `pcie`: `gpus_per_switch` GPUs share one way to the CPU, of `host` latency and bandwidth: one
  channel for each direction. Copies between GPUs of one switch (`same_switch`; the two GPUs of a
  K80 board are such a pair) have a channel for each pair. Copies to GPUs elsewhere
  (`other_switch`) take turns with what their switch sends to the CPU; that they also pass the
  switch of the receiver is left out.
- `nvlink`: how many links there are between each two GPUs, and what one link carries. Pairs without
  any use PCIe.
- `nvswitch`: every GPU sends to every other through one channel of its own.

Latencies are an assumption: what TensorFlow's send, receive and the copy between them take, beside
the bytes. Bandwidths are what copies reach, not what the bus is specified for.

A file of one's own is described in `tf_placer.machines.machine_file`.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib.resources
import itertools
import json
import re
import textwrap
from collections.abc import Mapping
from typing import Any

from graph_passes.util.messages import quote
from tf_placer.machines.device_classes import device_classes
from tf_placer.machines.machine import Machine, MachineError
from tf_placer.machines.machine_file import machine_from_description, read_machine_file
from tf_placer.text.units import format_bytes, format_step

__all__ = [
    "catalog_names",
    "catalog_table",
    "catalog_values",
    "find",
    "make_described_machine",
]

_FILE = "machines.json"
_WIDTH = 78
_PREFIX = "/job:localhost/replica:0/task:0/device:"
_CPU = f"{_PREFIX}CPU:0"


def catalog_names() -> str:
    """Lists the names that there are, for messages: "NxK80, post-NxK80, ..."."""
    return ", ".join(entry["name"] for entry in _entries().values())


def catalog_table() -> str:
    """Describes, for people, every machine and every class of device, with the sources."""
    lines = []
    for entry in _entries().values():
        lines.append(f"{entry['name']}, N from 1 to {entry['max_gpus']}")
        lines += [f"    {line}" for line in _summary(_largest(entry))]
        lines += _wrap_text(entry["source"])
    for known in device_classes().values():
        lines += textwrap.wrap(
            f"{known.name}: {known.type}, {format_bytes(known.memory_bytes)}, "
            f"{known.peak_flops / 1e12:g} TFLOPS (of which {known.compute_fraction:g}), "
            f"{_format_speed(known.memory_bandwidth_bytes_per_sec)} (of which "
            f"{known.bandwidth_fraction:g}), {format_step(known.launch_secs)} per operation",
            _WIDTH,
            subsequent_indent="    ",
        )
        lines += _wrap_text(known.source)
    return "\n".join(lines)


def catalog_values() -> dict[str, Any]:
    """Makes the JSON form of the catalog: each machine with as many GPUs as it can have."""
    return {
        "machines": [
            {
                "name": entry["name"],
                "max_gpus": entry["max_gpus"],
                "source": entry["source"],
                "devices": [dataclasses.asdict(device) for device in _largest(entry).devices],
                "links": [dataclasses.asdict(link) for link in _largest(entry).links],
            }
            for entry in _entries().values()
        ],
        "device_classes": [dataclasses.asdict(known) for known in device_classes().values()],
    }


def _largest(entry: Mapping[str, Any]) -> Machine:
    return make_described_machine(entry["name"].replace("N", str(entry["max_gpus"]), 1))


def _wrap_text(text: str) -> list[str]:
    return textwrap.wrap(text, _WIDTH, initial_indent="    ", subsequent_indent="    ")


def _format_speed(bytes_per_sec: float) -> str:
    return f"{format_bytes(int(bytes_per_sec))}/s"


def _summary(machine: Machine) -> list[str]:
    """Devices and links of a machine with GPUs, in words."""
    cpu, gpu = machine.devices[:2]
    speeds: dict[str, set[float]] = {"between CPU and GPU": set(), "between GPUs": set()}
    for link in machine.links:
        with_cpu = cpu.name in (link.source, link.destination)
        speeds["between CPU and GPU" if with_cpu else "between GPUs"].add(
            link.bandwidth_bytes_per_sec or 0.0
        )
    return [
        f"{cpu.model} with {format_bytes(cpu.memory_bytes or 0)}, "
        f"each {gpu.model} with {format_bytes(gpu.memory_bytes or 0)}",
        *(
            f"{' or '.join(_format_speed(speed) for speed in sorted(each))} {ends}"
            for ends, each in speeds.items()
        ),
    ]


def find(spec: str, session_config: Any = None) -> Machine | None:
    """Makes the machine of a file (".json") or of a name like those here; see `find_machine`."""
    is_one = spec.endswith(".json") or _entry(spec) is not None
    return make_described_machine(spec) if is_one else None


def make_described_machine(spec: str) -> Machine:
    """Makes the machine of a file or of a name.

    Args:
        spec: the path of a machine file (".json"), or a name.

    Returns:
        A machine of kind "described" with its links and classes.

    Raises:
        MachineError: the file is not a machine file, or there is no such machine.

    Example:
        >>> [device.model for device in make_described_machine("2xK80").devices]
        ['Haswell-18', 'K80', 'K80']
    """
    if spec.endswith(".json"):
        return read_machine_file(spec)
    found = _entry(spec)
    if found is None:
        raise MachineError(f"unknown machine {quote(spec)}: expected {catalog_names()}")
    gpus, entry = found
    if not 1 <= gpus <= entry["max_gpus"]:
        raise MachineError(
            f"machine {quote(spec)}: such a machine has from 1 to {entry['max_gpus']} GPUs, "
            f"not {gpus}"
        )
    return machine_from_description(_description(spec, gpus, entry), f"machine {spec}:")


@functools.cache
def _entries() -> dict[tuple[str, str], dict[str, Any]]:
    """Reads the entries, by what is before and behind the number in their names."""
    file = importlib.resources.files("tf_placer.machines") / "data" / _FILE
    machines = json.loads(file.read_text(encoding="utf-8"))["machines"]
    return {tuple(machine["name"].split("N", 1)): machine for machine in machines}


def _entry(spec: str) -> tuple[int, dict[str, Any]] | None:
    """Finds the number of GPUs that a name asks for and the entry that it names."""
    for (prefix, suffix), entry in _entries().items():
        match = re.fullmatch(f"{re.escape(prefix)}([0-9]+){re.escape(suffix)}", spec)
        if match:
            return int(match[1]), entry
    return None


def _description(spec: str, gpus: int, entry: Mapping[str, Any]) -> dict[str, Any]:
    """Makes what a machine file of this machine would say."""
    names = [f"{_PREFIX}GPU:{i}" for i in range(gpus)]
    links = []
    for i, name in enumerate(names):
        switch = i // entry["pcie"]["gpus_per_switch"]
        host = entry["pcie"]["host"]
        links += [
            _link(_CPU, name, host, channel=f"host to switch {switch}"),
            _link(name, _CPU, host, channel=f"switch {switch} to host"),
        ]
    for i, j in itertools.permutations(range(gpus), 2):
        links.append(_link(names[i], names[j], **_peer_link(i, j, entry)))
    return {
        "format": 1,
        "name": spec,
        "devices": [
            {"name": _CPU, **entry["cpu"]},
            *({"name": name, **entry["gpu"]} for name in names),
        ],
        "links": links,
    }


def _peer_link(i: int, j: int, entry: Mapping[str, Any]) -> dict[str, Any]:
    """Finds the speed and channel of the link from the i-th GPU to the j-th."""
    if "nvswitch" in entry:
        return {"speed": entry["nvswitch"], "channel": f"GPU {i} to the others"}
    count = entry["nvlink"]["links"][i][j] if "nvlink" in entry else 0
    if count:
        speed = dict(entry["nvlink"]["each"])
        speed["bandwidth_bytes_per_sec"] *= count
        return {"speed": speed, "channel": None}
    pcie = entry["pcie"]
    switches = [gpu // pcie["gpus_per_switch"] for gpu in (i, j)]
    if switches[0] == switches[1]:
        return {"speed": pcie["same_switch"], "channel": None}
    return {"speed": pcie["other_switch"], "channel": f"switch {switches[0]} to host"}


def _link(
    source: str, destination: str, speed: Mapping[str, float], channel: str | None
) -> dict[str, Any]:
    link = {"source": source, "destination": destination, **speed}
    return link if channel is None else {**link, "channel": channel}
