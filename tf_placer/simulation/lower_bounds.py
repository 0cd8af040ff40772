"""Lower bounds on the step time and memory of every placement of a problem."""

from __future__ import annotations

import dataclasses
import weakref

import numpy as np

from tf_placer.problem.path_secs import least_secs, longest_before
from tf_placer.problem.placement_problem import PlacementProblem
from tf_placer.problem.problem_groups import legal_devices
from tf_placer.simulation.join_bounds import earliest_starts, latest_rests

__all__ = ["LowerBounds", "lower_bounds"]


@dataclasses.dataclass(frozen=True)
class _BalanceAscent:
    """Settings of the ascent in `_find_best_weights`.

    A sharper softmin prefers the cheapest device of a group more strongly. The last sharpness
    brings the bound within a fraction of a percent of the optimum.
    """

    iterations: int = 300
    first_sharpness: float = 2.0
    last_sharpness: float = 500.0


@dataclasses.dataclass(frozen=True)
class _GroupMerging:
    """Settings of `_merge_similar`.

    Two groups are similar if the ratios of their times on the devices agree up to a factor.
    Measured times make all groups slightly different, so the factor is raised to a power until at
    most `max_groups` are left.
    """

    max_groups: int = 4096
    first_factor: float = 1.0005
    factor_power: int = 2


_ASCENT = _BalanceAscent()
_MERGING = _GroupMerging()
_MAX_WINDOW_STARTS = _MAX_WINDOW_ENDS = 256


@dataclasses.dataclass(frozen=True)
class LowerBounds:
    """Bounds that hold for every placement of a problem.

    Attributes:
        critical_path_secs: the longest chain of dependent operations, each on the fastest device
            that its group may go to, without any communication.
        joins_secs: the same, where inputs that join at an operation, or outputs that fork from it,
            are computed one after the other on one device or are transferred.
        work_secs: the time to compute all operations if the devices share the work as evenly as
            groups allow and never wait.
        windows_secs: the same for all operations that must run within a window of time, with the
            time before and after the window.
        groups_secs: the time of one group's operations on one device, after the earliest start of
            the group.
        resident_bytes: the resident memory of all operations together.
        memory_bytes: the memory of all devices together.
        fits: False if certainly no placement fits: the resident memory of all operations exceeds
            all devices, or that of one group exceeds every device that the group may go to.
    """

    critical_path_secs: float
    joins_secs: float
    work_secs: float
    windows_secs: float
    groups_secs: float
    resident_bytes: int
    memory_bytes: int
    fits: bool

    @property
    def step_secs(self) -> float:
        """The best bound in seconds: no step is shorter."""
        return self.by_part[self.binding]

    @property
    def binding(self) -> str:
        """The name of the largest bound; of equal ones, the simplest."""
        by_part = self.by_part
        return max(by_part, key=lambda part: by_part[part])

    @property
    def by_part(self) -> dict[str, float]:
        """The bounds by name, the simplest first."""
        return {
            "critical path": self.critical_path_secs,
            "work": self.work_secs,
            "joins": self.joins_secs,
            "groups": self.groups_secs,
            "windows": self.windows_secs,
        }


# A search and its report need the bounds of one problem several times, and a problem is immutable.
_cache: weakref.WeakKeyDictionary[PlacementProblem, LowerBounds] = weakref.WeakKeyDictionary()


def lower_bounds(problem: PlacementProblem) -> LowerBounds:
    """Computes the lower bounds of a problem, or looks them up if they were computed before.

    The time is about linear in the size of the problem.
    """
    bounds = _cache.get(problem)
    if bounds is None:
        bounds = _cache[problem] = _compute_bounds(problem)
    return bounds


def _compute_bounds(problem: PlacementProblem) -> LowerBounds:
    group_secs = np.zeros([problem.num_groups, problem.num_devices])
    np.add.at(group_secs, problem.groups, problem.compute_secs)
    legal = legal_devices(problem)
    secs = least_secs(problem)
    slots = np.array([device.slots for device in problem.devices])
    work_secs, weights = _work_secs(group_secs, slots)
    starts, rests = earliest_starts(problem), latest_rests(problem)
    is_legal = legal[problem.groups]
    costs = np.where(is_legal, problem.compute_secs, 0.0) / slots * weights
    # A simulated step adds up the same seconds in another order, with other rounding errors.
    rounding = 1.0 - (problem.num_operations + 8) * np.finfo(np.float64).eps

    group_bytes = np.zeros(problem.num_groups, np.int64)
    np.add.at(group_bytes, problem.groups, problem.resident_bytes)
    resident_bytes = int(group_bytes.sum())
    capacities = np.array([device.memory_bytes for device in problem.devices])
    room = np.where(legal, capacities, -1).max(axis=1)
    return LowerBounds(
        critical_path_secs=float((longest_before(problem, secs) + secs).max()),
        joins_secs=rounding * float((starts + secs + rests).max()),
        work_secs=rounding * work_secs,
        windows_secs=rounding
        * _windows_secs(starts, rests, np.where(is_legal, costs, np.inf).min(axis=1)),
        groups_secs=rounding * _groups_secs(problem, starts, rests, slots),
        resident_bytes=resident_bytes,
        memory_bytes=int(capacities.sum()),
        fits=resident_bytes <= capacities.sum() and bool((group_bytes <= room).all()),
    )


def _windows_secs(starts: np.ndarray, rests: np.ndarray, costs: np.ndarray) -> float:
    """Bounds the step by the work that must be done within windows of time.

    The operations that cannot start before a window, and must end some time before the end of the
    step, share the devices during the window.

    Args:
        starts: float64 [num_operations], the earliest starts.
        rests: float64 [num_operations], the least time from the end of each operation to the end of
            the step.
        costs: float64 [num_operations], the time that each operation adds to a step in which
            devices never wait.

    References:
        Baptiste, Le Pape and Nuijten, Satisfiability Tests and Time-Bound Adjustments for
        Cumulative Scheduling Problems, Annals of Operations Research 92, 1999.
    """
    from_secs, before_secs = (
        np.unique(np.quantile(each, np.linspace(0.0, 1.0, count), method="lower"))
        for each, count in ((starts, _MAX_WINDOW_STARTS), (rests, _MAX_WINDOW_ENDS))
    )
    rows = np.searchsorted(from_secs, starts, side="right") - 1
    columns = np.searchsorted(before_secs, rests, side="right") - 1
    shape = (len(from_secs), len(before_secs))
    places = rows * shape[1] + columns
    cells = np.bincount(places, costs, shape[0] * shape[1]).reshape(shape)
    work = cells[::-1, ::-1].cumsum(axis=0).cumsum(axis=1)[::-1, ::-1]
    bounds = from_secs[:, None] + work + before_secs
    # A window without work bounds nothing.
    return float(np.where(work > 0, bounds, 0.0).max())


def _groups_secs(
    problem: PlacementProblem, starts: np.ndarray, rests: np.ndarray, slots: np.ndarray
) -> float:
    """Bounds the step by the work of one group on one device after the group's earliest start.

    Args:
        problem: the problem, which has the groups.
        starts: float64 [num_operations], the earliest starts.
        rests: float64 [num_operations], the least time from the end of each operation to the end of
            the step.
        slots: int64 [num_devices].
    """
    least_rests = np.full(problem.num_groups, np.inf)
    np.minimum.at(least_rests, problem.groups, rests)
    # Sort the operations of each group from the latest to the earliest start.
    order = np.lexsort([-starts, problem.groups])
    groups = problem.groups[order]
    firsts = np.flatnonzero(np.diff(groups, prepend=-1))
    group_numbers = groups[firsts]
    bounds = np.empty([len(firsts), problem.num_devices])
    is_legal = legal_devices(problem)
    for device, num_slots in enumerate(slots):
        secs = np.where(is_legal[groups, device], problem.compute_secs[order, device], 0.0)
        sums = np.cumsum(secs)
        before = np.repeat(sums[firsts] - secs[firsts], np.diff([*firsts, len(groups)]))
        most = np.maximum.reduceat(starts[order] + (sums - before) / num_slots, firsts)
        bounds[:, device] = np.where(is_legal[group_numbers, device], most, np.inf)
    return float((bounds.min(axis=1) + least_rests[group_numbers]).max())


def _work_secs(group_secs: np.ndarray, slots: np.ndarray) -> tuple[float, np.ndarray]:
    """Bounds the best balance of groups over devices, where a group may be split among several.

    In T seconds the slots of device d do at most slots_d T seconds of work. So for any weights
    w >= 0 with sum_d slots_d w_d = 1, whatever the placement,

        T >= sum_d w_d (work on d) >= sum_g min over the legal d of w_d C_gd,

    C_gd being the seconds that the operations of group g take on device d. This is the dual of
    balancing fractions of groups. A smoothed ascent approaches its maximum: the weight of a device
    rises while more than its share of the work prefers it. Every iteration gives a valid bound; the
    result is the best one.

    Args:
        group_secs: float64 [num_groups, num_devices], infinite where a group may not go.
        slots: int64 [num_devices].

    Returns:
        The bound, and slots_d w_d of the best weights, float64 [num_devices].

    References:
        Lenstra, Shmoys and Tardos, Approximation Algorithms for Scheduling Unrelated Parallel
        Machines, Mathematical Programming 46, 1990: the linear relaxation.
    """
    secs = group_secs / slots
    # A group that takes no time on some device adds nothing to the bound, for any weights.
    secs = secs[secs.min(axis=1) > 0]
    is_used = np.isfinite(secs).any(axis=0)
    secs = secs[:, is_used]
    best_weights = np.zeros(len(slots))
    if not secs.size:
        return 0.0, best_weights
    # The slots of one device share the work of a group on that device.
    longest = float(secs.min(axis=1).max())
    weights = _find_best_weights(_merge_similar(secs) if len(secs) > _MERGING.max_groups else secs)
    best_weights[is_used] = weights
    # Any weights give a valid bound, so those of merged groups bound the work of all groups.
    return max(float((secs * weights).min(axis=1).sum()), longest), best_weights


def _find_best_weights(secs: np.ndarray) -> np.ndarray:
    """Finds the device weights that give the largest bound; see `_work_secs`.

    Args:
        secs: float64 [num_groups, num_devices], positive; infinite where a group may not go.

    Returns:
        float64 [num_devices], whose sum is 1.
    """
    finite_secs = np.where(np.isfinite(secs), secs, 0.0)
    best = 0.0
    log_weights = -np.log(finite_secs.sum(axis=0) / np.isfinite(secs).sum(axis=0))
    best_weights = np.exp(log_weights - log_weights.max())
    best_weights /= best_weights.sum()
    for sharpness in np.geomspace(
        _ASCENT.first_sharpness, _ASCENT.last_sharpness, _ASCENT.iterations
    ):
        # Limit the range of weights so that no cost becomes 0.
        log_weights = np.maximum(log_weights - log_weights.max(), -100.0)
        weights = np.exp(log_weights)
        weights /= weights.sum()
        costs = secs * weights
        least = costs.min(axis=1, keepdims=True)
        if least.sum() > best:
            best, best_weights = float(least.sum()), weights
        shares = np.exp(sharpness * (1.0 - costs / least))
        shares /= shares.sum(axis=1, keepdims=True)
        loads = (shares * finite_secs).sum(axis=0)
        log_weights += np.log(np.maximum(loads, 1e-30 * loads.max())) / sharpness
    return best_weights


def _merge_similar(secs: np.ndarray) -> np.ndarray:
    """Adds up groups whose ratios of times on the devices are about equal.

    Args:
        secs: float64 [num_groups, num_devices], positive; infinite where a group may not go.

    Returns:
        float64 [num_kinds, num_devices], at most `_MERGING.max_groups` kinds where possible.
    """
    least = secs.min(axis=1, keepdims=True)
    logs = np.log(secs / least)
    factor = _MERGING.first_factor
    while True:
        steps = np.floor(logs / np.log(factor))
        kind_of = np.zeros(len(secs), np.int64)
        for column in steps.T:
            numbers = np.unique(column, return_inverse=True)[1].reshape(-1)
            pairs = kind_of * (numbers.max() + 1) + numbers
            _, firsts, kind_of = np.unique(pairs, return_index=True, return_inverse=True)
            kind_of = kind_of.reshape(-1)
        if len(firsts) <= _MERGING.max_groups or not steps[np.isfinite(steps)].any():
            break
        factor = factor**_MERGING.factor_power
    return np.stack([np.bincount(kind_of, column, len(firsts)) for column in secs.T], axis=1)
