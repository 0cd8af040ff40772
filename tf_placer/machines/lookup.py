"""Finds machines by name: the attached machine, local processes, clusters, described machines."""

from __future__ import annotations

import importlib
import re
from typing import Any

from graph_passes.util.messages import quote
from tf_placer.machines.backends import BACKENDS
from tf_placer.machines.catalog import suggest_machines
from tf_placer.machines.machine import Machine, MachineError

__all__ = ["find_machine"]

_LOCAL = re.compile("[0-9]{1,4}(,memory_mb=[0-9]{1,9})?")


def find_machine(spec: str | None = None, session_config: Any = None) -> Machine:
    """Finds the devices of a machine.

    A separate process lists the devices of TensorFlow, so that this process never holds a GPU.

    Args:
        spec: the name of the machine.
            None or "attached": the CPU and the GPUs of TensorFlow on this computer.
            "local:N": N processes on this computer, each on its share of the cores that this
            process may use; "local:N,memory_mb=M" limits the tensors of each to M MiB.
            "numa": a process for each NUMA node of this computer, on those of its cores that this
            process may use; "cores:0-7/8-15": a process for each of these groups of cores.
            "grpc://HOST:PORT": the TensorFlow cluster of the server at this address;
            "grpc://HOST:PORT,HOST:PORT,..." gives the addresses of all its tasks in their order,
            which functions need.
            A name of the catalog ("4xK80"), a mix ("1xA100+2xT4"), several computers
            ("2x8xA100@100Gb") or the path of a machine file (".json"): a described machine, which
            need not exist; see `tf_placer.machines.catalog`.
            "emulated:4xK80": a described machine with emulated GPUs, so that steps can be timed;
            see `tf_placer.machines.emulated_machine`.
        session_config: the ConfigProto of the sessions, which may hide devices and limit their
            memory; None for TensorFlow's default.

    Returns:
        The machine. Only described and emulated machines have links; others are not measured yet.

    Raises:
        MachineError: there is no such machine.
    """
    if spec is not None and not isinstance(spec, str):
        raise MachineError(f"a machine is named by a text, such as 'local:2', not {quote(spec)}")
    spec = "attached" if spec is None else spec
    for backend in BACKENDS.values():
        found: Machine | None = importlib.import_module(backend.module).find(spec, session_config)
        if found is not None:
            return found
    names = ", ".join(backend.names for backend in BACKENDS.values())
    number = spec.partition(":")[2]
    local = f"local:{number if _LOCAL.fullmatch(number) else 2}"
    near = suggest_machines(spec, ("attached", "numa", local))
    raise MachineError(f"unknown machine {quote(spec)}{near}: expected {names}")
