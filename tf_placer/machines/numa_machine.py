"""Machines of one TensorFlow process per NUMA node of this computer, or per group of its cores.

Linux gives a process memory of the node on whose cores it runs, as long as the node has some. So a
process that is pinned to the cores of a node keeps its tensors there.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from graph_passes.util.messages import quote
from tf_placer.machines.computer_memory import read_computer_memory_bytes
from tf_placer.machines.machine import Device, Machine, MachineError, name_worker_cpu
from tf_placer.machines.numa_nodes import NumaNode, format_cores, parse_cores, read_numa_nodes

__all__ = ["find"]

_NODES = "numa"
_GROUPS = "cores:"
_MAX_GROUPS = 256
_EXAMPLE = "name groups of cores such as 'cores:0-7/8-15'"


def find(spec: str, session_config: Any = None) -> Machine | None:
    """Makes the machine of "numa" or "cores:0-7/8-15"; see `find_machine`.

    Raises:
        MachineError: the computer has fewer than two nodes, or a group of cores is wrong.
    """
    if spec == _NODES:
        return _make_machine(spec, _find_nodes())
    if spec.startswith(_GROUPS):
        groups = _parse_groups(spec, spec.removeprefix(_GROUPS).split("/"))
        return _make_machine(spec, [NumaNode(group, None) for group in groups])
    return None


def _make_machine(spec: str, nodes: Sequence[NumaNode]) -> Machine:
    return Machine(
        spec,
        "numa",
        tuple(
            Device(name_worker_cpu(task), "CPU", node.memory_bytes, node.cores)
            for task, node in enumerate(nodes)
        ),
    )


def _find_nodes() -> list[NumaNode]:
    """Finds the nodes of this computer; a container may have less memory than they."""
    limit_bytes = read_computer_memory_bytes()
    nodes = [
        NumaNode(node.cores, node.memory_bytes and min(node.memory_bytes, limit_bytes))
        for node in read_numa_nodes()
    ]
    if len(nodes) < 2:
        cores = sorted(os.sched_getaffinity(0))
        half = (len(cores) + 1) // 2
        groups = "/".join(format_cores(part) for part in (cores[:half], cores[half:]) if part)
        raise MachineError(
            "machine 'numa': the cores that this process may use are on one NUMA node of this "
            f"computer: divide them evenly by 'local:2', or into groups by 'cores:{groups}'"
        )
    return nodes


def _parse_groups(spec: str, texts: Sequence[str]) -> list[tuple[int, ...]]:
    """Parses the groups of cores in the name of a machine, each sorted.

    Raises:
        MachineError: a group is wrong; the message names the core.
    """
    if len(texts) > _MAX_GROUPS:
        raise MachineError(
            f"machine {quote(spec)}: there are at most {_MAX_GROUPS} groups, not {len(texts)}"
        )
    usable = os.sched_getaffinity(0)
    group_of: dict[int, int] = {}
    groups = []
    for number, text in enumerate(texts, 1):
        if not text:
            raise MachineError(f"machine {quote(spec)}: group {number} is empty: {_EXAMPLE}")
        try:
            cores = parse_cores(text)
        except ValueError as error:
            raise MachineError(f"machine {quote(spec)}: {error}: {_EXAMPLE}") from None
        for core in cores:
            if core not in usable:
                raise MachineError(
                    f"machine {quote(spec)}: core {core} of group {number} does not exist, or this "
                    f"process may not use it: it may use {format_cores(sorted(usable))}"
                )
            if core in group_of:
                raise MachineError(
                    f"machine {quote(spec)}: core {core} is in group {group_of[core]} and again in "
                    f"group {number}: name it once"
                )
            group_of[core] = number
        groups.append(tuple(sorted(cores)))
    return groups
