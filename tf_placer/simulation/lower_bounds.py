"""How fast the step of a placement problem could be at best, and whether it can fit at all."""

from __future__ import annotations

import dataclasses

import numpy as np

from tf_placer.problem.placement_problem import PlacementProblem
from tf_placer.problem.problem_groups import legal_devices

__all__ = ["LowerBounds", "lower_bounds"]

_ITERATIONS = 300
# How strongly groups prefer the device that is cheapest for them, at first and at last. The last
# value is within a fraction of a percent of the optimum.
_FIRST_SHARPNESS = 2.0
_LAST_SHARPNESS = 500.0


@dataclasses.dataclass(frozen=True)
class LowerBounds:
    """What no placement of a problem can beat.

    Attributes:
        critical_path_secs: the longest chain of operations that wait for each other, each as fast
            as any device that its group may go to, without any communication.
        work_secs: what the devices need to get all operations done, shared out as well as groups
            allow, if none of them ever waits.
        resident_bytes: what all operations together hold for the whole step.
        memory_bytes: what all devices together can hold.
        fits: False if certainly no placement fits: all that is resident is more than all devices
            can hold, or that of one group more than any device that it may go to can.
    """

    critical_path_secs: float
    work_secs: float
    resident_bytes: int
    memory_bytes: int
    fits: bool

    @property
    def step_secs(self) -> float:
        """No step is shorter."""
        return max(self.critical_path_secs, self.work_secs)


def lower_bounds(problem: PlacementProblem) -> LowerBounds:
    """Computes the lower bounds of a problem, in time linear in its size."""
    group_secs = np.zeros([problem.num_groups, problem.num_devices])
    np.add.at(group_secs, problem.groups, problem.compute_secs)
    legal = legal_devices(problem)
    least_secs = np.where(legal[problem.groups], problem.compute_secs, np.inf).min(axis=1)
    work_secs = _work_secs(group_secs, np.array([device.slots for device in problem.devices]))
    # A simulated step may add up the same seconds in another order, rounding at every one.
    work_secs *= 1.0 - (problem.num_operations + 8) * np.finfo(np.float64).eps

    group_bytes = np.zeros(problem.num_groups, np.int64)
    np.add.at(group_bytes, problem.groups, problem.resident_bytes)
    resident_bytes = int(group_bytes.sum())
    capacities = np.array([device.memory_bytes for device in problem.devices])
    room = np.where(legal, capacities, -1).max(axis=1)
    return LowerBounds(
        critical_path_secs=_critical_path_secs(problem, least_secs),
        work_secs=work_secs,
        resident_bytes=resident_bytes,
        memory_bytes=int(capacities.sum()),
        fits=resident_bytes <= capacities.sum() and bool((group_bytes <= room).all()),
    )


def _critical_path_secs(problem: PlacementProblem, least_secs: np.ndarray) -> float:
    """Computes the longest path, float64 [num_operations] being the length of each operation."""
    position = np.empty(problem.num_operations, np.int64)
    position[problem.order] = np.arange(problem.num_operations)
    edges = problem.edges
    edges = edges[np.argsort(position[edges[:, 0]], kind="stable")]
    starts, secs = [0.0] * problem.num_operations, least_secs.tolist()
    # The edges into an operation come before those out of it.
    for before, after in edges.tolist():
        starts[after] = max(starts[after], starts[before] + secs[before])
    return max(start + length for start, length in zip(starts, secs, strict=True))


def _work_secs(group_secs: np.ndarray, slots: np.ndarray) -> float:
    """Bounds the best balance of groups over devices, when a group may be split among several.

    In T seconds the slots of device d do at most slots_d T seconds of work. So for any weights
    w >= 0 with sum_d slots_d w_d = 1, whatever the placement,

        T >= sum_d w_d (work on d) >= sum_g min over the legal d of w_d C_gd,

    C_gd being the seconds that the operations of group g take on device d. This is the dual of
    balancing fractions of groups. Its maximum is approached by a smoothed ascent: the weight of a
    device rises while more than its share of the work prefers it. Every step is a valid bound, and
    the best is kept.

    Args:
        group_secs: float64 [num_groups, num_devices], infinite where a group may not go.
        slots: int64 [num_devices].

    References:
        Lenstra, Shmoys and Tardos, Approximation Algorithms for Scheduling Unrelated Parallel
        Machines, Mathematical Programming 46, 1990: the linear relaxation.
    """
    secs = group_secs / slots
    # No weights make a group count that some device runs in no time.
    secs = secs[secs.min(axis=1) > 0]
    secs = secs[:, np.isfinite(secs).any(axis=0)]
    if not secs.size:
        return 0.0
    finite_secs = np.where(np.isfinite(secs), secs, 0.0)
    # The slots of one device share the work of a group that is on it.
    best = float(secs.min(axis=1).max())
    log_weights = -np.log(finite_secs.sum(axis=0) / np.isfinite(secs).sum(axis=0))
    for sharpness in np.geomspace(_FIRST_SHARPNESS, _LAST_SHARPNESS, _ITERATIONS):
        # Bounded, so that no cost becomes 0.
        log_weights = np.maximum(log_weights - log_weights.max(), -100.0)
        weights = np.exp(log_weights)
        costs = secs * (weights / weights.sum())
        least = costs.min(axis=1, keepdims=True)
        best = max(best, float(least.sum()))
        shares = np.exp(sharpness * (1.0 - costs / least))
        shares /= shares.sum(axis=1, keepdims=True)
        loads = (shares * finite_secs).sum(axis=0)
        log_weights += np.log(np.maximum(loads, 1e-30 * loads.max())) / sharpness
    return best
