"""Favorite children: for each operation the one that should follow it on its device."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import optimize, sparse

from tf_placer.placers.heuristics.schedule_costs import ScheduleCosts, average_link, average_secs

__all__ = ["find_favorite_children"]

# Slightly below a half, so that rounding errors of the solver cannot give an operation two
# favorites.
_MAX_DELAY_OF_FAVORITE = 0.5 - 1e-6


def find_favorite_children(costs: ScheduleCosts, allowed: np.ndarray) -> tuple[list[int], float]:
    """Finds favorite children by a linear program.

    The program schedules on an unlimited number of devices: an operation starts after its inputs
    and, unless it is the favorite of their producer, after the transfer from there. Every operation
    has at most one favorite and is the favorite of at most one; the relaxed program may assign
    fractions of a favorite, of which those above a half count. Operations take their mean seconds
    on the devices that they may go to, and transfers those of an average link; transfers within a
    group, and signals, take no time.

    Args:
        costs: the costs of the operations.
        allowed: bool [num_groups, num_devices], true where a group may go.

    Returns:
        For each operation its favorite or -1; and the length of the schedule, in seconds. It is a
        lower bound of all schedules if no transfer takes longer than any operation.

    Raises:
        RuntimeError: the program could not be solved.

    References:
        Hanen and Munier, An approximation algorithm for scheduling dependent tasks on m processors
        with small communication delays, ETFA 1995; Jeon et al., Baechi: Fast Device Placement of
        Machine Learning Graphs, SoCC 2020.
    """
    secs = np.array(average_secs(costs, allowed))
    latency_secs, secs_per_byte = average_link(costs, allowed)
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

    def build_selection(columns: np.ndarray, width: int) -> Any:
        rows = np.arange(len(columns))
        return sparse.csr_array((np.ones(len(columns)), (rows, columns)), (len(columns), width))

    count = len(secs)
    first, last = build_selection(befores, count), build_selection(afters, count)
    column = np.ones([count, 1])
    sent = sparse.csr_array(
        (transfers / unit_secs, (crossing, np.arange(len(crossing)))), (len(edges), len(crossing))
    )
    # Variables: the share of its transfer that each crossing edge waits for, which is 0 for a
    # favorite; the starts; and the length.
    conditions = [
        [sent, first - last, None],
        [None, sparse.eye_array(count), -column],
        [-first[crossing].T, None, None],  # All edges of an operation but one wait in full.
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
    for edge in crossing[solved.x[: len(crossing)] < _MAX_DELAY_OF_FAVORITE].tolist():
        favorites[befores[edge]] = int(afters[edge])
    return favorites, float(solved.fun) * unit_secs
