"""Colocation groups: sets of operations that must share a device for correct results.

References:
    The rules of TensorFlow's Placer (colocation constraints, reference and resource edges), and
    sets that break when they are split by hand: control-flow frames and conditionals.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import numpy as np

from graph_passes.kernels import KernelTable
from graph_passes.op_graph import OpGraph
from graph_passes.op_types import VARIABLES
from graph_passes.pinned_operations import find_feeds, find_pinned
from graph_passes.races import Race, find_races
from graph_passes.shared_resources import find_resources
from graph_passes.util.union_find import UnionFind

__all__ = ["ColocationGroups", "find_colocation_groups"]

_CLASS = "_class"
_LOCATION = b"loc:@"
_ENTER = ("Enter", "RefEnter")
_EXIT = ("Exit", "RefExit")
_SWITCH = ("Switch", "RefSwitch", "_SwitchN")
_MERGE = ("Merge", "RefMerge")


@dataclasses.dataclass(frozen=True, eq=False)
class ColocationGroups:
    """The colocation groups of a graph, numbered by their first operation in topological order.

    Attributes:
        group: int32 [num_operations], the colocation group of every operation.
        first_names: the name of each group's first operation.
        pinned: bool [num_groups], true where no device may be written.
        devices: per group the original device of one of its operations, or "".
        legal: per device type ("CPU", "GPU") bool [num_groups], true where every operation of the
            group has a kernel for it.
        races: the reads of variables that are not ordered with the writes.
        required: by group, the full name of the device that a user pins it to.
        unrestricted: the groups without the restrictions of the user; None if there are none.
    """

    group: np.ndarray
    first_names: tuple[str, ...]
    pinned: np.ndarray
    devices: tuple[str, ...]
    legal: dict[str, np.ndarray]
    races: tuple[Race, ...] = ()
    required: Mapping[int, str] = dataclasses.field(default_factory=dict)
    unrestricted: ColocationGroups | None = None

    @property
    def num_groups(self) -> int:
        """The number of groups."""
        return len(self.pinned)

    @property
    def by_tensorflow(self) -> ColocationGroups:
        """The groups that TensorFlow itself requires, without the restrictions of the user."""
        return self.unrestricted or self


def find_colocation_groups(graph: OpGraph) -> ColocationGroups:
    """Finds the sets of operations that must share a device, and where each may go.

    Operations are joined by (1) `loc:@` attributes, (2) reference edges, (3) resource and variant
    edges, (4) a v1 while loop's frame, (5) a v1 conditional: its Switch, its Merge and the
    operations between them, (6) a race: a variable, its reader that is not ordered with a write,
    and the few operations before that write, if all have kernels wherever the variable has, and
    unless several writes are unordered, (7) a resource that they look up by the same container and
    name. A functional While, If or PartitionedCall is one operation.

    Args:
        graph: the whole graph.

    Returns:
        The groups. A group is pinned if one of its operations is pinned or all of them are feeds.
    """
    sets = UnionFind(graph.num_operations)
    _join_classes(graph, sets)
    handles = np.flatnonzero(graph.edge_is_handle)
    for producer, consumer in zip(
        graph.edge_producer[handles].tolist(), graph.edge_consumer[handles].tolist(), strict=True
    ):
        sets.union(producer, consumer)
    in_frame = _join_frames(graph, sets)
    _join_conditionals(graph, sets, in_frame)
    is_pinned = find_pinned(graph)
    _join_resources(graph, sets, is_pinned)
    table = KernelTable(graph.graph_def)
    races = _join_races(graph, sets, is_pinned, table)

    roots = sets.roots()
    # Numbers follow the first member in topological order.
    first = np.full(graph.num_operations, graph.num_operations, np.int64)
    np.minimum.at(first, roots, graph.position)
    used = np.unique(roots)
    used = used[np.argsort(first[used])]
    number = np.full(graph.num_operations, -1, np.int32)
    number[used] = np.arange(len(used), dtype=np.int32)
    group = number[roots]

    pinned = np.ones(len(used), bool)
    pinned[group[~find_feeds(graph)]] = False
    pinned[group[is_pinned]] = True
    devices = [""] * len(used)
    legal = {device_type: np.ones(len(used), bool) for device_type in table.device_types}
    for g, node in zip(group.tolist(), graph.graph_def.node, strict=True):
        devices[g] = devices[g] or node.device
        supporting = table.find_device_types(node)
        for device_type, runs in legal.items():
            if device_type not in supporting:
                runs[g] = False
    names = [""] * len(used)
    for i in graph.order[::-1].tolist():
        names[group[i]] = graph.names[i]
    return ColocationGroups(group, tuple(names), pinned, tuple(devices), legal, races)


def _join_classes(graph: OpGraph, sets: UnionFind) -> None:
    for i, node in enumerate(graph.graph_def.node):
        attr = node.attr
        if _CLASS in attr:
            for value in attr[_CLASS].list.s:
                if value.startswith(_LOCATION):
                    sets.union(i, graph.index[value[len(_LOCATION) :].decode()])


def _join_frames(graph: OpGraph, sets: UnionFind) -> np.ndarray:
    """Joins the operations of each while loop, and returns int32 [num_operations], frames or -1."""
    frames: dict[tuple[bytes, int], int] = {}
    frame_of = np.full(graph.num_operations, -1, np.int32)
    parent: list[int] = []
    anchor: list[int] = []
    is_enter, is_exit = graph.has_type(_ENTER), graph.has_type(_EXIT)
    if not is_enter.any():
        return frame_of
    producers = _list_producers(graph)
    for i in graph.order.tolist():
        # The frame of an operation is the innermost frame of its inputs. Loop-closing edges come
        # from the same frame, so ignoring them changes nothing.
        inner = -1
        for p in producers[i]:
            frame = int(frame_of[p])
            if is_exit[p] and frame >= 0:
                frame = parent[frame]
            inner = max(inner, frame)
        if is_enter[i]:
            key = (graph.graph_def.node[i].attr["frame_name"].s, inner)
            if key not in frames:
                frames[key] = len(parent)
                parent.append(inner)
                anchor.append(i)
                if inner >= 0:
                    sets.union(anchor[inner], i)
            inner = frames[key]
        frame_of[i] = inner
        if inner >= 0:
            sets.union(anchor[inner], i)
    return frame_of


def _join_conditionals(graph: OpGraph, sets: UnionFind, frame_of: np.ndarray) -> None:
    """Joins each conditional's switches, merges and the operations that only one branch runs."""
    is_switch = graph.has_type(_SWITCH) & (frame_of < 0)
    if not is_switch.any():
        return
    is_merge = graph.has_type(_MERGE)
    inputs, producers = graph.input_tensors, _list_producers(graph)
    # `above` has the innermost switch before each operation that no merge has closed, and `around`
    # the enclosing switch of each switch, or -1.
    above: list[int] = [-1] * graph.num_operations
    around: dict[int, int] = {}
    depth: dict[int, int] = {-1: 0}
    first_switch: dict[int, int] = {}
    for i in graph.order.tolist():
        open_switches = [above[p] for p in producers[i] if above[p] >= 0]
        for switch in open_switches:
            sets.union(switch, i)
        innermost = max(open_switches, key=depth.__getitem__, default=-1)
        if is_switch[i]:
            predicate = inputs[i][-1]
            sets.union(first_switch.setdefault(predicate, i), i)
            around[i], depth[i] = innermost, depth[innermost] + 1
            above[i] = i
        elif is_merge[i]:
            above[i] = around.get(innermost, -1)
        else:
            above[i] = innermost


def _join_resources(graph: OpGraph, sets: UnionFind, is_pinned: np.ndarray) -> None:
    """Joins operations that share a resource by name, unless their original devices differ.

    Where some of them have an original device, the others share the resource only if TensorFlow
    puts them on that device by itself, so these are pinned, too.
    """
    is_variable = graph.has_type(VARIABLES)
    for operations in find_resources(graph).values():
        first_on: dict[str, int] = {}
        for i in operations:
            sets.union(first_on.setdefault(graph.graph_def.node[i].device, i), i)
        if len(first_on) > 1 and "" in first_on:
            is_pinned[first_on[""]] = True
        if not is_pinned[operations].any():
            continue
        for i in operations:
            # TensorFlow's Placer puts operations without inputs, such as Unstage, on the device of
            # their consumer.
            if not (graph.graph_def.node[i].device or graph.producers[i] or is_variable[i]):
                for reader in graph.consumers[i]:
                    sets.union(i, reader)


def _join_races(
    graph: OpGraph, sets: UnionFind, is_pinned: np.ndarray, table: KernelTable
) -> tuple[Race, ...]:
    """Joins variables with reads that are not ordered with a write, where kernels allow it.

    The few operations before the write are joined, too: then all of them run on one device and wait
    for no other, so the order is nearly always the same as when the whole graph is on one device.
    Towers that update variables asynchronously race on purpose, and would be pointless on one
    device.
    """
    races = find_races(graph)
    for race in races:
        if race.is_asynchronous:
            continue
        joined = (*race.aliases, race.reader, *(race.before_writer or ()))
        nodes = [graph.graph_def.node[i] for i in (race.variable, *joined)]
        of_variable, *others = (set(table.find_device_types(node)) for node in nodes)
        if is_pinned[[*joined]].any() or not all(of_variable <= other for other in others):
            continue
        for i in joined:
            sets.union(race.variable, i)
    return tuple(races)


def _list_producers(graph: OpGraph) -> list[list[int]]:
    """Lists the operations before each operation, by data and then by control edges."""
    producers: list[list[int]] = [[] for _ in graph.names]
    for before, after in zip(
        graph.edge_producer.tolist(), graph.edge_consumer.tolist(), strict=True
    ):
        producers[after].append(before)
    for before, after in graph.control_edges.tolist():
        producers[after].append(before)
    return producers
