"""Earliest task first: a list scheduler that always takes the operation that can start first."""

from __future__ import annotations

import heapq
from collections.abc import Sequence

from tf_placer.placers.heuristics.group_binding import GroupBinding
from tf_placer.placers.heuristics.schedule_costs import ScheduleCosts

__all__ = ["schedule_earliest_first"]

_NONE = -1


def schedule_earliest_first(
    costs: ScheduleCosts, binding: GroupBinding, *, favorites: Sequence[int] | None = None
) -> tuple[list[int], list[float], list[float]]:
    """Schedules all operations.

    Of all pairs of an operation whose inputs are scheduled and a device that it may go to and fits
    on, the pair that can start first is scheduled next; ties go to the first operation in
    topological order, and then to the device where it ends first. An operation that fits nowhere
    is scheduled when no other operation is left, on the device with the smallest lack of memory.

    With favorite children, a device whose last operation has a favorite that can start there no
    later than elsewhere waits for it, and meanwhile takes only urgent operations: those that could
    start on any device by then.

    Args:
        costs: the costs of the operations.
        binding: the allowed devices of the groups; binds the groups to the chosen devices.
        favorites: for each operation its favorite among its followers, -1 if it has none; None
            for a schedule without favorites.

    Returns:
        For each operation its device, start and end, in seconds.
    """
    schedule = _Schedule(costs, binding, favorites)
    for _ in costs.order:
        schedule.take_next()
    return schedule.devices, schedule.starts, schedule.ends


class _Queue:
    """The operations that a device could run next, earliest first."""

    def __init__(self) -> None:
        self._waiting: list[tuple[float, int, int]] = []  # (ready time, place in order, operation)
        self._ready: list[tuple[int, int]] = []

    def add(self, ready_secs: float, place: int, operation: int) -> None:
        """Adds an operation whose inputs arrive at a time."""
        heapq.heappush(self._waiting, (ready_secs, place, operation))

    def move_ready(self, now_secs: float) -> None:
        """Marks the operations that are ready when the device is free."""
        while self._waiting and self._waiting[0][0] <= now_secs:
            heapq.heappush(self._ready, heapq.heappop(self._waiting)[1:])

    def find_first(self, now_secs: float) -> tuple[float, int, int] | None:
        """Finds the operation that can start first: (start, place in order, operation) or None."""
        if self._ready:
            return (now_secs, *self._ready[0])
        return self._waiting[0] if self._waiting else None

    def drop_first(self) -> None:
        """Removes the operation that `find_first` returned."""
        if self._ready:
            heapq.heappop(self._ready)
        else:
            heapq.heappop(self._waiting)


class _Schedule:
    """A schedule that grows by one operation at a time."""

    def __init__(
        self, costs: ScheduleCosts, binding: GroupBinding, favorites: Sequence[int] | None
    ) -> None:
        count = len(costs.order)
        self.devices, self.starts, self.ends = [_NONE] * count, [0.0] * count, [0.0] * count
        self._costs = costs
        self._binding = binding
        self._favorites = favorites
        self._places = [0] * count
        for place, operation in enumerate(costs.order):
            self._places[operation] = place
        self._missing = [len(inputs) for inputs in costs.inputs]
        # For an operation that can be scheduled, the arrival of its inputs on each device.
        self._arrivals: list[dict[int, float]] = [{} for _ in costs.order]
        self._slots = [[0.0] * min(slots, count) for slots in costs.slots]
        self._last = [_NONE] * len(costs.slots)
        self._queues = [_Queue() for _ in costs.slots]
        self._urgent = [_Queue() for _ in costs.slots]
        # A heap, from which scheduled operations are removed late.
        self._unscheduled: list[tuple[int, int]] = []
        for operation in costs.order:
            if not self._missing[operation]:
                self._add(operation)

    def take_next(self) -> None:
        """Schedules the next operation."""
        best: tuple[float, int, float, int] | None = None
        for device in range(len(self._slots)):
            found = self._find_next(device)
            if found is not None:
                start, place, operation = found
                end = start + self._costs.secs[operation][device]
                key = (start, place, end, device)
                best = key if best is None else min(best, key)
        if best is None:
            self._force_first()
            self.take_next()
            return
        start, place, end, device = best
        operation = self._costs.order[place]
        self._binding.bind(self._costs.groups[operation], device)
        self.devices[operation], self.starts[operation], self.ends[operation] = device, start, end
        self._last[device] = operation
        heapq.heapreplace(self._slots[device], end)
        for follower in self._costs.followers[operation]:
            self._missing[follower] -= 1
            if not self._missing[follower]:
                self._add(follower)

    def _add(self, operation: int) -> None:
        """Adds an operation whose inputs are now scheduled."""
        place = self._places[operation]
        arrivals = {
            device: self._costs.arrival_secs(operation, device, self.devices, self.ends)
            for device in self._binding.list_allowed(self._costs.groups[operation])
        }
        self._arrivals[operation] = arrivals
        heapq.heappush(self._unscheduled, (place, operation))
        for device, arrival in arrivals.items():
            self._queues[device].add(arrival, place, operation)
            if self._favorites is not None:
                self._urgent[device].add(max(arrivals.values()), place, operation)

    def _find_next(self, device: int) -> tuple[float, int, int] | None:
        """Finds the next operation on a device: (start, place in order, operation) or None."""
        favorite = self._find_awaited(device)
        if favorite == _NONE:
            return self._find_first(self._queues[device], device)
        start = max(self._slots[device][0], self._arrivals[favorite][device])
        urgent = self._find_first(self._urgent[device], device)
        if urgent is not None and urgent[0] < start:
            return urgent
        return start, self._places[favorite], favorite

    def _find_first(self, queue: _Queue, device: int) -> tuple[float, int, int] | None:
        now_secs = self._slots[device][0]
        queue.move_ready(now_secs)
        while (found := queue.find_first(now_secs)) is not None:
            if self._can_go(found[2], device):
                return found
            # Free memory only shrinks, so the operation never fits on this device again.
            queue.drop_first()
        return None

    def _can_go(self, operation: int, device: int) -> bool:
        return self.devices[operation] == _NONE and self._binding.can_go(
            self._costs.groups[operation], device
        )

    def _find_awaited(self, device: int) -> int:
        """Finds the favorite child that a device waits for, or -1."""
        if self._favorites is None or self._last[device] == _NONE:
            return _NONE
        favorite = self._favorites[self._last[device]]
        if favorite == _NONE or self._missing[favorite] or not self._can_go(favorite, device):
            return _NONE
        arrivals = self._arrivals[favorite]
        starts = {
            each: max(self._slots[each][0], arrival)
            for each, arrival in arrivals.items()
            if self._can_go(favorite, each)
        }
        return favorite if starts[device] <= min(starts.values()) else _NONE

    def _force_first(self) -> None:
        """Binds the first unscheduled operation to the device with the smallest lack of memory."""
        while self.devices[self._unscheduled[0][1]] != _NONE:
            heapq.heappop(self._unscheduled)
        group = self._costs.groups[self._unscheduled[0][1]]
        (device,) = self._binding.list_choices(group)
        self._binding.bind(group, device)
        for place, operation in self._unscheduled:
            if self._costs.groups[operation] == group and self.devices[operation] == _NONE:
                arrivals = self._arrivals[operation]
                self._queues[device].add(arrivals[device], place, operation)
                self._urgent[device].add(max(arrivals.values()), place, operation)
