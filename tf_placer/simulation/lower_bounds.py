"""How fast the step of a placement problem could be at best, and whether it can fit at all."""

from __future__ import annotations

import dataclasses
import weakref

import numpy as np

from tf_placer.problem.path_secs import least_secs, longest_before
from tf_placer.problem.placement_problem import PlacementProblem
from tf_placer.problem.problem_groups import legal_devices
from tf_placer.simulation.join_bounds import earliest_starts, latest_rests

__all__ = ["LowerBounds", "lower_bounds"]

_ITERATIONS = 300
# How strongly groups prefer the device that is cheapest for them, at first and at last. The last
# value is within a fraction of a percent of the optimum.
_FIRST_SHARPNESS = 2.0
_LAST_SHARPNESS = 500.0
# How many times, from the start and from the end, windows begin and end at.
_WINDOWS = 256
# More groups than this are put together where they prefer devices alike, up to such a factor. Times
# that were measured make every group a little different, so the factor grows by this power until
# there are few enough.
_MANY_GROUPS, _ALIKE, _POWER = 4096, 1.0005, 2


@dataclasses.dataclass(frozen=True)
class LowerBounds:
    """What no placement of a problem can beat.

    Attributes:
        critical_path_secs: the longest chain of operations that wait for each other, each as fast
            as any device that its group may go to, without any communication.
        joins_secs: the same, where what comes together, or goes apart, is on one device, which does
            one thing after the other, or is sent.
        work_secs: what the devices need to get all operations done, shared out as well as groups
            allow, if none of them ever waits.
        windows_secs: the same for the operations between the earliest and the latest that some of
            them can run.
        groups_secs: what one group takes on its device, which waits for what the group waits for.
        resident_bytes: what all operations together hold for the whole step.
        memory_bytes: what all devices together can hold.
        fits: False if certainly no placement fits: all that is resident is more than all devices
            can hold, or that of one group more than any device that it may go to can.
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
        """No step is shorter."""
        return self.by_part[self.binding]

    @property
    def binding(self) -> str:
        """The part that the bound is of: the longest; of equal ones the simplest."""
        by_part = self.by_part
        return max(by_part, key=lambda part: by_part[part])

    @property
    def by_part(self) -> dict[str, float]:
        """Lists the bounds by what they are of, the simplest first."""
        return {
            "critical path": self.critical_path_secs,
            "work": self.work_secs,
            "joins": self.joins_secs,
            "groups": self.groups_secs,
            "windows": self.windows_secs,
        }


# A search and what it reports ask for the bounds of one problem several times, and a problem never
# changes.
_known: weakref.WeakKeyDictionary[PlacementProblem, LowerBounds] = weakref.WeakKeyDictionary()


def lower_bounds(problem: PlacementProblem) -> LowerBounds:
    """Computes the lower bounds of a problem once, in time about linear in its size."""
    bounds = _known.get(problem)
    if bounds is None:
        bounds = _known[problem] = _compute_bounds(problem)
    return bounds


def _compute_bounds(problem: PlacementProblem) -> LowerBounds:
    group_secs = np.zeros([problem.num_groups, problem.num_devices])
    np.add.at(group_secs, problem.groups, problem.compute_secs)
    legal = legal_devices(problem)
    secs = least_secs(problem)
    slots = np.array([device.slots for device in problem.devices])
    work_secs, weights = _work_secs(group_secs, slots)
    starts, rests = earliest_starts(problem), latest_rests(problem)
    may_go = legal[problem.groups]
    costs = np.where(may_go, problem.compute_secs, 0.0) / slots * weights
    # A simulated step may add up the same seconds in another order, rounding at every one.
    sure = 1.0 - (problem.num_operations + 8) * np.finfo(np.float64).eps

    group_bytes = np.zeros(problem.num_groups, np.int64)
    np.add.at(group_bytes, problem.groups, problem.resident_bytes)
    resident_bytes = int(group_bytes.sum())
    capacities = np.array([device.memory_bytes for device in problem.devices])
    room = np.where(legal, capacities, -1).max(axis=1)
    return LowerBounds(
        critical_path_secs=float((longest_before(problem, secs) + secs).max()),
        joins_secs=sure * float((starts + secs + rests).max()),
        work_secs=sure * work_secs,
        windows_secs=sure
        * _windows_secs(starts, rests, np.where(may_go, costs, np.inf).min(axis=1)),
        groups_secs=sure * _groups_secs(problem, starts, rests, slots),
        resident_bytes=resident_bytes,
        memory_bytes=int(capacities.sum()),
        fits=resident_bytes <= capacities.sum() and bool((group_bytes <= room).all()),
    )


def _windows_secs(starts: np.ndarray, rests: np.ndarray, costs: np.ndarray) -> float:
    """Bounds the step by what has to be done after some time and before another.

    Operations that cannot start before a time, and after which some more has to follow, share the
    devices between the two.

    Args:
        starts: float64 [num_operations], the earliest starts.
        rests: float64 [num_operations], what follows at least.
        costs: float64 [num_operations], by how much each makes a step longer in which devices never
            wait.

    References:
        Baptiste, Le Pape and Nuijten, Satisfiability Tests and Time-Bound Adjustments for
        Cumulative Scheduling Problems, Annals of Operations Research 92, 1999.
    """
    # From some of the earliest starts on, and before some of the rests.
    from_secs, before_secs = (
        np.unique(np.quantile(each, np.linspace(0.0, 1.0, _WINDOWS), method="lower"))
        for each in (starts, rests)
    )
    rows = np.searchsorted(from_secs, starts, side="right") - 1
    columns = np.searchsorted(before_secs, rests, side="right") - 1
    shape = (len(from_secs), len(before_secs))
    places = rows * shape[1] + columns
    cells = np.bincount(places, costs, shape[0] * shape[1]).reshape(shape)
    work = cells[::-1, ::-1].cumsum(axis=0).cumsum(axis=1)[::-1, ::-1]
    bounds = from_secs[:, None] + work + before_secs
    # The time between is for work only where there is some.
    return float(np.where(work > 0, bounds, 0.0).max())


def _groups_secs(
    problem: PlacementProblem, starts: np.ndarray, rests: np.ndarray, slots: np.ndarray
) -> float:
    """Bounds the step by what one device does for one group, from some time on.

    Args:
        problem: has the groups.
        starts: float64 [num_operations], the earliest starts.
        rests: float64 [num_operations], what follows at least.
        slots: int64 [num_devices].
    """
    least_rests = np.full(problem.num_groups, np.inf)
    np.minimum.at(least_rests, problem.groups, rests)
    # The last operations of each group first.
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

    Returns:
        The bound, and slots_d w_d of the best weights, float64 [num_devices].

    References:
        Lenstra, Shmoys and Tardos, Approximation Algorithms for Scheduling Unrelated Parallel
        Machines, Mathematical Programming 46, 1990: the linear relaxation.
    """
    secs = group_secs / slots
    # No weights make a group count that some device runs in no time.
    secs = secs[secs.min(axis=1) > 0]
    is_used = np.isfinite(secs).any(axis=0)
    secs = secs[:, is_used]
    best_weights = np.zeros(len(slots))
    if not secs.size:
        return 0.0, best_weights
    # The slots of one device share the work of a group that is on it.
    longest = float(secs.min(axis=1).max())
    weights = _best_weights(_put_together(secs) if len(secs) > _MANY_GROUPS else secs)
    best_weights[is_used] = weights
    # Whatever the weights were found with, they bound the work of all groups.
    return max(float((secs * weights).min(axis=1).sum()), longest), best_weights


def _best_weights(secs: np.ndarray) -> np.ndarray:
    """Finds the weights of devices with which groups bound a step best; see `_work_secs`.

    Args:
        secs: float64 [num_groups, num_devices], positive; infinite where a group may not go.

    Returns:
        float64 [num_devices], which sum up to 1.
    """
    finite_secs = np.where(np.isfinite(secs), secs, 0.0)
    best = 0.0
    log_weights = -np.log(finite_secs.sum(axis=0) / np.isfinite(secs).sum(axis=0))
    best_weights = np.exp(log_weights - log_weights.max())
    best_weights /= best_weights.sum()
    for sharpness in np.geomspace(_FIRST_SHARPNESS, _LAST_SHARPNESS, _ITERATIONS):
        # Bounded, so that no cost becomes 0.
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


def _put_together(secs: np.ndarray) -> np.ndarray:
    """Adds up groups that are about as much faster on one device than on another as others are.

    Args:
        secs: float64 [num_groups, num_devices], positive; infinite where a group may not go.

    Returns:
        float64 [num_kinds, num_devices], of `_MANY_GROUPS` kinds at most where that can be.
    """
    least = secs.min(axis=1, keepdims=True)
    logs = np.log(secs / least)
    alike = _ALIKE
    while True:
        steps = np.floor(logs / np.log(alike))
        kind_of = np.zeros(len(secs), np.int64)
        for column in steps.T:
            numbers = np.unique(column, return_inverse=True)[1].reshape(-1)
            pairs = kind_of * (numbers.max() + 1) + numbers
            _, firsts, kind_of = np.unique(pairs, return_index=True, return_inverse=True)
            kind_of = kind_of.reshape(-1)
        if len(firsts) <= _MANY_GROUPS or not steps[np.isfinite(steps)].any():
            break
        alike = alike**_POWER
    return np.stack([np.bincount(kind_of, column, len(firsts)) for column in secs.T], axis=1)
