"""The kinds of machines and their properties.

Other modules never compare the kind of a machine: they read the properties of its `backend`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Literal

__all__ = ["BACKENDS", "Kind", "MachineBackend"]

Kind = Literal["attached", "local", "numa", "cluster", "emulated", "described"]


@dataclasses.dataclass(frozen=True)
class MachineBackend:
    """The properties of a kind of machine.

    Attributes:
        names: the names of such machines, for messages.
        module: the module with its function `find`, which takes the name of a machine and the
            ConfigProto of the sessions, and returns the machine, or None if it is of another kind.
        is_timed: whether steps run on it, so that they can be timed.
        is_described: whether a description gives the classes of its devices and its links.
        in_one_process: whether sessions run in the process that holds all devices. Otherwise they
            connect to servers.
        in_this_process: whether that process can be the caller's, with its Python functions.
        starts_servers: whether each device is a TensorFlow server process on this computer, which
            `LocalCluster` starts, pins to the cores of the device and stops.
        limits_memory: whether these processes refuse tensors beyond the memory of their devices.
        is_remote: whether the devices belong to running TensorFlow servers, whose addresses are in
            the name of the machine.
        shares_variables: whether variables of the same name in different sessions are the same.
        sends_on_cores: whether devices send and receive with the cores that they compute on.
        suits_workers: whether each worker of a search can have such devices of its own.
        default_link: latency in seconds and bandwidth in bytes per second of links that cannot be
            measured; None where links are described.
    """

    names: str
    module: str
    is_timed: bool = True
    is_described: bool = False
    in_one_process: bool = False
    in_this_process: bool = False
    starts_servers: bool = False
    limits_memory: bool = False
    is_remote: bool = False
    shares_variables: bool = False
    sends_on_cores: bool = False
    suits_workers: bool = False
    default_link: tuple[float, float] | None = None


#: By kind, in the order in which `find_machine` tries them.
BACKENDS: Mapping[Kind, MachineBackend] = {
    # The devices of one TensorFlow process on this computer.
    "attached": MachineBackend(
        "'attached'",
        "tf_placer.machines.attached_machine",
        in_one_process=True,
        in_this_process=True,
        suits_workers=True,
        default_link=(3e-5, 5e9),  # Through the memory of the computer.
    ),
    # One server process per device.
    "local": MachineBackend(
        "'local:N', 'local:N,memory_mb=M'",
        "tf_placer.machines.local_machine",
        starts_servers=True,
        limits_memory=True,
        shares_variables=True,
        sends_on_cores=True,
        suits_workers=True,
        default_link=(5e-4, 1e9),  # Through local sockets.
    ),
    # One server process per NUMA node or group of cores; a full node borrows memory of others.
    "numa": MachineBackend(
        "'numa', 'cores:0-7/8-15'",
        "tf_placer.machines.numa_machine",
        starts_servers=True,
        shares_variables=True,
        sends_on_cores=True,
        default_link=(5e-4, 1e9),  # Through local sockets.
    ),
    # Running servers, whose variables of the same names may be in use by others.
    "cluster": MachineBackend(
        "'grpc://HOST:PORT'",
        "tf_placer.machines.cluster_machine",
        is_remote=True,
        default_link=(5e-4, 5e8),  # Through a network.
    ),
    # A described machine whose GPUs are pluggable devices of one TensorFlow process.
    "emulated": MachineBackend(
        "'emulated:NAME'",
        "tf_placer.machines.emulated_machine",
        is_described=True,
        in_one_process=True,
    ),
    # A machine that need not exist.
    "described": MachineBackend(
        "a machine file (.json), or a name such as 4xK80 (`python -m tf_placer machines` lists "
        "all), 1xA100+2xT4 or 2x8xA100@100Gb",
        "tf_placer.machines.catalog",
        is_timed=False,
        is_described=True,
    ),
}
