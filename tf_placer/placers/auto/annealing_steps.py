"""The steps of simulated annealing, compiled by numba."""

from __future__ import annotations

from typing import NamedTuple

import numba
import numpy as np

from tf_placer.placers.auto import moves
from tf_placer.placers.auto.moves import draw_move
from tf_placer.simulation import base_simulation, moved_steps
from tf_placer.simulation.base_simulation import BASE_MODULES, simulate_base
from tf_placer.simulation.compiling import compiled
from tf_placer.simulation.event_loop import CUT, ENDED
from tf_placer.simulation.moved_steps import MOVED_MODULES, simulate_moved

__all__ = ["BASE", "DONE", "GIVEN", "GO_ON", "OVERFULL", "Chain", "anneal", "make_chain"]

# What to do first: go on, make the best placement the base, or judge the move that is given.
GO_ON, BASE, GIVEN = range(3)
# Why it ended: all steps are made, or somebody has to make room for a move.
DONE, OVERFULL = range(2)
# About as many steps decide what the next are likely to be.
_CUTS_IN_MIND = 32

# numba cannot work with type hints.
# mypy: disallow-untyped-defs=False

_RECORD = np.dtype(
    [
        ("step_secs", np.float64),
        ("limit_secs", np.float64),  # what a move may take, the last time that one was drawn
        ("cut_share", np.float64),  # of the latest steps, how many were cut
        ("excess_bytes", np.int64),
        ("num_moved", np.int64),  # groups of the last move
        ("num_simulated", np.int64),
        ("num_fruitless", np.int64),  # moves since the shortest step since the last kick
        ("climb_secs", np.float64),  # which was that
        ("best_secs", np.float64),
        ("best_excess_bytes", np.int64),
    ]
)


class Chain(NamedTuple):
    """Where a chain is, and the best that it found.

    Attributes:
        record: _RECORD [1].
        peak_bytes: int64 [num_devices], of the last placement that was simulated.
        best_placement: int32 [num_groups].
        best_peak_bytes: int64 [num_devices].
        all_groups: int64 [num_groups], all of them.
        kicked: int64 [num_groups], working space.
        capacities: int64 [num_devices].
    """

    record: np.ndarray
    peak_bytes: np.ndarray
    best_placement: np.ndarray
    best_peak_bytes: np.ndarray
    all_groups: np.ndarray
    kicked: np.ndarray
    capacities: np.ndarray


def make_chain(num_groups: int, capacities: np.ndarray) -> Chain:
    """Makes space for a chain that is nowhere yet.

    Args:
        num_groups: how many there are.
        capacities: int64 [num_devices], how many bytes the devices can hold.
    """
    record = np.zeros(1, _RECORD)
    record["cut_share"] = 1.0
    record["best_secs"] = np.inf
    record["best_excess_bytes"] = np.iinfo(np.int64).max
    return Chain(
        record=record,
        peak_bytes=np.zeros(len(capacities), np.int64),
        best_placement=np.zeros(num_groups, np.int32),
        best_peak_bytes=np.zeros(len(capacities), np.int64),
        all_groups=np.arange(num_groups),
        kicked=np.zeros(num_groups, np.int64),
        capacities=capacities,
    )


@numba.njit
def _excess_bytes(chain):
    """Computes by how much the last placement that was simulated is too large."""
    excess = 0
    for device in range(len(chain.capacities)):
        excess += max(0, chain.peak_bytes[device] - chain.capacities[device])
    return excess


@numba.njit
def _note(chain, placement, step_secs):
    """Notes where the chain is, and whether that is the best."""
    record = chain.record[0]
    record.step_secs = step_secs
    record.excess_bytes = _excess_bytes(chain)
    is_better = record.excess_bytes < record.best_excess_bytes
    if record.excess_bytes == record.best_excess_bytes:
        is_better = step_secs < record.best_secs
    if is_better:
        record.best_secs = step_secs
        record.best_excess_bytes = record.excess_bytes
        chain.best_placement[:] = placement
        chain.best_peak_bytes[:] = chain.peak_bytes


@numba.njit
def _simulate(space, chain, drawn, limit_secs):
    """Simulates the move; returns what became of its step, and how long it is."""
    tables, state, memory, watch, base, snapshots, move = space
    record = chain.record[0]
    record.num_simulated += 1
    count = record.num_moved
    # Memory never changes times, so it need not be looked at for what takes too long.
    times_first = limit_secs < np.inf and record.cut_share > 0.5
    outcome, step_secs = simulate_moved(
        tables,
        state,
        memory,
        watch,
        base,
        snapshots,
        move,
        chain.peak_bytes,
        drawn.groups[:count],
        drawn.devices[:count],
        limit_secs,
        times_first,
    )
    if limit_secs < np.inf:
        record.cut_share += ((outcome == CUT) - record.cut_share) / _CUTS_IN_MIND
    return outcome, step_secs


@numba.njit
def _rebase(space, chain, groups, devices, is_new):
    """Makes a placement the base, and goes on from it."""
    tables, state, memory, watch, base, snapshots, move = space
    simulate_base(
        tables,
        state,
        memory,
        watch,
        base,
        snapshots,
        move,
        chain.peak_bytes,
        groups,
        devices,
        is_new,
    )
    _note(chain, base.placement, base.step_secs[0])
    record = chain.record[0]
    # Small ups and downs lead nowhere.
    if is_new or record.excess_bytes or record.step_secs < record.climb_secs:
        record.climb_secs = record.step_secs
        record.num_fruitless = 0


@numba.njit
def _kick(space, tables, hot, drawn, chain, random, kick):
    """Goes on from the best placement after some moves at once, if that fits."""
    chain.kicked[:] = chain.best_placement
    for _ in range(kick):
        count = draw_move(tables, hot, drawn, random, chain.kicked, 0.0)
        for at in range(count):
            chain.kicked[drawn.groups[at]] = drawn.devices[at]
    record = chain.record[0]
    record.num_simulated += 1
    _rebase(space, chain, chain.all_groups, chain.kicked, True)
    if record.excess_bytes > record.best_excess_bytes:
        chain.kicked[:] = chain.best_placement
        _rebase(space, chain, chain.all_groups, chain.kicked, True)


def _anneal(
    space,
    tables,
    hot,
    drawn,
    chain,
    random,
    placement,
    first,
    steps,
    temperature,
    coarse_share,
    patience,
    kick,
    fitting_steps,
):
    """Makes some steps of a chain.

    Args:
        space: of an `IncrementalSimulator`.
        tables: `MoveTables`.
        hot: `HotSpots`.
        drawn: `DrawnMove`, with the move if one is given.
        chain: `Chain`.
        random: numpy Generator.
        placement: int64 [num_groups], where to start if `first` is BASE.
        first: what to do first: GO_ON, BASE or GIVEN.
        steps: how many, at most.
        temperature: as a share of the step time; positive.
        coarse_share: how often moves take clusters.
        patience: after how many fruitless moves in a row to go on from the best placement with some
            groups elsewhere; 0 for never.
        kick: how many moves that are.
        fitting_steps: at first, so many steps take only what fits, and nobody is asked for room.

    Returns:
        Why it ended, and how many steps were made, one more if a move was given.
    """
    record = chain.record[0]
    base = space[4]
    if first == BASE:
        _rebase(space, chain, chain.all_groups, placement, True)
    steps += first == GIVEN
    for step in range(steps):
        is_given = first == GIVEN and step == 0
        if patience and record.num_fruitless >= patience and not is_given:
            # That simulates, and so is a step.
            _kick(space, tables, hot, drawn, chain, random, kick)
            continue
        is_too_large = record.excess_bytes > 0
        if not is_given:
            # How much worse may be taken is drawn first, so that what is worse need not be
            # simulated to its end.
            slack = 1.0 - temperature * np.log(1.0 - random.random())
            record.num_moved = draw_move(tables, hot, drawn, random, base.placement, coarse_share)
            if not record.num_moved:
                continue
            record.limit_secs = np.inf if is_too_large else record.step_secs * slack
            most_bytes = int(record.excess_bytes * slack) if is_too_large else 0
        else:
            most_bytes = 0
        record.num_fruitless += 1
        outcome, step_secs = _simulate(space, chain, drawn, record.limit_secs)
        if outcome != ENDED or step_secs > record.limit_secs:
            continue
        excess_bytes = _excess_bytes(chain)
        if excess_bytes > most_bytes:
            if is_given or is_too_large or step < fitting_steps:
                continue
            return OVERFULL, step + 1
        count = record.num_moved
        _rebase(space, chain, drawn.groups[:count], drawn.devices[:count], False)
    return DONE, steps


anneal = compiled(_anneal, moves, base_simulation, moved_steps, *BASE_MODULES, *MOVED_MODULES)
