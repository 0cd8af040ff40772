"""A binding of groups that fills the memory of one device after the other."""

from __future__ import annotations

from collections.abc import Sequence

from tf_placer.placers.heuristics.group_binding import GroupBinding

__all__ = ["fill_devices"]


def fill_devices(order: Sequence[int], devices: Sequence[int], binding: GroupBinding) -> None:
    """Binds groups to a device until the next group does not fit, then fills the next device.

    A group that may not go to the current device, or does not fit on the last one, goes to the
    first allowed device that it fits on; a group that fits nowhere goes to the device with the
    smallest lack of memory.

    Args:
        order: all groups.
        devices: the devices in the order to fill them.
        binding: the allowed devices of the groups; binds the groups to the chosen devices.
    """
    turn = 0
    for group in order:
        if devices[turn] in binding.list_allowed(group):
            while turn < len(devices) - 1 and not binding.can_go(group, devices[turn]):
                turn += 1
        wanted = devices[turn]
        binding.bind(
            group, wanted if binding.can_go(group, wanted) else binding.list_choices(group)[0]
        )
