"""Groupings: sets of colocation groups that a placer places as one."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from graph_passes.colocation import ColocationGroups
from graph_passes.devices import device_type_of, home_device
from graph_passes.errors import GraphError
from graph_passes.op_graph import OpGraph
from graph_passes.util.union_find import UnionFind

__all__ = ["OPERATIONS", "PINNED", "Grouping", "merge_groups"]

#: The kind of groups without a special rule.
OPERATIONS = "operations"
#: The kind of groups whose operations keep their original device; the value is stored in files.
PINNED = "left_alone"


@dataclasses.dataclass(frozen=True, eq=False)
class Grouping:
    """The groups of the colocation groups that a step needs.

    Groups are numbered in topological order of their first needed operation.

    Attributes:
        group: int32 [num_colocation_groups], the group of each colocation group, -1 if the step
            needs none of its operations.
        kinds: the kind of each group: `OPERATIONS`, `PINNED`, or a kind of rule 3, such as
            "rnn_cell".
        sealed: bool [num_groups], true for groups that may absorb others but never join one.
    """

    group: np.ndarray
    kinds: tuple[str, ...]
    sealed: np.ndarray

    @property
    def num_groups(self) -> int:
        """The number of groups."""
        return len(self.kinds)

    def expand_to_operations(self, colocation: ColocationGroups) -> np.ndarray:
        """Finds the group of each operation: int32 [num_operations], -1 for none."""
        return self.group[colocation.group]

    def list_pinned(self) -> list[int]:
        """Lists the groups of pinned operations."""
        return [group for group, kind in enumerate(self.kinds) if kind == PINNED]

    def legal_types(self, colocation: ColocationGroups) -> np.ndarray:
        """Finds the device types that are legal for each group, as a bit set.

        Args:
            colocation: the colocation groups.

        Returns:
            int64 [num_groups], bit t set if all operations of the group have a kernel for the t-th
            device type of `sorted(colocation.legal)`.
        """
        masks = np.zeros(self.num_groups, np.int64)
        placed = self.group >= 0
        for bit, device_type in enumerate(sorted(colocation.legal)):
            runs = np.ones(self.num_groups, bool)
            np.logical_and.at(runs, self.group[placed], colocation.legal[device_type][placed])
            masks |= runs.astype(np.int64) << bit
        return masks

    def legal_classes(self, colocation: ColocationGroups) -> np.ndarray:
        """Finds the groups with the same legal devices.

        Args:
            colocation: the colocation groups.

        Returns:
            int64 [num_groups], equal for groups that may go to the same devices. Only these should
            be joined: a light operation without a GPU kernel must not bar others from the GPU, nor
            one that a user pins.
        """
        devices = sorted(set(colocation.required.values()))
        required = np.zeros(self.num_groups, np.int64)
        for colocated, device in colocation.required.items():
            if self.group[colocated] >= 0:
                required[self.group[colocated]] = 1 + devices.index(device)
        return self.legal_types(colocation) + (required << len(colocation.legal))

    def legal_devices(
        self, colocation: ColocationGroups, device_names: Sequence[str]
    ) -> np.ndarray:
        """Finds the devices of a machine that are legal for each group.

        Args:
            colocation: the colocation groups.
            device_names: the full names, such as "/job:worker/replica:0/task:1/device:CPU:0". A
                pinned group without a device counts as on the first one.

        Returns:
            bool [num_groups, num_devices].

        Raises:
            GraphError: no device is legal for a group.
        """
        masks = self.legal_types(colocation)
        types = sorted(colocation.legal)
        legal = np.zeros((self.num_groups, len(device_names)), bool)
        for d, name in enumerate(device_names):
            device_type = device_type_of(name)
            if device_type in types:
                legal[:, d] = masks >> types.index(device_type) & 1
        for colocated in np.flatnonzero(self.group >= 0).tolist():
            group = self.group[colocated]
            if self.kinds[group] == PINNED:
                legal[group] = False
                legal[group, home_device(colocation.devices[colocated], device_names)] = True
            elif colocated in colocation.required:
                legal[group] &= np.array(device_names) == colocation.required[colocated]
        for group in np.flatnonzero(~legal.any(axis=1)).tolist():
            colocated = int(np.flatnonzero(self.group == group)[0])
            raise GraphError(
                f"no device of {', '.join(device_names)} has a kernel for everything that must "
                f"share a device with {colocation.first_names[colocated]!r}"
            )
        return legal


def merge_groups(
    graph: OpGraph,
    colocation: ColocationGroups,
    grouping: Grouping,
    sets: UnionFind,
    kinds: dict[int, str] | None = None,
) -> Grouping:
    """Joins groups and renumbers the result.

    Args:
        graph: the graph.
        colocation: its colocation groups.
        grouping: the groups to join.
        sets: disjoint sets over the groups.
        kinds: new kinds of some groups; their sets become sealed groups of that kind.

    Returns:
        The joined groups. A set that contains a sealed group is sealed and has its kind.
    """
    roots = sets.roots()
    group_of_operation = grouping.expand_to_operations(colocation)
    needed = np.flatnonzero((group_of_operation >= 0) & graph.needed)
    first = np.full(grouping.num_groups, graph.num_operations, np.int64)
    np.minimum.at(first, roots[group_of_operation[needed]], graph.position[needed])
    used = np.unique(roots)
    used = used[np.argsort(first[used], kind="stable")]
    number = np.full(grouping.num_groups, -1, np.int32)
    number[used] = np.arange(len(used), dtype=np.int32)

    new_kinds = [OPERATIONS] * len(used)
    sealed = np.zeros(len(used), bool)
    for old, root in enumerate(roots.tolist()):
        new = number[root]
        kind = (kinds or {}).get(old)
        if kind is not None or grouping.sealed[old]:
            sealed[new] = True
        if kind is not None or grouping.kinds[old] != OPERATIONS:
            new_kinds[new] = kind or grouping.kinds[old]
    group = np.full(len(grouping.group), -1, np.int32)
    placed = grouping.group >= 0
    group[placed] = number[roots[grouping.group[placed]]]
    return Grouping(group, tuple(new_kinds), sealed)
