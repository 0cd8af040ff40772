"""Several equal computers with a network between them.

"2x4xV100@10Gb" names two computers, each of which is the machine "4xV100", whose network carries 10
gigabits per second into and out of each at a time. Each computer is a task of a TensorFlow cluster.
All that a computer sends to others shares one channel; what a computer receives from several others
at a time is not modeled.

A transfer between computers takes TensorFlow's gRPC, whose latency is an assumption within what it
takes between two processes on cores of their own (0.4 to 0.8 ms). Its bandwidth is that of the
network without the headers of TCP/IP and Ethernet, and no more than that of the PCIe paths of GPUs.
gRPC itself may carry less: users report 0.5 to 0.8 GB/s (TensorFlow's issue 6116). The name of the
machine may then have the gigabits that a cluster was measured to reach.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from graph_passes.util.messages import quote
from tf_placer.machines.machine import MachineError

__all__ = ["NetworkedName", "connect_computers", "describe_network", "split_networked_name"]

_NAME = re.compile(
    r"(?P<computers>[0-9]{1,9})x(?P<computer>[0-9].*)@(?P<gigabits>[0-9]{1,9}(\.[0-9]{1,9})?)Gb",
    re.DOTALL,
)
_MAX_COMPUTERS, _MAX_DEVICES = 8, 40
_LATENCY_SECS = 500e-6
# A full frame takes 1,538 bytes on the wire, 1,448 of which are payload.
_PAYLOAD_SHARE = 1448 / 1538
_BYTES_PER_GIGABIT = 1e9 / 8
# See TensorFlow's issue 6116.
_REPORTED_BYTES_PER_SEC = 0.8e9


class NetworkedName(NamedTuple):
    """The parts of the name of several computers.

    Attributes:
        computers: the number of computers.
        computer: the name of one of them.
        gigabits: what the network carries into or out of each, in gigabits per second.
    """

    computers: int
    computer: str
    gigabits: float


def split_networked_name(spec: str) -> NetworkedName | None:
    """Splits the name of several computers into its parts; None if it is no such name.

    Example:
        >>> split_networked_name("2x4xV100@10Gb")
        NetworkedName(computers=2, computer='4xV100', gigabits=10.0)
    """
    match = _NAME.fullmatch(spec)
    if match is None:
        return None
    return NetworkedName(int(match["computers"]), match["computer"], float(match["gigabits"]))


def describe_network(spec: str) -> str | None:
    """Says, as a clause, that a network is planned faster than users report of TensorFlow's gRPC.

    Args:
        spec: the name of a machine.

    Returns:
        None if its computers have no such network.
    """
    name = split_networked_name(spec)
    if name is None:
        return None
    bytes_per_gigabit = _PAYLOAD_SHARE * _BYTES_PER_GIGABIT
    if bytes_per_gigabit * name.gigabits <= 1.01 * _REPORTED_BYTES_PER_SEC:
        return None
    reported = _REPORTED_BYTES_PER_SEC / bytes_per_gigabit
    return (
        f"the network of {spec} is planned with {bytes_per_gigabit * name.gigabits / 1e9:.2g} "
        f"GB/s; users report that TensorFlow's gRPC carries no more than "
        f"{_REPORTED_BYTES_PER_SEC / 1e9:g} GB/s, which is {name.computers}x{name.computer}"
        f"@{reported:.1f}Gb"
    )


def connect_computers(
    spec: str, name: NetworkedName, description: Mapping[str, Any]
) -> dict[str, Any]:
    """Builds the contents of a machine file for several computers.

    Args:
        spec: the name of all.
        name: its parts.
        description: the contents of a machine file for one of them.

    Raises:
        MachineError: there are too few or too many computers, or devices in them; or the network
            carries nothing.
    """
    if not 2 <= name.computers <= _MAX_COMPUTERS:
        raise MachineError(
            f"machine {quote(spec)}: from 2 to {_MAX_COMPUTERS} computers can have a network, not "
            f"{name.computers}"
        )
    if name.gigabits <= 0:
        raise MachineError(f"machine {quote(spec)}: a network of 0 Gb carries nothing")
    of_one = description["devices"]
    if name.computers * len(of_one) > _MAX_DEVICES:
        raise MachineError(
            f"machine {quote(spec)}: computers with a network have at most {_MAX_DEVICES} CPUs and "
            f"GPUs in all, not {name.computers * len(of_one)}"
        )
    bandwidth = _PAYLOAD_SHARE * _BYTES_PER_GIGABIT * name.gigabits
    # The first link of a device is that with the CPU, which the network is beyond.
    to_cpu = {
        link["source"]: link["bandwidth_bytes_per_sec"] for link in reversed(description["links"])
    }
    devices, links = [], []
    for computer in range(name.computers):
        devices += [{**each, "name": _name_device(each["name"], computer)} for each in of_one]
        for link in description["links"]:
            moved = {end: _name_device(link[end], computer) for end in ("source", "destination")}
            if "channel" in link:
                moved["channel"] = f"{link['channel']} in computer {computer}"
            links.append({**link, **moved})
    for (i, source), (j, destination) in itertools.product(
        itertools.product(range(name.computers), of_one), repeat=2
    ):
        if i != j:
            ends = [to_cpu[each["name"]] for each in (source, destination)]
            links.append(
                {
                    "source": _name_device(source["name"], i),
                    "destination": _name_device(destination["name"], j),
                    "latency_secs": _LATENCY_SECS,
                    "bandwidth_bytes_per_sec": min(bandwidth, *ends),
                    "channel": f"network from computer {i}",
                }
            )
    return {**description, "name": spec, "devices": devices, "links": links}


def _name_device(name: str, computer: int) -> str:
    """Names a device of a computer as that of a task of a cluster."""
    _, _, device = name.partition("/device:")
    return f"/job:worker/replica:0/task:{computer}/device:{device}"
