"""A cache of the measured links of machines, in the user's cache directory."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import fcntl
import hashlib
import json
import os
from collections.abc import Iterator
from typing import Any

import tensorflow as tf

from graph_passes.util.json_records import read_value
from tf_placer.files import cache_directory, read_json, write_json
from tf_placer.machines.machine import Link, Machine
from tf_placer.machines.machine_identity import describe_setup
from tf_placer.machines.processor import find_processor_name

__all__ = ["KnownLinks", "find_links", "keep_links"]

_FORMAT = 3
_FILE = "links.json"
_MEASURED_FIELDS = ("transfer_share", "transfer_overhead_secs")


@dataclasses.dataclass(frozen=True)
class KnownLinks:
    """The links of a machine from an earlier measurement.

    Attributes:
        machine: the machine with its links.
        measured: the time of the measurement, in UTC.
    """

    machine: Machine
    measured: datetime.datetime

    @property
    def age_secs(self) -> float:
        """Seconds since the measurement."""
        return (datetime.datetime.now(datetime.UTC) - self.measured).total_seconds()


def find_links(
    machine: Machine, session_config: tf.compat.v1.ConfigProto | None
) -> KnownLinks | None:
    """Finds the links that were measured on the same machine with the same configuration.

    Args:
        machine: the machine without links.
        session_config: the ConfigProto of the sessions that measure; None for TensorFlow's default.

    Returns:
        The links; None if there are none, or if the file cannot be read.
    """
    try:
        cached = read_json(cache_directory() / _FILE)
        if cached["format"] != _FORMAT:
            return None
        entry = cached["machines"][_compute_key(machine, session_config)]
        devices = tuple(
            dataclasses.replace(device, **{name: values[name] for name in _MEASURED_FIELDS})
            for device, values in zip(machine.devices, entry["devices"], strict=True)
        )
        links = read_value(tuple[Link, ...], entry["links"], "links")
        measured = datetime.datetime.fromisoformat(entry["measured"])
        return KnownLinks(dataclasses.replace(machine, devices=devices, links=links), measured)
    except (OSError, KeyError, TypeError, ValueError):
        # An unreadable cache costs only another measurement.
        return None


def keep_links(machine: Machine, session_config: tf.compat.v1.ConfigProto | None) -> None:
    """Stores the links of a machine that were measured just now.

    Args:
        machine: the machine with measured links.
        session_config: the ConfigProto of the sessions that measured.

    Raises:
        OSError: the file cannot be written.
    """
    entry = {
        "machine": machine.spec,
        "measured": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "devices": [
            {name: getattr(device, name) for name in _MEASURED_FIELDS} for device in machine.devices
        ],
        "links": [dataclasses.asdict(link) for link in machine.links],
    }
    with _lock_file():
        path = cache_directory() / _FILE
        cached: dict[str, Any] = {"format": _FORMAT, "machines": {}}
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            before = read_json(path)
            if before["format"] == _FORMAT:
                cached["machines"] = dict(before["machines"])
        cached["machines"][_compute_key(machine, session_config)] = entry
        write_json(path, cached)


@contextlib.contextmanager
def _lock_file() -> Iterator[None]:
    """Keeps other processes from writing at the same time."""
    directory = cache_directory()
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    with open(directory / f"{_FILE}.lock", "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _compute_key(machine: Machine, session_config: tf.compat.v1.ConfigProto | None) -> str:
    """Computes a key of the machine and of everything that may change its links."""
    value = {
        **describe_setup(machine, session_config),
        "devices": [
            # The memory distinguishes GPUs of different models.
            [device.name, *device.cores, device.memory_bytes if device.type == "GPU" else None]
            for device in machine.devices
        ],
        "computer": "" if machine.backend.is_remote else _describe_computer(),
    }
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:32]


def _describe_computer() -> str:
    """Describes this computer, since others may share the user's home directory."""
    return f"{os.uname().nodename} {find_processor_name()} {os.cpu_count()}"
