"""The identity of a machine and the sessions on it, by which results are found again."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import pathlib
from typing import Any

import tensorflow as tf

from tf_placer.machines.emulated_machine import make_emulated_machine
from tf_placer.machines.emulation_state import find_emulated_description
from tf_placer.machines.machine import Machine
from tf_placer.machines.processor import find_processor_name
from tf_placer.processes import environment_with_gpus

__all__ = ["compute_machine_identity", "describe_setup"]

_GPUS = pathlib.Path("/proc/driver/nvidia/gpus")
_MODEL = "Model:"


def describe_setup(
    machine: Machine, session_config: tf.compat.v1.ConfigProto | None
) -> dict[str, Any]:
    """Describes all that step times depend on, except for devices and the computer.

    Args:
        machine: the machine.
        session_config: the configuration of its sessions; None for TensorFlow's default.

    Returns:
        The name of the machine, the version of TensorFlow, a hash of the configuration, and the
        description of emulated GPUs, as JSON values.
    """
    config = tf.compat.v1.ConfigProto()
    if session_config is not None:
        config.CopyFrom(session_config)
    _clear_idle_fields(config)
    value: dict[str, Any] = {
        "spec": machine.spec,
        "tensorflow": tf.__version__,
        "session_config": hashlib.sha256(config.SerializeToString(deterministic=True)).hexdigest(),
    }
    # The links of emulated GPUs follow their description.
    if machine.backend.is_described:
        described = make_emulated_machine(machine.spec).links
        value["described"] = [dataclasses.asdict(link) for link in described]
    elif machine.backend.in_one_process and (
        file := find_emulated_description(environment_with_gpus())
    ):
        value["described"] = file
    return value


def compute_machine_identity(
    machine: Machine, session_config: tf.compat.v1.ConfigProto | None
) -> str:
    """Computes a hash that machines of equal hardware share, whatever the name of the computer.

    It covers `describe_setup`, names and types of the devices, the number of cores of each that is
    pinned, and, for devices of this computer, the models of its processor and its GPUs and the
    number of cores that this process may use. It leaves out memory: TensorFlow reports what is free
    of a GPU, which varies. Only where the models of GPUs are unknown, it has their GiB instead.

    Returns:
        64 hexadecimal digits.
    """
    value = {
        **describe_setup(machine, session_config),
        "devices": [[device.name, device.type, len(device.cores)] for device in machine.devices],
    }
    if not machine.backend.is_remote:
        value["processor"] = find_processor_name()
        value["cores"] = len(os.sched_getaffinity(0))
        gpus = [device for device in machine.devices if device.type == "GPU"]
        if gpus:
            # Containers may hide the files of the driver.
            sizes = [round((gpu.memory_bytes or 0) / 2**30) for gpu in gpus]
            value["gpus"] = _find_gpu_models() or sizes
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def _clear_idle_fields(config: tf.compat.v1.ConfigProto) -> None:
    """Clears fields that sessions without a configuration have, and that change no step times.

    TensorFlow 2 gives them empty messages, the numbers of devices, which are those of the machine,
    and soft placement, while `ConfigProto()` has none of these.
    """

    def clear_empty(message: Any) -> None:
        for field, value in message.ListFields():
            if hasattr(value, "ListFields"):
                clear_empty(value)
                if not value.ListFields():
                    message.ClearField(field.name)

    config.ClearField("device_count")
    config.ClearField("allow_soft_placement")
    clear_empty(config)


def _find_gpu_models() -> list[str]:
    """Lists the models of the NVIDIA GPUs of this computer, as their driver reports them."""
    lines = [
        line
        for file in sorted(_GPUS.glob("*/information"))
        for line in file.read_text(errors="replace").splitlines()
    ]
    return sorted(line.split(":", 1)[1].strip() for line in lines if line.startswith(_MODEL))
