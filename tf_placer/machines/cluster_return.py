"""Waits for the servers of a TensorFlow cluster, which others start, when they are gone."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from tf_placer.machines.cluster_machine import cluster_devices
from tf_placer.machines.machine import Device, Machine, MachineError
from tf_placer.text.units import format_duration

__all__ = ["await_cluster", "why_silent"]

# TensorFlow waits for silent servers, so a failed look may take all of its time limit.
_RETURN_SECS, _LOOK_SECS = 180.0, 30.0
_PAUSE_SECS = 1.0


def why_silent(machine: Machine) -> str | None:
    """Says why the servers of a cluster do not answer; None if all of them do."""
    try:
        cluster_devices(machine.spec, _LOOK_SECS)
    except MachineError as error:
        return str(error)
    return None


def await_cluster(
    machine: Machine,
    report: Callable[[str], None],
    *,
    devices: Callable[[str, float], Sequence[Device]] = cluster_devices,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Waits until all servers of a cluster answer, if they do not.

    Args:
        machine: the cluster.
        report: called with a line for people when they have to wait, and when that is over.
        devices: lists the devices of a cluster within some seconds.
        clock: gives the time in seconds.
        sleep: waits for some seconds.

    Raises:
        MachineError: they are not back within three minutes, or without devices of the machine.
    """
    start_secs = clock()
    is_told = False
    while True:
        try:
            found = devices(machine.spec, _LOOK_SECS)
            break
        except MachineError as error:
            waited_secs = clock() - start_secs
            if waited_secs >= _RETURN_SECS:
                raise MachineError(
                    f"{machine.spec} has not come back within {format_duration(waited_secs)}: "
                    f"{error}"
                ) from None
            if not is_told:
                is_told = True
                report(f"{error}: waiting up to {format_duration(_RETURN_SECS)} for it")
            sleep(_PAUSE_SECS)
    names, wanted = ([each.name for each in those] for those in (found, machine.devices))
    # Sessions may be kept from seeing some of them.
    if not set(wanted) <= set(names):
        raise MachineError(
            f"{machine.spec} has come back with other devices: {', '.join(names)} instead of "
            f"{', '.join(wanted)}"
        )
    if is_told:
        report(f"{machine.spec} answers again, after {format_duration(clock() - start_secs)}")
