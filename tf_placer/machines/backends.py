"""The kinds of machines, and what the rest of the library has to know of each.

Nothing else asks of what kind a machine is: whoever has a machine asks a fact of its `backend`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Literal

__all__ = ["BACKENDS", "Kind", "MachineBackend"]

Kind = Literal["attached", "local", "cluster", "emulated", "described"]


@dataclasses.dataclass(frozen=True)
class MachineBackend:
    """The facts of a kind of machine.

    Attributes:
        names: the texts that name such machines, for messages.
        module: where its function `find` is, which takes a text and the ConfigProto of the
            sessions, and returns the machine that the text names, or None if it is of another kind.
        is_timed: whether steps can be timed on it.
        is_described: whether its devices have classes and its links are known from a description.
        in_one_process: whether sessions run in the process that holds all devices. Where they do
            not, they connect to servers.
        in_this_process: whether that process can be the caller's, with its functions of Python.
        starts_servers: whether each device is a TensorFlow server process on this computer, which
            `LocalCluster` starts, pins to the cores of the device and stops.
        is_remote: whether the devices are those of TensorFlow servers that somebody else runs, at
            the addresses that the name of the machine gives.
        shares_variables: whether sessions may find the variables of others by their names.
        sends_on_cores: whether devices send and receive with the cores that they compute on.
        suits_workers: whether each worker of a search can have such devices of its own.
        usual_link: latency in seconds and bandwidth in bytes per second of links that cannot be
            measured; None where links are described.
    """

    names: str
    module: str
    is_timed: bool = True
    is_described: bool = False
    in_one_process: bool = False
    in_this_process: bool = False
    starts_servers: bool = False
    is_remote: bool = False
    shares_variables: bool = False
    sends_on_cores: bool = False
    suits_workers: bool = False
    usual_link: tuple[float, float] | None = None


#: By kind, in the order in which they are asked for the machine of a name.
BACKENDS: Mapping[Kind, MachineBackend] = {
    # The devices of one TensorFlow process on this computer.
    "attached": MachineBackend(
        "'attached'",
        "tf_placer.machines.attached_machine",
        in_one_process=True,
        in_this_process=True,
        suits_workers=True,
        usual_link=(3e-5, 5e9),  # Through the memory of a computer.
    ),
    # One server process per device.
    "local": MachineBackend(
        "'local:N', 'local:N,memory_mb=M'",
        "tf_placer.machines.local_machine",
        starts_servers=True,
        shares_variables=True,
        sends_on_cores=True,
        suits_workers=True,
        usual_link=(5e-4, 1e9),  # Through sockets on it.
    ),
    # Servers that somebody else runs, whose variables of the same names may be in use.
    "cluster": MachineBackend(
        "'grpc://HOST:PORT'",
        "tf_placer.machines.cluster_machine",
        is_remote=True,
        usual_link=(5e-4, 5e8),  # Through a network.
    ),
    # A described machine whose GPUs TensorFlow has as pluggable devices of one process.
    "emulated": MachineBackend(
        "'emulated:NAME'",
        "tf_placer.machines.emulated_machine",
        is_described=True,
        in_one_process=True,
    ),
    # A machine that is not there.
    "described": MachineBackend(
        "a machine file (.json) or a name with a number of GPUs for N, of",
        "tf_placer.machines.catalog",
        is_timed=False,
        is_described=True,
    ),
}
