"""Favorite children: which operation should follow another on its device."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import optimize, sparse

from tf_placer.placers.heuristics.schedule_costs import ScheduleCosts, mean_link, mean_secs

__all__ = ["favorite_children"]

# Rounding errors of the solver must not make two favorites of one.
_HALF = 0.5 - 1e-6


def favorite_children(costs: ScheduleCosts, allowed: np.ndarray) -> tuple[list[int], float]:
    """Finds favorite children by a linear program.

    The program schedules on as many devices as it likes: an operation starts after those that it
    waits for and, unless it is the favorite of one, after the transfer from it. Every operation
    has one favorite at most and is the favorite of one at most; the program may share that out,
    and what has more than half of it counts. Operations take their mean seconds on the devices
    that they may go to, and transfers those on an average link; what is sent in a group, and
    signals, take no time.

    Args:
        costs: of the operations.
        allowed: bool [num_groups, num_devices], where groups may go.

    Returns:
        For each operation its favorite, -1 if it has none; and the length of the schedule, in
        seconds: if no transfer takes longer than any operation, no schedule is shorter.

    Raises:
        RuntimeError: the program could not be solved.

    References:
        Hanen and Munier, An approximation algorithm for scheduling dependent tasks on m processors
        with small communication delays, ETFA 1995; Jeon et al., Baechi: Fast Device Placement of
        Machine Learning Graphs, SoCC 2020.
    """
    secs = np.array(mean_secs(costs, allowed))
    latency_secs, secs_per_byte = mean_link(costs, allowed)
    edges = [
        (before, after, size > 0 and costs.groups[before] != costs.groups[after], size)
        for after, inputs in enumerate(costs.inputs)
        for before, size in inputs
    ]
    befores, afters, crosses, sizes = np.array(edges, np.int64).reshape(-1, 4).T
    crossing = np.flatnonzero(crosses)
    transfers = latency_secs + sizes[crossing] * secs_per_byte
    # The tolerances of the solver are absolute.
    unit_secs = max(float(secs.mean()), np.finfo(np.float64).tiny)

    def one_per_row(columns: np.ndarray, width: int) -> Any:
        rows = np.arange(len(columns))
        return sparse.csr_array((np.ones(len(columns)), (rows, columns)), (len(columns), width))

    count = len(secs)
    first, last = one_per_row(befores, count), one_per_row(afters, count)
    column = np.ones([count, 1])
    sent = sparse.csr_array(
        (transfers / unit_secs, (crossing, np.arange(len(crossing)))), (len(edges), len(crossing))
    )
    # Variables: what each crossing edge lacks of being a favorite, the starts, and the length.
    conditions = [
        [sent, first - last, None],
        [None, sparse.eye_array(count), -column],
        [-first[crossing].T, None, None],  # All edges of an operation but one lack all.
        [-last[crossing].T, None, None],
    ]
    limits = [
        -secs[befores] / unit_secs,
        -secs / unit_secs,
        1 - np.bincount(befores[crossing], minlength=count),
        1 - np.bincount(afters[crossing], minlength=count),
    ]
    objective = np.zeros(len(crossing) + count + 1)
    objective[-1] = 1.0
    bounds = np.full([len(objective), 2], [0.0, np.inf])
    bounds[: len(crossing), 1] = 1.0
    solved = optimize.linprog(
        objective,
        A_ub=sparse.bmat(conditions, format="csr"),
        b_ub=np.concatenate(limits),
        bounds=bounds,
        method="highs-ds",
    )
    if solved.status:
        raise RuntimeError(f"placer 'm_sct' could not solve its linear program: {solved.message}")
    favorites = [-1] * count
    for edge in crossing[solved.x[: len(crossing)] < _HALF].tolist():
        favorites[befores[edge]] = int(afters[edge])
    return favorites, float(solved.fun) * unit_secs
