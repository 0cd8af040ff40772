"""The devices of one TensorFlow process on this computer."""

from __future__ import annotations

from typing import Any

from tf_placer.machines.computer_memory import set_cpu_memory
from tf_placer.machines.machine import Machine
from tf_placer.machines.session_devices import list_session_devices
from tf_placer.processes import environment_with_gpus

__all__ = ["find"]


def find(spec: str, session_config: Any = None) -> Machine | None:
    """Finds the CPU and the GPUs of TensorFlow on this computer; see `find_machine`."""
    if spec != "attached":
        return None
    devices = list_session_devices("", environment_with_gpus(), session_config)
    return set_cpu_memory(Machine(spec, "attached", devices))
