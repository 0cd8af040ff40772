"""Machines that consist of running TensorFlow servers."""

from __future__ import annotations

import dataclasses
import re
import socket
from collections.abc import Sequence
from typing import Any

from graph_passes.util.messages import quote
from tf_placer.machines.machine import Device, Machine, MachineError
from tf_placer.machines.session_devices import list_session_devices
from tf_placer.processes import environment_without_gpus

__all__ = ["check_reachable", "find", "list_cluster_devices"]

_PREFIX = "grpc://"
_CONNECT_TIMEOUT_SECS = 10.0


def find(spec: str, session_config: Any = None) -> Machine | None:
    """Finds the cluster at "grpc://HOST:PORT" or "grpc://HOST:PORT,..."; see `find_machine`.

    Raises:
        MachineError: see `list_cluster_devices`.
    """
    if not spec.startswith(_PREFIX):
        return None
    return Machine(
        spec, "cluster", tuple(list_cluster_devices(spec, session_config=session_config))
    )


def list_cluster_devices(
    spec: str, timeout_secs: float | None = None, session_config: Any = None
) -> Sequence[Device]:
    """Lists the devices of all servers of a TensorFlow cluster.

    Args:
        spec: the name of the cluster; see `find_machine`.
        timeout_secs: the time limit for servers that do not answer; two minutes when None.
        session_config: see `find_machine`.

    Raises:
        MachineError: no server listens at one of the addresses, or a server does not answer.
    """
    for address in spec.removeprefix(_PREFIX).split(","):
        check_reachable(f"grpc://{address}")
    target = spec.partition(",")[0]
    devices = list_session_devices(target, environment_without_gpus(), session_config, timeout_secs)
    # TensorFlow reports 256 MiB for every CPU, regardless of its memory.
    return [
        dataclasses.replace(device, memory_bytes=None) if device.type == "CPU" else device
        for device in devices
    ]


def check_reachable(target: str) -> None:
    """Checks that a server listens at a "grpc://HOST:PORT" address.

    TensorFlow itself would wait for a missing server forever.

    Raises:
        MachineError: no server listens there, or the address is malformed.
    """
    match = re.fullmatch(r"grpc://(?:\[([^\]/]+)\]|([^:/]+)):(\d{1,5})", target)
    if not match or not 0 < int(match[3]) < 65536:
        raise MachineError(f"{quote(target)} is not an address like 'grpc://HOST:PORT'")
    try:
        socket.create_connection(
            (match[1] or match[2], int(match[3])), _CONNECT_TIMEOUT_SECS
        ).close()
    except OSError as error:
        raise MachineError(
            f"no TensorFlow server answers at {target}: {error.strerror or error}"
        ) from None
