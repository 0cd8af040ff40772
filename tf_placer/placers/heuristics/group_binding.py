"""Which device each group is bound to while operations are scheduled one by one."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tf_placer.placers.heuristics.group_memory import GroupMemory

__all__ = ["GroupBinding"]

_FREE = -1


class GroupBinding:
    """Groups without a device, until the first of their operations is scheduled.

    A group takes room on its device for itself and for the tensors that it reads, which will be
    there wherever they come from, and, if a tensor shares memory where it is made, for the copies
    of it elsewhere. Room is never given back, so what does not fit once never will.
    """

    def __init__(
        self,
        allowed: np.ndarray,
        memories: Sequence[GroupMemory],
        memory_bytes: Sequence[float],
    ) -> None:
        """Binds nothing yet.

        Args:
            allowed: bool [num_groups, num_devices], where groups may go.
            memories: what groups hold at some instants.
            memory_bytes: what each device can hold at any; infinite if that does not matter.
        """
        self._devices = [_FREE] * len(allowed)
        self._allowed = [np.flatnonzero(row).tolist() for row in allowed]
        self._instants = [_Instant(self._devices, memory, memory_bytes) for memory in memories]

    def allowed(self, group: int) -> list[int]:
        """Lists the devices that a group may go to, fitting or not: its own, if it has one."""
        device = self._devices[group]
        return self._allowed[group] if device == _FREE else [device]

    def can_go(self, group: int, device: int) -> bool:
        """Says whether a group may go to a device and has room there, or is there already."""
        bound = self._devices[group]
        if bound != _FREE:
            return bound == device
        return device in self._allowed[group] and all(
            instant.room_after(group, device) >= 0 for instant in self._instants
        )

    def room_after(self, group: int, device: int) -> float:
        """Bytes that a device has left once a group is there; negative if it does not fit."""
        return min(instant.room_after(group, device) for instant in self._instants)

    def choices(self, group: int) -> list[int]:
        """Lists the devices that a group can be bound to.

        Returns:
            Its device, if it has one. Else those that it may go to and has room on; if it has room
            nowhere, the one where least is missing.
        """
        allowed = self.allowed(group)
        fitting = [device for device in allowed if self.can_go(group, device)]
        return fitting or [max(allowed, key=lambda device: self.room_after(group, device))]

    def bind(self, group: int, device: int) -> None:
        """Binds a group to a device, unless it is bound already."""
        if self._devices[group] == _FREE:
            self._devices[group] = device
            for instant in self._instants:
                instant.bind(group, device)

    def placement(self) -> np.ndarray:
        """Lists the device of each group, the first for one not bound: int32 [num_groups]."""
        return np.array([self.allowed(g)[0] for g in range(len(self._devices))], np.int32)


class _Instant:
    """What room there is at one instant."""

    def __init__(
        self, devices: list[int], memory: GroupMemory, memory_bytes: Sequence[float]
    ) -> None:
        """Takes nothing yet.

        Args:
            devices: the device of each group, kept up to date by the caller.
            memory: what groups hold at this instant.
            memory_bytes: what each device can hold.
        """
        self._devices = devices
        self._kept = memory.kept_bytes.tolist()
        self._temporary = memory.temporary_bytes.tolist()
        self._room = list(memory_bytes)
        self._most_temporary = [0] * len(self._room)
        self._owners = memory.tensor_groups.tolist()
        self._copy_bytes = memory.tensor_bytes.tolist()
        self._local_bytes = memory.local_bytes.tolist()
        # What is taken into account of each tensor, by device.
        self._held: list[dict[int, int]] = [{} for _ in self._owners]
        self._tensors: list[list[int]] = [[] for _ in self._kept]  # Read or sent by each group.
        self._sent: list[list[tuple[int, int]]] = [[] for _ in self._kept]  # Tensor and reader.
        for tensor, owner in enumerate(self._owners):
            self._kept[owner] -= self._local_bytes[tensor]
            self._tensors[owner].append(tensor)
        for tensor, reader in memory.reads.tolist():
            self._tensors[reader].append(tensor)
            self._sent[self._owners[tensor]].append((tensor, reader))

    def room_after(self, group: int, device: int) -> float:
        """Computes the room that is left at this instant; see `GroupBinding.room_after`."""
        temporary = max(self._temporary[group], self._most_temporary[device])
        room = self._room[device] - self._kept[group] - temporary
        for tensor in self._tensors[group]:
            room -= self._missing(tensor, device)
        return room

    def bind(self, group: int, device: int) -> None:
        """Takes room for a group that is on a device from now on, as `devices` says."""
        self._room[device] -= self._kept[group]
        self._most_temporary[device] = max(self._most_temporary[device], self._temporary[group])
        for tensor in self._tensors[group]:
            self._hold(tensor, device)
        for tensor, reader in self._sent[group]:
            if self._devices[reader] != _FREE:
                self._hold(tensor, self._devices[reader])

    def _missing(self, tensor: int, device: int) -> int:
        """Computes what a tensor would add to what a device holds."""
        is_copy = self._devices[self._owners[tensor]] not in (_FREE, device)
        size = self._copy_bytes[tensor] if is_copy else self._local_bytes[tensor]
        more: int = max(size - self._held[tensor].get(device, 0), 0)
        return more

    def _hold(self, tensor: int, device: int) -> None:
        """Takes room for a tensor that is needed on a device."""
        more = self._missing(tensor, device)
        self._room[device] -= more
        self._held[tensor][device] = self._held[tensor].get(device, 0) + more
