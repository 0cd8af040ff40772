"""Which machine is meant: the attached one, processes on it, a cluster, or a described one."""

from __future__ import annotations

import dataclasses
import itertools
import os
import pathlib
import re
import socket
import time
from collections.abc import Mapping, Sequence
from typing import Any

from absl import logging

from graph_passes.util.messages import quoted
from tf_placer.machines.catalogue import catalogue_names, described_machine, is_described
from tf_placer.machines.emulated_machine import PREFIX, emulated_machine
from tf_placer.machines.machine import Device, Kind, Machine, MachineError
from tf_placer.processes import (
    ChildDied,
    ChildProcess,
    ChildTimeout,
    await_message,
    environment_with_gpus,
    environment_without_gpus,
)
from tf_placer.scratch import scratch_directory

__all__ = ["check_reachable", "cluster_devices", "computer_memory_bytes", "find_machine"]

_CONNECT_TIMEOUT_SECS = 10.0
_DISCOVERY_TIMEOUT_SECS = 120.0
# Every two of them have a link.
_MOST_PROCESSES = 256
_NUMBER = re.compile("[0-9]{1,9}")
# TensorFlow's allocator has a number of 8 bytes for every 256 bytes of a GPU.
_TABLE_SHARE = 8 / 256
_MACHINES = (
    "'attached', 'local:N', 'local:N,memory_mb=M', 'grpc://HOST:PORT', 'emulated:NAME', a machine "
    "file (.json) or a name with a number of GPUs for N, of "
)


def find_machine(spec: str | None = None, session_config: Any = None) -> Machine:
    """Finds the devices of a machine.

    TensorFlow is asked in a process of its own, so that this one never holds a GPU.

    Args:
        spec: None or "attached": the CPU and the GPUs that TensorFlow sees on this computer;
            "local:N": N processes on this computer, each on its share of the cores that this
            process may use, with "local:N,memory_mb=M" at most M MiB of tensors in each;
            "grpc://HOST:PORT": the TensorFlow cluster of which a server listens there, and
            "grpc://HOST:PORT,HOST:PORT,...": the same with the addresses of all its tasks in their
            order, which functions need; a name of the catalogue ("4xK80") or the path of a machine
            file (".json"): a machine that is not there, see `tf_placer.machines.catalogue`;
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
        raise MachineError(f"a machine is named by a text, such as 'local:2', not {quoted(spec)}")
    if spec is None or spec == "attached":
        devices = _ask_tensorflow("", environment_with_gpus(), session_config)
        return _with_memory_of_computer(_machine("attached", "attached", devices))
    if spec.startswith("local:"):
        return _machine(spec, "local", _local_devices(spec))
    if spec.startswith("grpc://"):
        return _machine(spec, "cluster", cluster_devices(spec, session_config=session_config))
    if spec.startswith(PREFIX):
        emulated = emulated_machine(spec, session_config)
        _check_tables_fit(emulated)
        return _with_memory_of_computer(emulated)
    if is_described(spec):
        return described_machine(spec)
    raise MachineError(f"unknown machine {quoted(spec)}: expected {_MACHINES}{catalogue_names()}")


def cluster_devices(
    spec: str, timeout_secs: float = _DISCOVERY_TIMEOUT_SECS, session_config: Any = None
) -> Sequence[Device]:
    """Lists the devices of all servers of a TensorFlow cluster.

    Args:
        spec: the cluster, as `find_machine` takes it.
        timeout_secs: how long to wait for servers that do not answer; two minutes when None.
        session_config: see `find_machine`.

    Raises:
        MachineError: no server listens at one of the addresses, or one of the cluster is silent.
    """
    for address in spec.removeprefix("grpc://").split(","):
        check_reachable(f"grpc://{address}")
    target = spec.partition(",")[0]
    devices = _ask_tensorflow(target, environment_without_gpus(), session_config, timeout_secs)
    # TensorFlow reports 256 MiB for every CPU, whatever it has.
    return [
        dataclasses.replace(device, memory_bytes=None) if device.type == "CPU" else device
        for device in devices
    ]


def check_reachable(target: str) -> None:
    """Checks that something listens at a "grpc://HOST:PORT" address.

    TensorFlow itself would wait for it for ever.

    Raises:
        MachineError: nothing does, or this is not such an address.
    """
    match = re.fullmatch(r"grpc://(?:\[([^\]/]+)\]|([^:/]+)):(\d{1,5})", target)
    if not match or not 0 < int(match[3]) < 65536:
        raise MachineError(f"{quoted(target)} is not an address like 'grpc://HOST:PORT'")
    try:
        socket.create_connection(
            (match[1] or match[2], int(match[3])), _CONNECT_TIMEOUT_SECS
        ).close()
    except OSError as error:
        raise MachineError(
            f"no TensorFlow server answers at {target}: {error.strerror or error}"
        ) from None


def _machine(spec: str, kind: Kind, devices: Sequence[Device]) -> Machine:
    return Machine(spec, kind, tuple(devices))


def _with_memory_of_computer(machine: Machine) -> Machine:
    """Gives the CPUs of a machine in one process the memory of this computer."""
    memory_bytes = computer_memory_bytes()
    return dataclasses.replace(
        machine,
        devices=tuple(
            dataclasses.replace(device, memory_bytes=memory_bytes)
            if device.type == "CPU"
            else device
            for device in machine.devices
        ),
    )


def _check_tables_fit(machine: Machine) -> None:
    """Makes sure that what TensorFlow writes down of each GPU's memory fits into this computer.

    Raises:
        MachineError: it does not.
    """
    gpus = [device.memory_bytes or 0 for device in machine.devices if device.type == "GPU"]
    needed_bytes = sum(gpus) * _TABLE_SHARE
    if needed_bytes > computer_memory_bytes():
        raise MachineError(
            f"machine {quoted(machine.spec)}: TensorFlow keeps tables of its GPUs' memory, which "
            f"take {needed_bytes / 2**30:.0f} GiB, and this computer has "
            f"{computer_memory_bytes() / 2**30:.0f} GiB: emulate fewer GPUs, or let sessions take "
            "a per_process_gpu_memory_fraction"
        )


def _local_devices(spec: str) -> list[Device]:
    count_text, *options = spec.removeprefix("local:").split(",")
    if not _NUMBER.fullmatch(count_text) or not 1 <= int(count_text) <= _MOST_PROCESSES:
        raise MachineError(
            f"machine {quoted(spec)}: the number of processes must be from 1 to "
            f"{_MOST_PROCESSES}, not {quoted(count_text)}"
        )
    count = int(count_text)
    memory_bytes = None
    for option in options:
        name, _, value = option.partition("=")
        if name != "memory_mb":
            raise MachineError(
                f"machine {quoted(spec)}: unknown option {quoted(name)}, expected 'memory_mb'"
            )
        if not _NUMBER.fullmatch(value) or int(value) < 1:
            raise MachineError(
                f"machine {quoted(spec)}: memory_mb must be a number of MiB, from 1 to 999999999, "
                f"not {quoted(value)}"
            )
        memory_bytes = int(value) * 2**20
    cores = sorted(os.sched_getaffinity(0))
    if count > len(cores):
        logging.warning(
            "%s: %d processes share %d core%s, so their step times disturb each other",
            spec,
            count,
            len(cores),
            "" if len(cores) == 1 else "s",
        )
        shares: list[tuple[int, ...]] = [(cores[task % len(cores)],) for task in range(count)]
    else:
        bounds = [task * len(cores) // count for task in range(count + 1)]
        shares = [tuple(cores[low:high]) for low, high in itertools.pairwise(bounds)]
    return [
        Device(f"/job:worker/replica:0/task:{task}/device:CPU:0", "CPU", memory_bytes, share)
        for task, share in enumerate(shares)
    ]


def _ask_tensorflow(
    target: str,
    environ: Mapping[str, str],
    session_config: Any = None,
    timeout_secs: float | None = None,
) -> list[Device]:
    """Asks for the devices that a session with this target sees, first the session's own CPU."""
    what = target or "the attached devices"
    timeout_secs = _DISCOVERY_TIMEOUT_SECS if timeout_secs is None else timeout_secs
    with scratch_directory() as directory:
        child = ChildProcess(
            "the process that asks TensorFlow for its devices",
            "tf_placer.machines.attached_devices",
            {
                "target": target,
                "timeout_secs": timeout_secs,
                "session_config": (
                    "" if session_config is None else session_config.SerializeToString().hex()
                ),
            },
            log_path=pathlib.Path(directory, "discovery.log"),
            environ=environ,
        )
        try:
            answer = await_message(child, (), time.monotonic() + timeout_secs)[0]
        except ChildDied as death:
            raise MachineError(f"cannot list {what}: {death}: {child.log_tail()}") from None
        except ChildTimeout:
            raise MachineError(f"cannot list {what}: no answer within {timeout_secs:g} s") from None
        finally:
            child.stop()
    if "error" in answer:
        raise MachineError(f"cannot list {what}: {answer['error']}")
    found = [Device(**device) for device in answer["devices"]]
    placeable = [device for device in found if device.type in ("CPU", "GPU")]
    # A session lists the devices of its own process first.
    own = next((device for device in placeable if device.type == "CPU"), None)
    if own is None:
        raise MachineError(f"cannot list {what}: TensorFlow sees no CPU device there")
    return [own, *sorted((d for d in placeable if d != own), key=_order)]


def _order(device: Device) -> list[Any]:
    """Sorts "GPU:10" behind "GPU:9"."""
    return [int(part) if part.isdecimal() else part for part in re.split(r"(\d+)", device.name)]


def computer_memory_bytes() -> int:
    """Bytes of memory that this computer, or the container around this process, has."""
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    for path in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        try:
            total = min(total, int(pathlib.Path(path).read_text()))
        except (OSError, ValueError):
            continue  # No control group, or one without a limit ("max").
    return total
