"""A placement, its step, and states of that step from which others go on.

Tables of records, as the inner loop of the simulator works with.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tf_placer.simulation.step_state import MemoryAccount, StepState, make_times
from tf_placer.simulation.step_tables import StepTables

__all__ = ["BaseStep", "Move", "Snapshots", "make_base_step", "make_move", "make_snapshots"]

_CLOCK = np.dtype(
    [
        ("now_secs", np.float64),
        ("num_events", np.int64),
        ("num_jobs", np.int64),
        ("num_started", np.int64),
        ("num_waiting", np.int64),
    ]
)
_WAITING = np.dtype(
    [
        ("ready_secs", np.float64),
        ("job", np.int32),
        ("next", np.int32),
        ("left", np.int32),
        ("right", np.int32),
    ]
)


class BaseStep(NamedTuple):
    """A placement and its step.

    Attributes:
        placement: int32 [num_groups].
        step_secs: float64 [1].
        times: _TIMES [max_jobs], when the operations started and ended.
        segments: int32 [num_operations], during which segments the operations ended: segment k is
            from state k to the next.
        jobs: _JOB [max_transfers], the transfers.
        transfers: _TRANSFER [max_transfers], the same ones.
        orders: int64 [max_transfers], their places among the requests of one instant.
        resident_bytes: int64 [num_devices], what the groups hold for the whole step.
        total_secs: float64 [num_devices], what the operations of each device take.
        group_start: int64 [num_groups + 1], where the operations of each group start.
        group_operations: int64 [num_operations], sorted by group.
        group_secs: float64 [num_groups, num_devices], what the operations of a group take; 0 where
            it may not go.
    """

    placement: np.ndarray
    step_secs: np.ndarray
    times: np.ndarray
    segments: np.ndarray
    jobs: np.ndarray
    transfers: np.ndarray
    orders: np.ndarray
    resident_bytes: np.ndarray
    total_secs: np.ndarray
    group_start: np.ndarray
    group_operations: np.ndarray
    group_secs: np.ndarray


class Snapshots(NamedTuple):
    """States in order of time, each before anything happened at its time.

    The first is the one before the step. What groups hold for the whole step is in none of them.

    Attributes:
        size: int64 [1], how many there are.
        clocks: _CLOCK [max_snapshots].
        num_missing: int32 [max_snapshots, num_operations].
        originals: _ORIGINAL [max_snapshots, num_outputs].
        copies: _COPY [max_snapshots, max_transfers].
        servers: _SERVER [max_snapshots, num_servers].
        events: _EVENT [max_snapshots, max_running].
        waiting: _WAITING [max_snapshots, max_jobs], what is in the queues.
        started_secs: float64 [max_snapshots, num_devices].
        held: _HELD [max_snapshots, num_devices].
        peaks: int64 [max_snapshots, num_devices], the most that was held from one state to the
            next, as far as it was noted; -1 where nothing was.
    """

    size: np.ndarray
    clocks: np.ndarray
    num_missing: np.ndarray
    originals: np.ndarray
    copies: np.ndarray
    servers: np.ndarray
    events: np.ndarray
    waiting: np.ndarray
    started_secs: np.ndarray
    held: np.ndarray
    peaks: np.ndarray


class Move(NamedTuple):
    """The base with some groups elsewhere.

    Attributes:
        placement: int32 [num_groups].
        moved: int64 [num_groups], the groups that are elsewhere, `num_moved` of them.
        num_moved: int64 [1].
        is_moved: bool [num_groups], whether a group is one of them.
        resident_bytes: int64 [num_devices], what the groups hold for the whole step.
        moved_bytes: int64 [num_devices], what a device holds more than in the base because an
            operation ran there that runs elsewhere in the base.
        num_same: int64 [1], how many transfers of the working space are those of the base.
        is_active: bool [max_snapshots], in which segments something may differ from the base.
        is_different: bool [max_snapshots], in which states something certainly does.
        places: int32 [max_jobs], working space: where a job is among those that wait.
    """

    placement: np.ndarray
    moved: np.ndarray
    num_moved: np.ndarray
    is_moved: np.ndarray
    resident_bytes: np.ndarray
    moved_bytes: np.ndarray
    num_same: np.ndarray
    is_active: np.ndarray
    is_different: np.ndarray
    places: np.ndarray


def make_base_step(tables: StepTables, state: StepState) -> BaseStep:
    """Makes space for a step that is to be the base of others."""
    num_devices, num_operations = tables.compute_secs.shape
    num_groups = len(tables.group_bytes)
    groups = tables.operations["group"][:num_operations]
    group_secs = np.zeros([num_groups, num_devices])
    np.add.at(group_secs, groups, tables.compute_secs.T)
    return BaseStep(
        placement=np.zeros(num_groups, np.int32),
        step_secs=np.zeros(1),
        times=make_times(state),
        segments=np.zeros(num_operations, np.int32),
        jobs=np.zeros(len(state.transfers), state.jobs.dtype),
        transfers=np.zeros_like(state.transfers),
        orders=np.zeros(len(state.transfers), np.int64),
        resident_bytes=np.zeros(num_devices, np.int64),
        total_secs=np.zeros(num_devices),
        group_start=np.searchsorted(np.sort(groups), np.arange(num_groups + 1)),
        group_operations=np.argsort(groups, kind="stable"),
        group_secs=np.where(tables.group_is_legal, group_secs, 0.0),
    )


def make_snapshots(
    tables: StepTables, state: StepState, memory: MemoryAccount, count: int
) -> Snapshots:
    """Makes space for `count` states, and fills in the first."""
    num_devices, num_operations = tables.compute_secs.shape
    # Most of it is never touched, and what is not touched takes no memory.
    snapshots = Snapshots(
        size=np.ones(1, np.int64),
        clocks=np.zeros(count, _CLOCK),
        num_missing=np.empty([count, num_operations], np.int32),
        originals=np.empty([count, len(memory.originals)], memory.originals.dtype),
        copies=np.empty([count, len(memory.copies)], memory.copies.dtype),
        servers=np.zeros([count, len(state.servers)], state.servers.dtype),
        events=np.empty([count, len(state.events)], state.events.dtype),
        waiting=np.empty([count, len(state.jobs)], _WAITING),
        started_secs=np.zeros([count, num_devices]),
        held=np.zeros([count, num_devices], memory.held.dtype),
        peaks=np.empty([count, num_devices], np.int64),
    )
    snapshots.clocks["num_jobs"][0] = num_operations
    snapshots.num_missing[0] = tables.operations["num_inputs"][:num_operations]
    snapshots.originals["num_users"][0] = tables.outputs["num_readers"]
    snapshots.originals["last_copy"][0] = -1
    servers = snapshots.servers[0]
    servers["slots"] = servers["free_slots"] = state.servers["slots"]
    servers["first"] = servers["root"] = -1
    return snapshots


def make_move(tables: StepTables, state: StepState, snapshots: Snapshots) -> Move:
    """Makes space for what is tried."""
    num_devices, num_groups = len(tables.compute_secs), len(tables.group_bytes)
    return Move(
        placement=np.zeros(num_groups, np.int32),
        moved=np.zeros(num_groups, np.int64),
        num_moved=np.zeros(1, np.int64),
        is_moved=np.zeros(num_groups, np.bool_),
        resident_bytes=np.zeros(num_devices, np.int64),
        moved_bytes=np.zeros(num_devices, np.int64),
        num_same=np.zeros(1, np.int64),
        is_active=np.zeros(len(snapshots.clocks), np.bool_),
        is_different=np.zeros(len(snapshots.clocks), np.bool_),
        places=np.zeros(len(state.jobs), np.int32),
    )
