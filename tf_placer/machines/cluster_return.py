"""Waits for the servers of a TensorFlow cluster to come back, which others restart."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from tf_placer.machines.cluster_machine import list_cluster_devices
from tf_placer.machines.machine import Device, Machine, MachineError
from tf_placer.text.units import format_duration

__all__ = ["await_cluster", "find_silence_reason"]

_RETURN_TIMEOUT_SECS = 180.0
# TensorFlow waits for silent servers, so a failed attempt may use up its whole time limit.
_ATTEMPT_TIMEOUT_SECS = 30.0
_PAUSE_SECS = 1.0


def find_silence_reason(machine: Machine) -> str | None:
    """Finds the reason why the servers of a cluster do not answer; None if all of them do."""
    try:
        list_cluster_devices(machine.spec, _ATTEMPT_TIMEOUT_SECS)
    except MachineError as error:
        return str(error)
    return None


def await_cluster(
    machine: Machine,
    report: Callable[[str], None],
    *,
    devices: Callable[[str, float], Sequence[Device]] = list_cluster_devices,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Waits until all servers of a cluster answer.

    Args:
        machine: the cluster.
        report: called with a line for users when the wait begins, and when it is over.
        devices: lists the devices of a cluster within a time limit in seconds.
        clock: returns the time in seconds.
        sleep: waits for a number of seconds.

    Raises:
        MachineError: they do not answer within three minutes, or lack devices of the machine.
    """
    start_secs = clock()
    is_reported = False
    while True:
        try:
            found = devices(machine.spec, _ATTEMPT_TIMEOUT_SECS)
            break
        except MachineError as error:
            waited_secs = clock() - start_secs
            if waited_secs >= _RETURN_TIMEOUT_SECS:
                raise MachineError(
                    f"{machine.spec} has not come back within {format_duration(waited_secs)}: "
                    f"{error}"
                ) from None
            if not is_reported:
                is_reported = True
                report(f"{error}: waiting up to {format_duration(_RETURN_TIMEOUT_SECS)} for it")
            sleep(_PAUSE_SECS)
    names, wanted = ([each.name for each in those] for those in (found, machine.devices))
    # More devices are no error: the session configuration of the machine may hide some.
    if not set(wanted) <= set(names):
        raise MachineError(
            f"{machine.spec} has come back with other devices: {', '.join(names)} instead of "
            f"{', '.join(wanted)}"
        )
    if is_reported:
        report(f"{machine.spec} answers again, after {format_duration(clock() - start_secs)}")
