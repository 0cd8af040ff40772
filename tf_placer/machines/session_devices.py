"""Lists the devices of TensorFlow in a separate process, so that this one never holds a GPU."""

from __future__ import annotations

import pathlib
import re
import time
from collections.abc import Mapping
from typing import Any

from tf_placer.machines.machine import Device, MachineError
from tf_placer.processes import ChildDied, ChildProcess, ChildTimeout, await_message
from tf_placer.temporary_directory import temporary_directory

__all__ = ["list_session_devices"]

_DISCOVERY_TIMEOUT_SECS = 120.0


def list_session_devices(
    target: str,
    environ: Mapping[str, str],
    session_config: Any = None,
    timeout_secs: float | None = None,
) -> tuple[Device, ...]:
    """Lists the devices that a session sees, beginning with the CPU of its own process.

    Args:
        target: the target of the session; "" for the devices of one process.
        environ: the environment variables of the separate process.
        session_config: the ConfigProto of the session; None for TensorFlow's default.
        timeout_secs: the time limit for an answer; two minutes when None.

    Raises:
        MachineError: there is no answer, or no CPU; the message gives the reason.
    """
    what = target or "the attached devices"
    timeout_secs = _DISCOVERY_TIMEOUT_SECS if timeout_secs is None else timeout_secs
    with temporary_directory() as directory:
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
    return (own, *sorted((d for d in placeable if d != own), key=_build_sort_key))


def _build_sort_key(device: Device) -> list[Any]:
    """Builds a key that sorts "GPU:10" behind "GPU:9"."""
    return [int(part) if part.isdecimal() else part for part in re.split(r"(\d+)", device.name)]
