"""Colocation groups under the restrictions of a user, so that no placement breaks them."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from graph_passes.clearing_advice import advise_clearing
from graph_passes.colocation import ColocationGroups
from graph_passes.devices import device_type_of, home_device
from graph_passes.errors import GraphError
from graph_passes.kernels import KernelTable
from graph_passes.op_graph import OpGraph
from graph_passes.restrictions import ANY_GPU, Restrictions, match_names, suggest_names
from graph_passes.util.messages import quote
from graph_passes.util.union_find import UnionFind

__all__ = ["VARIABLE_NAME_ATTR", "describe_restrictions", "restrict_colocation"]

#: TensorFlow's attribute for the name that the argument of a function has for users. Of a variable
#: that a function captures, whose operation has the name of a reader, it is the name.
VARIABLE_NAME_ATTR = "_user_specified_name"

_ON_GPUS = "stay on the GPUs as far as they have kernels there"


@dataclasses.dataclass(frozen=True)
class _Requirement:
    """The device that a restriction requires of an operation.

    Attributes:
        device: the full name of the device.
        source: the restriction, for messages.
        operation: the operation that it names.
    """

    device: str
    source: str
    operation: int


def restrict_colocation(
    graph: OpGraph, colocation: ColocationGroups, restrictions: Restrictions | None
) -> ColocationGroups:
    """Joins the colocation groups that a user keeps together, and fixes those that are pinned.

    Patterns match operations of the step. Operations that no placement moves, such as summaries,
    are left out.

    Args:
        graph: the graph, with the operations of the step marked as needed.
        colocation: its colocation groups.
        restrictions: the restrictions of the user; None for none.

    Returns:
        The restricted groups, with `required` and `unrestricted` set; the given groups without
        restrictions.

    Raises:
        GraphError: a pattern matches nothing that can be moved, or TensorFlow cannot honor a
            restriction; the message names the operation, the pattern and the device.
    """
    if restrictions is None:
        return colocation
    return _Restricting(graph, colocation, restrictions).run()


def describe_restrictions(
    graph: OpGraph, colocation: ColocationGroups, restrictions: Restrictions
) -> list[str]:
    """Describes the effects of restrictions on a step, in lines for users.

    Args:
        graph: the graph.
        colocation: its restricted colocation groups.
        restrictions: the restrictions.
    """
    described: list[tuple[tuple[str, ...], str]] = [
        ((pattern,), _ON_GPUS if device == ANY_GPU else f"stay on {device}")
        for pattern, device in restrictions.pin.items()
    ]
    described += [(each, "share one device") for each in restrictions.keep_together]
    lines = []
    for patterns, effect in described:
        operations = sorted(set().union(*(_match(graph, each, "") for each in patterns)))
        groups = colocation.group[operations]
        movable = ~colocation.pinned[groups]
        count, others = int(movable.sum()), int((~movable).sum())
        line = (
            f"{', '.join(map(quote, patterns))}: {_count(count, 'operation')} in "
            f"{_count(len(np.unique(groups[movable])), 'colocation group')} {effect}"
        )
        if others:
            first = graph.names[operations[int(np.argmin(movable))]]
            line += f"; no placement moves {others} more, such as {quote(first)}"
        lines.append(line)
    return lines


class _Restricting:
    """Applies restrictions to the colocation groups of one graph."""

    def __init__(
        self, graph: OpGraph, colocation: ColocationGroups, restrictions: Restrictions
    ) -> None:
        self._graph, self._given, self._restrictions = graph, colocation, restrictions
        self._joined = colocation
        self._required: dict[int, _Requirement] = {}

    def run(self) -> ColocationGroups:
        """Returns the restricted groups; see `restrict_colocation`."""
        sets = UnionFind(self._given.num_groups)
        requirements = [self._join(patterns, sets) for patterns in self._restrictions.keep_together]
        self._joined = _join_groups(self._given, sets)
        for patterns, found in zip(self._restrictions.keep_together, requirements, strict=True):
            self._check_common_device(patterns)
            if found is not None:
                self._require(found)
        on_gpus: list[int] = []
        for pattern, device in self._restrictions.pin.items():
            source = f"pin {quote(pattern)} to {device}"
            if device == ANY_GPU:
                on_gpus += _match(self._graph, pattern, source)
                continue
            for i in self._list_pinned_by_user(pattern, device, source):
                self._require(_Requirement(device, source, i))
        return dataclasses.replace(
            self._joined,
            legal=self._keep_on_gpus(on_gpus),
            required={group: found.device for group, found in self._required.items()},
            unrestricted=self._given,
        )

    def _keep_on_gpus(self, operations: Sequence[int]) -> dict[str, np.ndarray]:
        """Takes operations off the CPUs if their groups may run on GPUs; see `legal`.

        Groups that no placement moves, or of which a device is required, stay as they are.
        """
        legal = {device_type: runs.copy() for device_type, runs in self._joined.legal.items()}
        groups = np.unique(self._joined.group[[*operations]])
        groups = groups[legal["GPU"][groups] & ~self._joined.pinned[groups]]
        legal["CPU"][np.setdiff1d(groups, [*self._required])] = False
        return legal

    def _join(self, patterns: Sequence[str], sets: UnionFind) -> _Requirement | None:
        """Joins the groups of a set of patterns.

        Returns:
            The device of the operations among them that the graph has on a device, required of the
            others; None if there are none of either.
        """
        source = f"keep_together {', '.join(map(quote, patterns))}"
        operations = [i for pattern in patterns for i in _match(self._graph, pattern, source)]
        free = [i for i in operations if not self._is_pinned(i)]
        for i in free[1:]:
            sets.union(int(self._given.group[free[0]]), int(self._given.group[i]))
        homes: dict[str, int] = {}
        for i in operations:
            if self._is_pinned(i) and (home := self._find_home(i)) is not None:
                homes.setdefault(home, i)
        if len(homes) > 1:
            (first, a), (second, b) = list(homes.items())[:2]
            raise GraphError(
                f"{source}: the graph has {self._name(a)} on {first} and {self._name(b)} on "
                f"{second}: {advise_clearing()}, or leave one of them out"
            )
        if not free and not homes:
            raise GraphError(self._explain_unmovable(source, operations[0]))
        if not free or not homes:
            return None
        ((home, i),) = homes.items()
        source += f" with {self._name(i)}, which the graph has on {home}"
        return _Requirement(home, source, free[0])

    def _list_pinned_by_user(self, pattern: str, device: str, source: str) -> list[int]:
        """Lists the operations that a pin applies to, without those that no placement moves."""
        operations = _match(self._graph, pattern, source)
        free, is_met = [], False
        for i in operations:
            if not self._is_pinned(i):
                free.append(i)
                continue
            home = self._find_home(i)
            if home is not None and home != device:
                raise GraphError(
                    f"{source}: the graph itself has {self._name(i)}, or what must share a device "
                    f"with it, on {home}: {advise_clearing()}, or leave it out of the pattern"
                )
            is_met = is_met or home is not None
        if not free and not is_met:
            raise GraphError(self._explain_unmovable(source, operations[0]))
        return free

    def _require(self, found: _Requirement) -> None:
        """Requires a device of a group.

        Raises:
            GraphError: another device is required of it, or it has no kernel there.
        """
        group = int(self._joined.group[found.operation])
        before = self._required.setdefault(group, found)
        if before.device != found.device:
            first, second = before.operation, found.operation
            shared = f"{self._name(first)} and {self._name(second)} must share a device"
            if first == second:
                shared = f"{self._name(first)} cannot be on both"
            elif self._given.group[first] != self._given.group[second]:
                shared = f"keep_together joins {self._name(first)} and {self._name(second)}"
            raise GraphError(
                f"{before.source} and {found.source} disagree: {shared}; change one of them"
            )
        device_type = device_type_of(found.device)
        if not self._joined.legal.get(device_type, self._joined.pinned)[group]:
            culprit = self._find_without_kernel(group, device_type, found.operation)
            reason = f"{self._name(found.operation)} has no kernel for {device_type}"
            if culprit != found.operation:
                reason = (
                    f"{self._name(found.operation)} must share a device with "
                    f"{self._name(culprit)}, which has no kernel for {device_type}"
                )
            raise GraphError(f"{found.source}: {reason}: choose another device, or other names")

    def _check_common_device(self, patterns: Sequence[str]) -> None:
        """Checks that operations that are kept together can be on some device of the machine.

        Raises:
            GraphError: they cannot.
        """
        types = sorted({device_type_of(device) for device in self._restrictions.devices})
        operations = [i for pattern in patterns for i in _match(self._graph, pattern, "")]
        for group in np.unique(self._joined.group[operations]).tolist():
            known = [t for t in types if t in self._joined.legal]
            if self._joined.pinned[group] or any(self._joined.legal[t][group] for t in known):
                continue
            culprits = [
                f"{self._name(self._find_without_kernel(group, t, -1))} has no kernel for {t}"
                for t in known
            ]
            raise GraphError(
                f"keep_together {', '.join(map(quote, patterns))}: no device can run all of it, "
                f"because {' and '.join(culprits)}: leave one of them out"
            )

    def _find_without_kernel(self, group: int, device_type: str, first: int) -> int:
        """Finds an operation of a group that has no kernel, the given one if it has none."""
        table, nodes = KernelTable(self._graph.graph_def), self._graph.graph_def.node
        members = np.flatnonzero(self._joined.group == group).tolist()
        order = sorted(members, key=lambda i: (i != first, not self._graph.needed[i]))
        return next(i for i in order if not table.supports(nodes[i], device_type))

    def _is_pinned(self, operation: int) -> bool:
        return bool(self._given.pinned[self._given.group[operation]])

    def _find_home(self, operation: int) -> str | None:
        """Finds the device that the graph has a pinned operation on; None if it names none."""
        requested = self._given.devices[self._given.group[operation]]
        devices = self._restrictions.devices
        return devices[home_device(requested, devices)] if requested else None

    def _explain_unmovable(self, source: str, operation: int) -> str:
        return (
            f"{source}: no placement moves {self._name(operation)}, because it is a "
            f"{self._graph.type_of(operation)} or must share a device with an operation that stays "
            "where the graph has it: leave it out"
        )

    def _name(self, operation: int) -> str:
        return quote(self._graph.names[operation])


def _join_groups(colocation: ColocationGroups, sets: UnionFind) -> ColocationGroups:
    """Joins colocation groups that are not pinned, and renumbers the result."""
    roots = sets.roots()
    # A root is the smallest member, so the order of the groups stays topological.
    used, number = np.unique(roots, return_inverse=True)
    legal = {}
    for device_type, runs in colocation.legal.items():
        legal[device_type] = np.ones(len(used), bool)
        np.logical_and.at(legal[device_type], number, runs)
    return dataclasses.replace(
        colocation,
        group=number[colocation.group].astype(np.int32),
        first_names=tuple(colocation.first_names[i] for i in used.tolist()),
        pinned=colocation.pinned[used],
        devices=tuple(colocation.devices[i] for i in used.tolist()),
        legal=legal,
    )


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _match(graph: OpGraph, pattern: str, source: str) -> list[int]:
    """Lists the operations of the step that a pattern matches, or whose variable's name it does.

    Raises:
        GraphError: there are none; the message has the nearest names.
    """
    indices = np.flatnonzero(graph.needed).tolist()
    needed = [graph.names[i] for i in indices]
    found = [graph.index[name] for name in match_names(pattern, needed)]
    nodes = graph.graph_def.node
    variables = {
        i: nodes[i].attr[VARIABLE_NAME_ATTR].s.decode()
        for i in indices
        if nodes[i].op == "VarHandleOp" and VARIABLE_NAME_ATTR in nodes[i].attr
    }
    matching = set(match_names(pattern, variables.values()))
    found += [i for i, name in variables.items() if name in matching]
    if found:
        return sorted(set(found))
    elsewhere = match_names(pattern, graph.names)
    if elsewhere:
        raise GraphError(
            f"{source}: the step does not run {quote(elsewhere[0])}, nor anything else that "
            f"matches {quote(pattern)}: give names of operations that it runs"
        )
    near = ", ".join(map(quote, suggest_names(pattern, needed)))
    raise GraphError(
        f"{source}: no operation of the step matches {quote(pattern)}; the nearest are {near}"
    )
