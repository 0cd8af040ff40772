"""Filling the memory of one device after the other."""

from __future__ import annotations

from collections.abc import Sequence

from tf_placer.placers.heuristics.group_binding import GroupBinding

__all__ = ["fill_in_order"]


def fill_in_order(order: Sequence[int], devices: Sequence[int], binding: GroupBinding) -> None:
    """Binds groups to a device until the next one does not fit, then goes on with the next device.

    A group that may not go to the device whose turn it is goes to the first that it may go to and
    fits on, and so does one that does not fit on the last; one that fits nowhere goes where least
    room is missing.

    Args:
        order: all groups.
        devices: the devices to fill, in this order.
        binding: what the groups may be bound to; they are bound to where they go.
    """
    turn = 0
    for group in order:
        if devices[turn] in binding.allowed(group):
            while turn < len(devices) - 1 and not binding.can_go(group, devices[turn]):
                turn += 1
        wanted = devices[turn]
        binding.bind(group, wanted if binding.can_go(group, wanted) else binding.choices(group)[0])
