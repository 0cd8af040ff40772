"""Finds machines by name: the attached one, processes on it, clusters, and described ones."""

from __future__ import annotations

import importlib
from typing import Any

from graph_passes.util.messages import quote
from tf_placer.machines.backends import BACKENDS
from tf_placer.machines.catalog import list_catalog_names
from tf_placer.machines.machine import Machine, MachineError

__all__ = ["find_machine"]


def find_machine(spec: str | None = None, session_config: Any = None) -> Machine:
    """Finds the devices of a machine.

    TensorFlow is asked in a process of its own, so that this one never holds a GPU.

    Args:
        spec: None or "attached": the CPU and the GPUs that TensorFlow sees on this computer;
            "local:N": N processes on this computer, each on its share of the cores that this
            process may use, with "local:N,memory_mb=M" at most M MiB of tensors in each;
            "grpc://HOST:PORT": the TensorFlow cluster of which a server listens there, and
            "grpc://HOST:PORT,HOST:PORT,...": the same with the addresses of all its tasks in their
            order, which functions need; a name of the catalog ("4xK80") or the path of a machine
            file (".json"): a machine that is not there, see `tf_placer.machines.catalog`;
            "emulated:4xK80": the same with its GPUs emulated, so that steps can be timed, see
            `tf_placer.machines.emulated_machine`.
        session_config: the ConfigProto of the sessions, which may see fewer devices and take less
            of their memory than those of TensorFlow's default, None.

    Returns:
        The machine; its links are not measured, and are known only of described and emulated ones.

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
    raise MachineError(f"unknown machine {quote(spec)}: expected {names} {list_catalog_names()}")
