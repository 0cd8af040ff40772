"""A catalog of described machines: the machines of the papers and current ones.

A name gives the number and the model of the GPUs: "4xK80" is the machine of the first paper on
learned device placement with 4 GPUs, "post-8xK80" the machine of the second paper with 8.
`data/machines.json` has one entry per kind of machine, with the sources of its numbers. Each number
of GPUs up to the `max_gpus` of the entry makes a machine, whose first device is the CPU.

An entry describes the topology of the GPUs:

- `pcie`: `gpus_per_switch` GPUs share one connection to the CPU, of `host` latency and bandwidth,
  with one channel for each direction. Copies between GPUs of one switch (`same_switch`, such as the
  two GPUs of a K80 board) have a channel for each pair. Copies to GPUs of another switch
  (`other_switch`) share the channel from the sender's switch to the CPU; the switch of the receiver
  is not modeled.
- `nvlink`: the number of links between each two GPUs, and the speed of one link. Pairs without
  links use PCIe.
- `nvswitch`: every GPU sends to all others through one channel of its own.

Latencies are an assumption: the time of TensorFlow's send, receive and the copy between them,
without the bytes. Bandwidths are the ones that copies reach, not the specified ones of the bus.

`tf_placer.machines.machine_file` describes files for other machines.
"""

from __future__ import annotations

import dataclasses
import difflib
import functools
import importlib.resources
import itertools
import json
import re
import textwrap
from collections.abc import Mapping
from typing import Any

from graph_passes.util.messages import quote
from tf_placer.machines.device_classes import read_device_classes
from tf_placer.machines.machine import Machine, MachineError
from tf_placer.machines.machine_file import parse_machine, read_machine_file
from tf_placer.text.units import format_bytes, format_step

__all__ = [
    "build_catalog_values",
    "find",
    "find_machine_source",
    "format_catalog",
    "list_catalog_names",
    "make_described_machine",
    "suggest_machines",
]

_FILE = "machines.json"
_WIDTH = 78
_MAX_SUGGESTIONS, _MAX_COMPARED = 3, 60
_PREFIX = "/job:localhost/replica:0/task:0/device:"
_CPU = f"{_PREFIX}CPU:0"


def list_catalog_names() -> str:
    """Lists the names of the catalog for messages: "NxK80, post-NxK80, ..."."""
    return ", ".join(entry["name"] for entry in _read_entries().values())


def suggest_machines(spec: str) -> str:
    """Suggests the names of the catalog that are nearest to an unknown name.

    Args:
        spec: the unknown name; its number of GPUs is that of the suggestions.

    Returns:
        Text that follows the unknown name in a message: " (did you mean '4xK80'?)", or "" if no
        name is similar.

    Example:
        >>> suggest_machines("4xK81")
        " (did you mean '4xK80'?)"
    """
    spec = spec[:_MAX_COMPARED]
    number = re.search("([0-9]+)x", spec, re.IGNORECASE)
    gpus = number[1] if number else "1"
    names = [entry["name"].replace("N", gpus, 1) for entry in _read_entries().values()]
    by_lower = {name.lower(): name for name in names}
    near = difflib.get_close_matches(spec.lower(), by_lower, n=_MAX_SUGGESTIONS, cutoff=0.75)
    listed = ", ".join(repr(by_lower[name]) for name in near)
    return f" (did you mean {listed}?)" if near else ""


def find_machine_source(spec: str) -> str:
    """Finds the source of the numbers of a machine of the catalog; "" for a machine file."""
    found = None if spec.endswith(".json") else _find_entry(spec)
    return "" if found is None else str(found[1]["source"])


def format_catalog() -> str:
    """Formats every machine and every class of device, with the sources, as text."""
    lines = []
    for entry in _read_entries().values():
        lines.append(f"{entry['name']}, N from 1 to {entry['max_gpus']}")
        lines += [f"    {line}" for line in _summarize(_make_largest(entry))]
        lines += _wrap_text(entry["source"])
    for device_class in read_device_classes().values():
        lines += textwrap.wrap(
            f"{device_class.name}: {device_class.type}, {format_bytes(device_class.memory_bytes)}, "
            f"{device_class.peak_flops / 1e12:g} TFLOPS "
            f"(of which {device_class.compute_fraction:g}), "
            f"{_format_speed(device_class.memory_bandwidth_bytes_per_sec)} (of which "
            f"{device_class.bandwidth_fraction:g}), "
            f"{format_step(device_class.launch_secs)} per operation",
            _WIDTH,
            subsequent_indent="    ",
        )
        lines += _wrap_text(device_class.source)
    return "\n".join(lines)


def build_catalog_values() -> dict[str, Any]:
    """Builds the JSON form of the catalog: each machine with its maximum number of GPUs."""
    return {
        "machines": [
            {
                "name": entry["name"],
                "max_gpus": entry["max_gpus"],
                "source": entry["source"],
                "devices": [dataclasses.asdict(device) for device in _make_largest(entry).devices],
                "links": [dataclasses.asdict(link) for link in _make_largest(entry).links],
            }
            for entry in _read_entries().values()
        ],
        "device_classes": [
            dataclasses.asdict(device_class) for device_class in read_device_classes().values()
        ],
    }


def _make_largest(entry: Mapping[str, Any]) -> Machine:
    return make_described_machine(entry["name"].replace("N", str(entry["max_gpus"]), 1))


def _wrap_text(text: str) -> list[str]:
    return textwrap.wrap(text, _WIDTH, initial_indent="    ", subsequent_indent="    ")


def _format_speed(bytes_per_sec: float) -> str:
    return f"{format_bytes(int(bytes_per_sec))}/s"


def _summarize(machine: Machine) -> list[str]:
    """Describes the devices and links of a machine with GPUs in words."""
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
    """Makes the machine of a file (".json") or of the catalog; see `find_machine`."""
    is_described = spec.endswith(".json") or _find_entry(spec) is not None
    return make_described_machine(spec) if is_described else None


def make_described_machine(spec: str) -> Machine:
    """Makes the machine of a file or of the catalog.

    Args:
        spec: the path of a machine file (".json"), or a name of the catalog.

    Returns:
        A machine of kind "described" with its links and classes.

    Raises:
        MachineError: the file is not a machine file, or the catalog has no such machine.

    Example:
        >>> [device.model for device in make_described_machine("2xK80").devices]
        ['Haswell-18', 'K80', 'K80']
    """
    if spec.endswith(".json"):
        return read_machine_file(spec)
    found = _find_entry(spec)
    if found is None:
        raise MachineError(
            f"unknown machine {quote(spec)}{suggest_machines(spec)}: expected a machine file "
            f"(.json), or a name with a number of GPUs for N, of {list_catalog_names()}"
        )
    gpus, entry = found
    if not 1 <= gpus <= entry["max_gpus"]:
        raise MachineError(
            f"machine {quote(spec)}: such a machine has from 1 to {entry['max_gpus']} GPUs, "
            f"not {gpus}"
        )
    return parse_machine(_build_description(spec, gpus, entry), f"machine {spec}:")


@functools.cache
def _read_entries() -> dict[tuple[str, str], dict[str, Any]]:
    """Reads the entries, by the parts of their names before and behind the number of GPUs."""
    file = importlib.resources.files("tf_placer.machines") / "data" / _FILE
    machines = json.loads(file.read_text(encoding="utf-8"))["machines"]
    return {tuple(machine["name"].split("N", 1)): machine for machine in machines}


def _find_entry(spec: str) -> tuple[int, dict[str, Any]] | None:
    """Finds the number of GPUs in a name, and the entry of the name."""
    for (prefix, suffix), entry in _read_entries().items():
        match = re.fullmatch(f"{re.escape(prefix)}([0-9]+){re.escape(suffix)}", spec)
        if match:
            return int(match[1]), entry
    return None


def _build_description(spec: str, gpus: int, entry: Mapping[str, Any]) -> dict[str, Any]:
    """Builds the contents of a machine file for this machine."""
    names = [f"{_PREFIX}GPU:{i}" for i in range(gpus)]
    links = []
    for i, name in enumerate(names):
        switch = i // entry["pcie"]["gpus_per_switch"]
        host = entry["pcie"]["host"]
        links += [
            _build_link(_CPU, name, host, channel=f"host to switch {switch}"),
            _build_link(name, _CPU, host, channel=f"switch {switch} to host"),
        ]
    for i, j in itertools.permutations(range(gpus), 2):
        links.append(_build_link(names[i], names[j], **_find_peer_link(i, j, entry)))
    return {
        "format": 1,
        "name": spec,
        "devices": [
            {"name": _CPU, **entry["cpu"]},
            *({"name": name, **entry["gpu"]} for name in names),
        ],
        "links": links,
    }


def _find_peer_link(i: int, j: int, entry: Mapping[str, Any]) -> dict[str, Any]:
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


def _build_link(
    source: str, destination: str, speed: Mapping[str, float], channel: str | None
) -> dict[str, Any]:
    link = {"source": source, "destination": destination, **speed}
    return link if channel is None else {**link, "channel": channel}
