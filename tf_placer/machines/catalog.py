"""A catalog of described machines: the machines of the papers and current ones.

A name gives the number and the model of the GPUs: "4xK80" is the machine of the first paper on
learned device placement with 4 GPUs, "post-8xK80" the machine of the second paper with 8.
`data/machines.json` has one entry per kind of machine, with the sources of its numbers. Each number
of GPUs up to the `max_gpus` of the entry makes a machine, whose first device is the CPU. An entry
with `max_sockets` has processors instead, each of them a worker process, and one link between them.

The CPU of a computer with one GPU is `cpu_of_one_gpu`, where the entry has it.

An entry describes the topology of the GPUs:

- `pcie`: `gpus_per_switch` GPUs share one connection to the CPU, of `host` latency and bandwidth,
  with one channel for each direction. Copies between GPUs of one switch (`same_switch`, such as the
  two GPUs of a K80 board) have a channel for each pair. Copies to GPUs of another switch
  (`other_switch`) share the channel from the sender's switch to the CPU; the switch of the receiver
  is not modeled.
- `nvlink`: the number of links between each two GPUs, and the speed of one link. Pairs without
  links use PCIe.
- `nvswitch`: every GPU sends to all others through one channel of its own.

A mix such as "1xA100+2xT4" is the computer of its first part, with the GPUs of the others in its
slots. The GPUs of a part are connected as in their own machine. Copies between parts pass the
processor, at the slower `other_switch` of both parts. No path of a GPU to the processor (`host`) or
through it (`other_switch`) is faster than those of the first part. `networked_computers` has those
such as "2x4xV100@10Gb".

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
from collections.abc import Mapping, Sequence
from typing import Any

from graph_passes.util.messages import quote
from tf_placer.machines.device_classes import read_device_classes
from tf_placer.machines.gpu_memory import compute_plan_bytes, compute_usable_bytes
from tf_placer.machines.machine import Machine, MachineError, name_worker_cpu
from tf_placer.machines.machine_file import parse_machine, read_machine_file
from tf_placer.machines.networked_computers import connect_computers, split_networked_name
from tf_placer.text.table import table
from tf_placer.text.units import format_bytes

__all__ = [
    "build_catalog_values",
    "find",
    "find_machine_source",
    "format_catalog",
    "is_catalog_name",
    "list_catalog_names",
    "make_described_machine",
    "suggest_machines",
]

_FILE = "machines.json"
_MAX_SUGGESTIONS, _MAX_COMPARED = 3, 60
_MAX_MIXED_GPUS = 16
_MIX = (
    "a mix: the computer of the first part with the GPUs of the others; copies between the parts "
    "pass the processor, at the slower of their speeds."
)
_NETWORK = (
    "computers with a network: each sends through one channel, at the speed of the network "
    "without headers; the latency is that of TensorFlow's gRPC, of which users report no more than "
    "0.8 GB/s: name the gigabits that yours reaches."
)
_PREFIX = "/job:localhost/replica:0/task:0/device:"
_CPU = f"{_PREFIX}CPU:0"

_Entry = Mapping[str, Any]


@dataclasses.dataclass(frozen=True)
class _Part:
    """GPUs of one kind in a computer.

    Attributes:
        entry: their entry in the catalog.
        count: the number of them.
        first_gpu: the number of the first of them in the computer.
        first_switch: the number of their first PCIe switch in the computer.
    """

    entry: _Entry
    count: int
    first_gpu: int = 0
    first_switch: int = 0

    def find_switch(self, gpu: int) -> int:
        """Finds the number of the PCIe switch of a GPU of the computer."""
        per_switch: int = self.entry["pcie"]["gpus_per_switch"]
        return self.first_switch + (gpu - self.first_gpu) // per_switch


def list_catalog_names() -> str:
    """Lists the names of the catalog for messages: "NxK80, post-NxK80, ..."."""
    return ", ".join(entry["name"] for entry in _read_entries().values())


def is_catalog_name(spec: str) -> bool:
    """Says whether a text is a name of the catalog, a mix of such, or several such computers."""
    return all(map(_find_entry, _split_mix(_find_computer(spec))))


def suggest_machines(spec: str, others: Sequence[str] = ()) -> str:
    """Suggests the names of machines that are nearest to an unknown name.

    Args:
        spec: the unknown name; its number of GPUs is that of the suggestions from the catalog.
        others: names that are not in the catalog.

    Returns:
        Text that follows the unknown name in a message: " (did you mean '4xK80'?)", or "" if no
        name is similar.

    Example:
        >>> suggest_machines("4xK81")
        " (did you mean '4xK80'?)"
    """
    spec = spec[:_MAX_COMPARED]
    with_network = f"{spec.partition('@')[0]}@10Gb"
    if with_network != spec and "x" in spec.partition("x")[2] and is_catalog_name(with_network):
        return f" (did you mean {with_network!r}?)"
    number = re.search("([0-9]+)x", spec, re.IGNORECASE)
    gpus = number[1] if number else "1"
    names = [entry["name"].replace("N", gpus, 1) for entry in _read_entries().values()]
    by_lower = {name.lower(): name for name in (*names, *others)}
    near = difflib.get_close_matches(spec.lower(), by_lower, n=_MAX_SUGGESTIONS, cutoff=0.75)
    listed = ", ".join(repr(by_lower[name]) for name in near)
    return f" (did you mean {listed}?)" if near else ""


def find_machine_source(spec: str) -> str:
    """Finds the source of the numbers of a machine of the catalog; "" for other machines."""
    if spec.endswith(".json"):
        return ""
    computer = _find_computer(spec)
    sources = {
        part: entry[1]["source"] for part in _split_mix(computer) if (entry := _find_entry(part))
    }
    if spec in sources:
        return str(sources[spec])
    listed = [f"{part}: {source}" for part, source in sources.items()]
    if not listed:
        return ""
    remarks = [_NETWORK] if computer != spec else []
    return " ".join([*remarks, *([_MIX] if len(_split_mix(computer)) > 1 else []), *listed])


def format_catalog() -> str:
    """Formats the catalog as a table, a line for each kind of machine."""
    rows = []
    for entry in _read_entries().values():
        machine = _make_largest(entry)
        cpu, worker = machine.devices[:2]
        known = machine.find_class(worker)
        is_gpu = worker.type == "GPU"
        between, to_cpu = _list_speeds(machine)
        rows.append(
            [
                entry["name"],
                _find_limit(entry)[0],
                format_bytes(worker.memory_bytes or 0),
                format_bytes(compute_plan_bytes(compute_usable_bytes(worker.memory_bytes or 0)))
                if is_gpu
                else "all",
                f"{known.peak_flops * known.compute_fraction / 1e12:.3g}",
                f"{known.memory_bandwidth_bytes_per_sec * known.bandwidth_fraction / 1e9:.0f}",
                between,
                to_cpu if is_gpu else "-",
                cpu.model or cpu.type,
            ]
        )
    headers = ["machine", "N up to", "memory", "for tensors", "TFLOPS", "GB/s"]
    return (
        f"{table([*headers, 'between', 'to CPU', 'CPU'], rows, 'lrrrrrrrl')}\n\n"
        "N: the number of GPUs or sockets, as in 4xA100; `machines 4xA100` shows the details, and "
        "the\nsources of the numbers. For tensors: what TensorFlow leaves of the memory of a GPU, "
        "and plans use.\nTFLOPS, GB/s: what TensorFlow is assumed to reach, in the memory, between "
        "two GPUs or sockets, and\nto the CPU"
    )


def build_catalog_values() -> dict[str, Any]:
    """Builds the JSON form of the catalog: each machine with its maximum number of GPUs."""
    return {
        "machines": [
            {
                "name": entry["name"],
                "max_gpus": entry.get("max_gpus"),
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


def _make_largest(entry: _Entry) -> Machine:
    return make_described_machine(entry["name"].replace("N", str(_find_limit(entry)[0]), 1))


def _find_limit(entry: _Entry) -> tuple[int, str]:
    """Finds the largest number in the name of a machine, and the noun for what it counts."""
    if "max_sockets" in entry:
        return entry["max_sockets"], "sockets"
    return entry["max_gpus"], "GPUs"


def _list_speeds(machine: Machine) -> tuple[str, str]:
    """Lists the speeds in GB/s of links between GPUs or sockets, and of links with the CPU."""
    cpu = machine.devices[0]
    has_gpus = machine.devices[1].type == "GPU"
    speeds: dict[bool, set[float]] = {False: set(), True: set()}
    for link in machine.links:
        is_with_cpu = has_gpus and cpu.name in (link.source, link.destination)
        speeds[is_with_cpu].add((link.bandwidth_bytes_per_sec or 0.0) / 1e9)
    between, to_cpu = (" or ".join(f"{each:g}" for each in sorted(s)) for s in speeds.values())
    return between, to_cpu


def find(spec: str, session_config: Any = None) -> Machine | None:
    """Makes the machine of a file (".json") or of the catalog; see `find_machine`."""
    # The error for a mix with an unknown part names that part.
    is_described = (
        spec.endswith(".json")
        or split_networked_name(spec) is not None
        or any(map(_find_entry, _split_mix(spec)))
    )
    return make_described_machine(spec) if is_described else None


def make_described_machine(spec: str) -> Machine:
    """Makes the machine of a file or of the catalog.

    Args:
        spec: the path of a machine file (".json"), a name of the catalog, a mix: several such
            names, joined by "+", or several computers: see
            `tf_placer.machines.networked_computers`.

    Returns:
        A machine of kind "described" with its links and classes.

    Raises:
        MachineError: the file is not a machine file, or the catalog has no such machine.

    Example:
        >>> [device.model for device in make_described_machine("2xK80").devices]
        ['Haswell-18', 'K80', 'K80']
        >>> [device.model for device in make_described_machine("1xK80+1xT4").devices]
        ['Haswell-18', 'K80', 'T4']
        >>> [device.model for device in make_described_machine("2x1xK80@10Gb").devices]
        ['Haswell-18', 'K80', 'Haswell-18', 'K80']
    """
    if spec.endswith(".json"):
        return read_machine_file(spec)
    networked = split_networked_name(spec)
    computer = spec if networked is None else networked.computer
    found = [_find_part(computer, name) for name in _split_mix(computer)]
    if "max_sockets" not in found[0][1]:
        description = _build_computer(computer, _join_parts(computer, found))
    elif networked is None:
        description = _build_sockets(spec, *found[0])
    else:
        raise MachineError(f"machine {quote(spec)}: only computers with GPUs can have a network")
    if networked is not None:
        description = connect_computers(spec, networked, description)
    return parse_machine(description, f"machine {spec}:")


def _find_computer(spec: str) -> str:
    """Finds the name of one of several computers, or else the name itself."""
    networked = split_networked_name(spec)
    return spec if networked is None else networked.computer


def _split_mix(spec: str) -> list[str]:
    """Splits the name of a mix into its parts; too many parts stay together at the end."""
    return spec.split("+", _MAX_MIXED_GPUS)


def _find_part(spec: str, name: str) -> tuple[int, _Entry]:
    """Finds the number of GPUs or sockets, and the entry, of a name or of a part of a mix.

    Raises:
        MachineError: there is no such entry, or not with that number or in a mix.
    """
    found = _find_entry(name)
    where = f"machine {quote(spec)}:" if name == spec else f"machine {quote(spec)}: {quote(name)}:"
    if found is None:
        unknown = f"machine {quote(spec)}: unknown part {quote(name)}"
        expected = "expected a name of the catalog"
        if name == spec:
            unknown = f"unknown machine {quote(name)}"
            expected = "expected a machine file (.json) or a name of the catalog"
        raise MachineError(
            f"{unknown}{suggest_machines(name)}: {expected}, such as 4xK80 (`python -m tf_placer "
            "machines` lists all)"
        )
    count, entry = found
    most, noun = _find_limit(entry)
    if not 1 <= count <= most:
        raise MachineError(f"{where} such a machine has from 1 to {most} {noun}, not {count}")
    if name != spec and noun != "GPUs":
        raise MachineError(f"{where} only GPUs can be mixed, not {noun}")
    return count, entry


def _join_parts(spec: str, found: Sequence[tuple[int, _Entry]]) -> list[_Part]:
    """Numbers the GPUs and the switches of the parts of a computer.

    Raises:
        MachineError: there are too many GPUs.
    """
    parts: list[_Part] = []
    gpus = switches = 0
    for count, entry in found:
        parts.append(_Part(entry, count, gpus, switches))
        gpus += count
        switches = parts[-1].find_switch(gpus - 1) + 1
    if len(parts) > 1 and gpus > _MAX_MIXED_GPUS:
        raise MachineError(
            f"machine {quote(spec)}: a mix has at most {_MAX_MIXED_GPUS} GPUs, not {gpus}"
        )
    return parts


@functools.cache
def _read_entries() -> dict[tuple[str, str], dict[str, Any]]:
    """Reads the entries, by the parts of their names before and behind the number of GPUs."""
    file = importlib.resources.files("tf_placer.machines") / "data" / _FILE
    machines = json.loads(file.read_text(encoding="utf-8"))["machines"]
    return {tuple(machine["name"].split("N", 1)): machine for machine in machines}


def _find_entry(spec: str) -> tuple[int, dict[str, Any]] | None:
    """Finds the number of GPUs in a name, and the entry of the name."""
    for (prefix, suffix), entry in _read_entries().items():
        match = re.fullmatch(f"{re.escape(prefix)}([0-9]{{1,9}}){re.escape(suffix)}", spec)
        if match:
            return int(match[1]), entry
    return None


def _build_sockets(spec: str, sockets: int, entry: _Entry) -> dict[str, Any]:
    """Builds the contents of a machine file for processors with a worker process each."""
    names = [name_worker_cpu(task) for task in range(sockets)]
    return {
        "format": 1,
        "name": spec,
        "devices": [{"name": name, **entry["socket"]} for name in names],
        "links": [
            _build_link(source, destination, entry["between_sockets"], None)
            for source, destination in itertools.permutations(names, 2)
        ],
    }


def _build_computer(spec: str, parts: Sequence[_Part]) -> dict[str, Any]:
    """Builds the contents of a machine file for a computer with GPUs."""
    computer = parts[0].entry
    gpus = [
        (gpu, part) for part in parts for gpu in range(part.first_gpu, part.first_gpu + part.count)
    ]
    cpu = computer["cpu"]
    if len(gpus) == 1:
        cpu = computer.get("cpu_of_one_gpu", cpu)
    names = [f"{_PREFIX}GPU:{gpu}" for gpu, _ in gpus]
    links = []
    for gpu, part in gpus:
        switch = part.find_switch(gpu)
        host = _choose_slower(part.entry["pcie"]["host"], computer["pcie"]["host"])
        links += [
            _build_link(_CPU, names[gpu], host, channel=f"host to switch {switch}"),
            _build_link(names[gpu], _CPU, host, channel=f"switch {switch} to host"),
        ]
    for (i, part), (j, other) in itertools.permutations(gpus, 2):
        if part is other:
            link = _find_peer_link(i, j, part, computer)
        else:
            link = _find_processor_link(i, part, other, computer)
        links.append(_build_link(names[i], names[j], **link))
    return {
        "format": 1,
        "name": spec,
        "devices": [
            {"name": _CPU, **cpu},
            *({"name": names[gpu], **part.entry["gpu"]} for gpu, part in gpus),
        ],
        "links": links,
    }


def _find_peer_link(i: int, j: int, part: _Part, computer: _Entry) -> dict[str, Any]:
    """Finds the speed and channel of the link from GPU i to GPU j of the same part."""
    entry = part.entry
    if "nvswitch" in entry:
        return {"speed": entry["nvswitch"], "channel": f"GPU {i} to the others"}
    first = part.first_gpu
    count = entry["nvlink"]["links"][i - first][j - first] if "nvlink" in entry else 0
    if count:
        speed = dict(entry["nvlink"]["each"])
        speed["bandwidth_bytes_per_sec"] *= count
        return {"speed": speed, "channel": None}
    if part.find_switch(i) == part.find_switch(j):
        return {"speed": entry["pcie"]["same_switch"], "channel": None}
    return _find_processor_link(i, part, part, computer)


def _find_processor_link(i: int, part: _Part, other: _Part, computer: _Entry) -> dict[str, Any]:
    """Finds the speed and channel of copies from GPU i that pass the processor of a computer."""
    speed = _choose_slower(
        *(each["pcie"]["other_switch"] for each in (part.entry, other.entry, computer))
    )
    return {"speed": speed, "channel": f"switch {part.find_switch(i)} to host"}


def _choose_slower(*speeds: Mapping[str, float]) -> dict[str, float]:
    """Combines the longest latency and the smallest bandwidth."""
    return {
        "latency_secs": max(speed["latency_secs"] for speed in speeds),
        "bandwidth_bytes_per_sec": min(speed["bandwidth_bytes_per_sec"] for speed in speeds),
    }


def _build_link(
    source: str, destination: str, speed: Mapping[str, float], channel: str | None
) -> dict[str, Any]:
    link = {"source": source, "destination": destination, **speed}
    return link if channel is None else {**link, "channel": channel}
