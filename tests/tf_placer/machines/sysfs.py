"""Directories in which Linux would describe NUMA nodes."""

from __future__ import annotations

import pathlib
from collections.abc import Mapping

__all__ = ["write_nodes"]


def write_nodes(directory: pathlib.Path, nodes: Mapping[int, tuple[str, int]]) -> None:
    """Writes the files of `/sys/devices/system/node`.

    Args:
        directory: the directory of the nodes.
        nodes: by number, the list of cores and the bytes of memory of each node.
    """
    directory.mkdir(exist_ok=True)
    (directory / "online").write_text(",".join(map(str, sorted(nodes))) + "\n")
    for number, (cores, memory_bytes) in nodes.items():
        node = directory / f"node{number}"
        node.mkdir()
        (node / "cpulist").write_text(f"{cores}\n")
        (node / "meminfo").write_text(
            f"Node {number} MemTotal:       {memory_bytes // 2**10} kB\n"
            f"Node {number} MemFree:        1024 kB\n"
        )
