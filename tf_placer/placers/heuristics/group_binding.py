"""The devices of groups, bound one by one while operations are scheduled."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tf_placer.placers.heuristics.group_memory import GroupMemory

__all__ = ["GroupBinding"]

_FREE = -1


class GroupBinding:
    """A partial placement, in which a group is bound when its first operation is scheduled.

    A bound group takes memory on its device for itself and for the tensors that it reads, which
    are needed there wherever they are made; and, for a tensor that shares memory where it is made,
    for its copies on other devices. Memory is never freed, so a group that does not fit on a device
    never fits there later.
    """

    def __init__(
        self,
        allowed: np.ndarray,
        memories: Sequence[GroupMemory],
        memory_bytes: Sequence[float],
    ) -> None:
        """Makes a placement without bound groups.

        Args:
            allowed: bool [num_groups, num_devices], true where a group may go.
            memories: the memory of groups at some instants.
            memory_bytes: the memory of each device; infinite for no limit.
        """
        self._devices = [_FREE] * len(allowed)
        self._allowed = [np.flatnonzero(row).tolist() for row in allowed]
        self._instants = [_Instant(self._devices, memory, memory_bytes) for memory in memories]

    def list_allowed(self, group: int) -> list[int]:
        """Lists the devices that a group may go to, fitting or not; if bound, only its device."""
        device = self._devices[group]
        return self._allowed[group] if device == _FREE else [device]

    def can_go(self, group: int, device: int) -> bool:
        """Tells whether a group may go to a device and fits there, or is there already."""
        bound = self._devices[group]
        if bound != _FREE:
            return bound == device
        return device in self._allowed[group] and all(
            instant.compute_room(group, device) >= 0 for instant in self._instants
        )

    def compute_room(self, group: int, device: int) -> float:
        """Computes the free bytes of a device with a group on it; negative if it does not fit."""
        return min(instant.compute_room(group, device) for instant in self._instants)

    def list_choices(self, group: int) -> list[int]:
        """Lists the devices that a group can be bound to.

        Returns:
            Its device if it is bound. Otherwise the allowed devices that it fits on; if it fits
            nowhere, the allowed device with the smallest lack of memory.
        """
        allowed = self.list_allowed(group)
        fitting = [device for device in allowed if self.can_go(group, device)]
        return fitting or [max(allowed, key=lambda device: self.compute_room(group, device))]

    def bind(self, group: int, device: int) -> None:
        """Binds a group to a device, unless it is bound already."""
        if self._devices[group] == _FREE:
            self._devices[group] = device
            for instant in self._instants:
                instant.bind(group, device)

    def build_placement(self) -> np.ndarray:
        """Lists the devices of the groups, the first allowed one if unbound: int32 [num_groups]."""
        return np.array([self.list_allowed(g)[0] for g in range(len(self._devices))], np.int32)


class _Instant:
    """The free memory of the devices at one instant."""

    def __init__(
        self, devices: list[int], memory: GroupMemory, memory_bytes: Sequence[float]
    ) -> None:
        """Makes an instant at which no group is bound.

        Args:
            devices: the device of each group, kept up to date by the caller.
            memory: the memory of groups at this instant.
            memory_bytes: the memory of each device.
        """
        self._devices = devices
        self._kept = memory.kept_bytes.tolist()
        self._temporary = memory.temporary_bytes.tolist()
        self._room = list(memory_bytes)
        self._most_temporary = [0] * len(self._room)
        self._owners = memory.tensor_groups.tolist()
        self._copy_bytes = memory.tensor_bytes.tolist()
        self._local_bytes = memory.local_bytes.tolist()
        # The counted bytes of each tensor, by device.
        self._held: list[dict[int, int]] = [{} for _ in self._owners]
        self._tensors: list[list[int]] = [[] for _ in self._kept]  # Read or sent by each group.
        self._sent: list[list[tuple[int, int]]] = [[] for _ in self._kept]  # Tensor and reader.
        for tensor, owner in enumerate(self._owners):
            self._kept[owner] -= self._local_bytes[tensor]
            self._tensors[owner].append(tensor)
        for tensor, reader in memory.reads.tolist():
            self._tensors[reader].append(tensor)
            self._sent[self._owners[tensor]].append((tensor, reader))

    def compute_room(self, group: int, device: int) -> float:
        """Computes the free bytes at this instant; see `GroupBinding.compute_room`."""
        temporary = max(self._temporary[group], self._most_temporary[device])
        room = self._room[device] - self._kept[group] - temporary
        for tensor in self._tensors[group]:
            room -= self._compute_missing(tensor, device)
        return room

    def bind(self, group: int, device: int) -> None:
        """Takes memory for a group that `devices` has on a device now."""
        self._room[device] -= self._kept[group]
        self._most_temporary[device] = max(self._most_temporary[device], self._temporary[group])
        for tensor in self._tensors[group]:
            self._hold(tensor, device)
        for tensor, reader in self._sent[group]:
            if self._devices[reader] != _FREE:
                self._hold(tensor, self._devices[reader])

    def _compute_missing(self, tensor: int, device: int) -> int:
        """Computes the bytes that a tensor would add to a device."""
        is_copy = self._devices[self._owners[tensor]] not in (_FREE, device)
        size = self._copy_bytes[tensor] if is_copy else self._local_bytes[tensor]
        more: int = max(size - self._held[tensor].get(device, 0), 0)
        return more

    def _hold(self, tensor: int, device: int) -> None:
        """Takes memory for a tensor that is needed on a device."""
        more = self._compute_missing(tensor, device)
        self._room[device] -= more
        self._held[tensor][device] = self._held[tensor].get(device, 0) + more
