"""What a step would take if some groups were elsewhere, sooner than by simulating all of it."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np

from tf_placer.problem.placement_problem import PlacementProblem
from tf_placer.simulation.base_simulation import simulate_base
from tf_placer.simulation.base_step import make_base_step, make_move, make_snapshots
from tf_placer.simulation.event_loop import CUT
from tf_placer.simulation.moved_steps import simulate_moved
from tf_placer.simulation.step_control import ILLEGAL, UNMOVED, WRONG
from tf_placer.simulation.step_state import make_state, make_watch
from tf_placer.simulation.step_tables import make_tables

__all__ = ["IncrementalSimulator", "MovedStep"]

# More cost more time to keep than they save.
_MAX_SNAPSHOTS = 12
# About as many steps decide what the next are likely to be.
_CUTS_IN_MIND = 32


@dataclasses.dataclass(frozen=True, eq=False)
class MovedStep:
    """What one placement would take.

    Attributes:
        step_secs: seconds of one step; infinite if a group is where it may not go, or if `is_cut`.
        peak_bytes: int64 [num_devices], the most that each device holds at once; 0 if a group is
            where it may not go, or if `is_cut`.
        feasible: whether every group is where it may go and no device holds more than it can; False
            if `is_cut`.
        is_cut: whether it is only known that the step is longer than the limit.
    """

    step_secs: float
    peak_bytes: np.ndarray
    feasible: bool
    is_cut: bool = False


class IncrementalSimulator:
    """Simulates steps of placements that differ from one, the base, in a few groups.

    The results are exactly those of `Simulator`. One incremental simulator works for one thread at
    a time; `another` makes one for another thread.

    A search sets a base, evaluates moves of one or a few groups, and accepts some of them. A limit
    makes it fastest: what certainly takes longer is cut, and its memory is never looked at.
    """

    def __init__(self, problem: PlacementProblem) -> None:
        """Prepares the simulation.

        Args:
            problem: what to place.
        """
        self._problem = problem
        self._tables, self._slots = make_tables(problem)
        self._make_space()

    def _make_space(self) -> None:
        state, memory = make_state(self._tables, self._slots)
        watch = make_watch(self._problem.num_devices, _MAX_SNAPSHOTS)
        snapshots = make_snapshots(self._tables, state, memory, _MAX_SNAPSHOTS)
        self._step = make_base_step(self._tables, state)
        move = make_move(self._tables, state, snapshots)
        self._space = (self._tables, state, memory, watch, self._step, snapshots, move)
        self._capacities = np.array([device.memory_bytes for device in self._problem.devices])
        self._base: MovedStep | None = None
        # Of the latest steps with a limit, how many were cut.
        self._cut_share = 1.0

    def another(self) -> IncrementalSimulator:
        """Makes one for another thread, without a base; what describes the problem is shared."""
        other = IncrementalSimulator.__new__(IncrementalSimulator)
        other._problem, other._tables, other._slots = self._problem, self._tables, self._slots
        other._make_space()
        return other

    @property
    def space(self) -> tuple[Any, ...]:
        """What compiled code works with that calls `simulate_base` and `simulate_moved` itself.

        Who does so sets every base that way: this object does not notice.
        """
        return self._space

    @property
    def base(self) -> np.ndarray:
        """The placement that moves start from, int32 [num_groups]."""
        self._checked_base()
        return self._step.placement.copy()

    def set_base(self, placement: np.ndarray) -> MovedStep:
        """Simulates a step of a placement, and makes it the base.

        Args:
            placement: int32 [num_groups], the device index of each group.

        Returns:
            What it would take.

        Raises:
            ValueError: `placement` has another shape, a device index is out of range, or a group is
                where it may not go.
        """
        placement = np.asarray(placement)
        num_groups = self._problem.num_groups
        if placement.shape != (num_groups,):
            raise ValueError(
                f"a placement must have the shape [{num_groups}], not {list(placement.shape)}"
            )
        return self._simulate_base(np.arange(num_groups), placement, is_new=True)

    def evaluate(
        self, groups: np.ndarray, devices: np.ndarray, limit_secs: float = math.inf
    ) -> MovedStep:
        """Simulates a step of the base with some groups elsewhere.

        Args:
            groups: int [n], the groups, none twice.
            devices: int [n], the device index of each.
            limit_secs: a step that is longer need not be simulated to its end. This saves most
                where most steps are longer.

        Returns:
            What it would take.

        Raises:
            ValueError: there is no base yet, an index is out of range, or a group is named twice.
        """
        base = self._checked_base()
        groups, devices = _as_integers("group", groups), _as_integers("device", devices)
        if groups.ndim != 1 or groups.shape != devices.shape:
            self._check(groups, devices)
        peaks = np.empty_like(base.peak_bytes)
        # Memory never changes times, so it need not be looked at for what takes too long.
        times_first = limit_secs < math.inf and self._cut_share > 0.5
        outcome, step_secs = simulate_moved(
            *self._space, peaks, groups, devices, limit_secs, times_first
        )
        if outcome == WRONG:
            self._check(groups, devices)
        if outcome == UNMOVED:
            return base
        if outcome == ILLEGAL:
            return MovedStep(math.inf, np.zeros_like(peaks), False)
        is_cut = outcome == CUT
        if limit_secs < math.inf:
            self._cut_share += (is_cut - self._cut_share) / _CUTS_IN_MIND
        if is_cut:
            return MovedStep(math.inf, np.zeros_like(peaks), False, is_cut=True)
        return MovedStep(step_secs, peaks, bool((peaks <= self._capacities).all()))

    def accept(self, groups: np.ndarray, devices: np.ndarray) -> MovedStep:
        """Makes the base with some groups elsewhere the new base.

        Args:
            groups: int [n], the groups, none twice.
            devices: int [n], the device index of each.

        Returns:
            What a step of it takes.

        Raises:
            ValueError: there is no base yet, an index is out of range, a group is named twice, or
                it may not go there.
        """
        self._checked_base()
        return self._simulate_base(groups, devices, is_new=False)

    def _simulate_base(self, groups: np.ndarray, devices: np.ndarray, *, is_new: bool) -> MovedStep:
        groups, devices = _as_integers("group", groups), _as_integers("device", devices)
        self._check(groups, devices)
        is_legal = self._tables.group_is_legal[groups, devices]
        if not is_legal.all():
            at = int(np.flatnonzero(~is_legal)[0])
            device = self._problem.devices[devices[at]].name
            raise ValueError(f"group {groups[at]} may not go to device {device!r}")
        peaks = np.empty(self._problem.num_devices, np.int64)
        outcome = simulate_base(*self._space, peaks, groups, devices, is_new)
        if outcome != UNMOVED:
            step_secs = float(self._step.step_secs[0])
            self._base = MovedStep(step_secs, peaks, bool((peaks <= self._capacities).all()))
        return self._checked_base()

    def _checked_base(self) -> MovedStep:
        if self._base is None:
            raise ValueError("there is no base yet: call set_base first")
        return self._base

    def _check(self, groups: np.ndarray, devices: np.ndarray) -> None:
        if groups.ndim != 1 or groups.shape != devices.shape:
            raise ValueError(
                f"groups and devices must have one shape [n], not {list(groups.shape)} and "
                f"{list(devices.shape)}"
            )
        for name, numbers, count in (
            ("group", groups, self._problem.num_groups),
            ("device", devices, self._problem.num_devices),
        ):
            wrong = numbers[(numbers < 0) | (numbers >= count)]
            if wrong.size:
                raise ValueError(f"there is no {name} {wrong[0]}: they are 0 to {count - 1}")
        named, counts = np.unique(groups, return_counts=True)
        if (counts > 1).any():
            raise ValueError(f"group {named[counts > 1][0]} is moved twice at once")


def _as_integers(name: str, numbers: np.ndarray) -> np.ndarray:
    """Converts numbers to int64, and refuses those that are not integers."""
    numbers = np.asarray(numbers)
    # What is empty has no type of its own.
    if numbers.size and numbers.dtype.kind not in "iu":
        raise ValueError(f"{name}s must be integers, not {numbers.dtype}")
    return np.ascontiguousarray(numbers, np.int64)
