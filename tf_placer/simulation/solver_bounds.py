"""A lower bound on the step time of small problems, by the constraint solver CP-SAT of OR-Tools.

The bound is the length of the shortest relaxed schedule: the solver chooses the placement and the
order, a link carries any number of transfers at once, and only resident memory has to fit.
Durations are rounded down to whole units. Every simulated step of a placement that fits is such a
schedule, so none is shorter.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import itertools
import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from tf_placer.problem.placement_problem import PlacementProblem
from tf_placer.problem.problem_groups import device_secs, legal_devices
from tf_placer.simulation.simulator import Simulator

__all__ = ["solve_relaxed_schedule"]


@dataclasses.dataclass(frozen=True)
class _SolverLimits:
    """Limits of problems and of the solver.

    Attributes:
        max_groups: larger problems take the solver too long.
        max_operations: the same.
        max_deterministic_time: effort of the solver, about seconds. It counts the work that is
            done, so that bounds do not depend on the load of the computer.
        units: the known bound in units of time. So many that rounding, of less than one per
            operation and transfer, does not hide that a step is optimal.
        max_horizon: sums of longer times over operations may overflow.
    """

    max_groups: int = 40
    max_operations: int = 200
    max_deterministic_time: float = 0.25
    units: int = 10**12
    max_horizon: int = 2**50


_LIMITS = _SolverLimits()
_ROUNDING = 1e-9
_SLACK_UNITS = 2


def solve_relaxed_schedule(problem: PlacementProblem, known_secs: float) -> float:
    """Bounds the step time of every placement that fits, if OR-Tools is installed.

    Args:
        problem: the problem.
        known_secs: another lower bound, from which the unit of time follows.

    Returns:
        Seconds; 0 if the problem is too large, or the solver is missing or learned nothing;
        infinite if no placement fits, because of its resident memory.
    """
    if (
        known_secs <= 0.0
        or problem.num_groups > _LIMITS.max_groups
        or problem.num_operations > _LIMITS.max_operations
        or importlib.util.find_spec("ortools") is None
    ):
        return 0.0
    # A step that others have to beat shortens the proof more than anything else.
    reached_secs = _descend(problem)
    if reached_secs <= known_secs * (1.0 + _ROUNDING):
        return 0.0
    try:
        from ortools.sat.python import cp_model
    except ImportError:
        return 0.0
    unit_secs = known_secs / _LIMITS.units
    schedule = _RelaxedSchedule(problem, unit_secs, reached_secs)
    if schedule.horizon > _LIMITS.max_horizon:
        return 0.0
    schedule.build()
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.random_seed = 0
    solver.parameters.max_deterministic_time = _LIMITS.max_deterministic_time
    # Linear relaxations of these models bound next to nothing.
    solver.parameters.linearization_level = 0
    # Raise the bound first: a good schedule is known.
    solver.parameters.use_objective_lb_search = True
    # Otherwise the solver would take Ctrl-C for itself.
    solver.parameters.catch_sigint_signal = False
    status = solver.solve(schedule.model)
    if status == cp_model.INFEASIBLE:
        return math.inf
    bound = solver.best_objective_bound
    if status == cp_model.MODEL_INVALID or not math.isfinite(bound):
        return 0.0
    return float(max(0.0, round(bound) * unit_secs))


def _descend(problem: PlacementProblem) -> float:
    """Finds the step of a placement that no other device for a single group makes faster.

    Returns:
        Seconds; infinite if the placement does not fit.
    """
    simulator = Simulator(problem, threads=1)
    memory_bytes = np.array([device.memory_bytes for device in problem.devices])

    def find_best(placements: np.ndarray) -> tuple[tuple[float, float], np.ndarray]:
        batch = simulator.simulate(placements)
        excess = np.maximum(batch.peak_bytes - memory_bytes, 0).sum(axis=1)
        best = np.lexsort([batch.step_secs, excess])[0]
        return (float(excess[best]), float(batch.step_secs[best])), placements[best]

    legal = legal_devices(problem)
    fastest = device_secs(problem).argmin(axis=1).astype(np.int32)
    rank, placement = find_best(
        np.stack([fastest, *(np.where(may, d, fastest) for d, may in enumerate(legal.T))]).astype(
            np.int32
        )
    )
    while True:
        groups, devices = np.nonzero(legal & (np.arange(len(memory_bytes)) != placement[:, None]))
        if not len(groups):
            break
        moved = np.repeat(placement[None], len(groups), axis=0)
        moved[np.arange(len(groups)), groups] = devices
        moved_rank, better = find_best(moved)
        if moved_rank >= rank:
            break
        rank, placement = moved_rank, better
    excess_bytes, step_secs = rank
    return math.inf if excess_bytes else step_secs


class _RelaxedSchedule:
    """The relaxed schedules of a problem.

    Attributes:
        model: the `CpModel`, whose objective is the length of the schedule.
        horizon: a shortest schedule is not longer than this, in units.
    """

    def __init__(self, problem: PlacementProblem, unit_secs: float, reached_secs: float) -> None:
        from ortools.sat.python import cp_model

        self.model = cp_model.CpModel()
        self._problem = problem
        self._legal = legal_devices(problem)
        self._group_bytes = [0] * problem.num_groups
        for group, size in zip(problem.groups, problem.resident_bytes.tolist(), strict=True):
            self._group_bytes[group] += size
        is_legal = self._legal[problem.groups]
        # Rounding down keeps the bound valid.
        self._units = np.floor(np.where(is_legal, problem.compute_secs, 0.0) / unit_secs)
        self._edges = list(self._find_edges(unit_secs))
        self.horizon = self._find_horizon(reached_secs / unit_secs)

    def build(self) -> None:
        """Adds all variables and constraints, and the objective."""
        self._on = [self._add_devices(group) for group in range(self._problem.num_groups)]
        self._starts, self._ends = (
            [self.model.new_int_var(0, self.horizon, "") for _ in self._units] for _ in range(2)
        )
        for device in range(self._problem.num_devices):
            self._add_device(device)
        self._add_lengths()
        for before, after, delays in self._edges:
            self._add_edge(before, after, delays)
        # No step is shorter than the known bound, but schedules may be.
        length = self.model.new_int_var(_LIMITS.units - _SLACK_UNITS, self.horizon, "")
        for end in self._ends:
            self.model.add(length >= end)
        self.model.minimize(length)

    def _find_edges(self, unit_secs: float) -> Iterator[tuple[int, int, np.ndarray]]:
        """Yields dependencies, and the units of their transfers from device to device."""
        problem = self._problem
        names = [device.name for device in problem.devices]
        latency_secs, bandwidths = np.zeros([2, len(names), len(names)])
        bandwidths[:] = math.inf
        for link in problem.links:
            ends = names.index(link.source), names.index(link.destination)
            latency_secs[ends] = link.latency_secs
            bandwidths[ends] = link.bandwidth_bytes_per_sec
        sizes = np.repeat(problem.tensor_bytes, np.diff(problem.consumer_start)).tolist()
        sizes += [0] * len(problem.control_edges)
        most_bytes: dict[tuple[int, int], int] = {}
        for (before, after), size in zip(problem.edges.tolist(), sizes, strict=True):
            most_bytes[before, after] = max(size, most_bytes.get((before, after), 0))
        for (before, after), size in most_bytes.items():
            yield before, after, np.floor((latency_secs + size / bandwidths) / unit_secs)

    def _find_horizon(self, reached_units: float) -> int:
        """Finds the length of a schedule: of a known one, or of one in which nothing overlaps."""
        if math.isfinite(reached_units):
            return math.ceil(reached_units * (1.0 + _ROUNDING)) + 1
        delays = sum(float(delays.max()) for _, _, delays in self._edges)
        return int(min(float(self._units.max(axis=1).sum()) + delays, 2.0 * _LIMITS.max_horizon))

    def _add_devices(self, group: int) -> list[Any]:
        """Adds the choice of the device of a group."""
        on = [
            self.model.new_bool_var("") if is_legal else self.model.new_constant(0)
            for is_legal in self._legal[group]
        ]
        self.model.add_exactly_one(on)
        return on

    def _add_device(self, index: int) -> None:
        """Lets a device run as many operations at a time as it has slots, and hold what fits."""
        device = self._problem.devices[index]
        intervals, work = [], []
        for operation, group in enumerate(self._problem.groups):
            units = self._get_units(operation, index)
            if units and self._legal[group, index]:
                is_here = self._on[group][index]
                work.append(units * is_here)
                intervals.append(
                    self.model.new_optional_fixed_size_interval_var(
                        self._starts[operation], units, is_here, ""
                    )
                )
        if device.slots == 1:
            self.model.add_no_overlap(intervals)
        else:
            self.model.add_cumulative(intervals, [1] * len(intervals), device.slots)
        self.model.add(sum(work) <= device.slots * self.horizon)
        if sum(self._group_bytes) > device.memory_bytes:
            held = [size * on[index] for size, on in zip(self._group_bytes, self._on, strict=True)]
            self.model.add(sum(held) <= device.memory_bytes)

    def _add_lengths(self) -> None:
        for operation, group in enumerate(self._problem.groups):
            units = sum(
                self._get_units(operation, index) * is_here
                for index, is_here in enumerate(self._on[group])
            )
            self.model.add(self._ends[operation] >= self._starts[operation] + units)

    def _add_edge(self, before: int, after: int, delays: np.ndarray) -> None:
        self.model.add(self._starts[after] >= self._ends[before])
        source, target = self._problem.groups[[before, after]]
        if source == target:
            return
        for pair in itertools.permutations(range(self._problem.num_devices), 2):
            delay = int(min(delays[pair], self.horizon))
            if delay and self._legal[source, pair[0]] and self._legal[target, pair[1]]:
                self.model.add(self._starts[after] >= self._ends[before] + delay).only_enforce_if(
                    self._on[source][pair[0]], self._on[target][pair[1]]
                )

    def _get_units(self, operation: int, device: int) -> int:
        # A longer operation excludes itself as surely.
        return int(min(self._units[operation, device], self.horizon + 1))
