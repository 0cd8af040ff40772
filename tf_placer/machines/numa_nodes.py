"""The NUMA nodes of this computer, and lists of its cores as Linux writes them."""

from __future__ import annotations

import dataclasses
import itertools
import os
import pathlib
import re
from collections.abc import Sequence

from graph_passes.util.messages import quote

__all__ = ["NumaNode", "format_cores", "parse_cores", "read_numa_nodes"]

_NODES = pathlib.Path("/sys/devices/system/node")
_MEMORY = re.compile(r"MemTotal:\s*([0-9]+) kB")
_RANGE = re.compile("([0-9]{1,5})(?:-([0-9]{1,5}))?")


@dataclasses.dataclass(frozen=True)
class NumaNode:
    """A NUMA node with cores that this process may use.

    Attributes:
        cores: these cores.
        memory_bytes: the memory of the node; None if it has no memory of its own.
    """

    cores: tuple[int, ...]
    memory_bytes: int | None


def read_numa_nodes(directory: pathlib.Path | None = None) -> list[NumaNode]:
    """Reads the NUMA nodes with cores that this process may use, in the order of their numbers.

    Args:
        directory: the directory in which Linux describes nodes; that of this computer when None.

    Returns:
        The nodes; empty if Linux does not describe any.
    """
    usable = os.sched_getaffinity(0)
    nodes: dict[int, NumaNode] = {}
    for path in (directory or _NODES).glob("node[0-9]*"):
        # Nodes of memory alone have an empty list, and cores that are offline are in none.
        cores = tuple(core for core in parse_cores(_read(path / "cpulist")) if core in usable)
        memory = _MEMORY.search(_read(path / "meminfo"))
        if cores:
            memory_bytes = int(memory[1]) * 2**10 if memory else 0
            nodes[int(path.name.removeprefix("node"))] = NumaNode(cores, memory_bytes or None)
    return [node for _, node in sorted(nodes.items())]


def parse_cores(text: str) -> list[int]:
    """Parses a list of cores; one that is named twice is twice in the result.

    Raises:
        ValueError: a part is neither a number nor a range; the message names it.

    Example:
        >>> parse_cores("0-2,8")
        [0, 1, 2, 8]
    """
    cores: list[int] = []
    for part in text.split(",") if text else []:
        match = _RANGE.fullmatch(part)
        if match is None or int(match[2] or match[1]) < int(match[1]):
            raise ValueError(
                f"{quote(part)} is neither the number of a core nor a range such as 8-15"
            )
        cores += range(int(match[1]), int(match[2] or match[1]) + 1)
    return cores


def format_cores(cores: Sequence[int]) -> str:
    """Formats a sorted list of cores.

    Example:
        >>> format_cores([0, 1, 2, 8])
        '0-2,8'
    """
    parts = []
    # Neighboring cores have the same difference to their positions in the list.
    for _, found in itertools.groupby(enumerate(cores), lambda each: each[1] - each[0]):
        run = [core for _, core in found]
        parts.append(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}")
    return ",".join(parts)


def _read(path: pathlib.Path) -> str:
    """Reads a file of the kernel, without the final newline; "" if it is not there."""
    try:
        return path.read_text().strip()
    except OSError:
        return ""
