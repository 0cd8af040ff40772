"""A Ray cluster of several nodes on this computer, some of which are to be killed."""

from __future__ import annotations

import os
import pathlib
import secrets
import subprocess
from typing import Any

from tests.tf_placer.process_tree import descendants
from tf_placer.search.distributed.workers import (
    LOOPBACK,
    LOOPBACK_ENVIRONMENT,
    OBJECT_STORE_BYTES,
    QUIET_ENVIRONMENT,
    RESOURCE,
)

__all__ = ["RayNodes"]

_NUM_WORKERS = 2
_SETTINGS = {
    "num_cpus": 1,
    "num_gpus": 0,
    "object_store_memory": OBJECT_STORE_BYTES,
    "include_dashboard": False,
}


class RayNodes:
    """The cluster; its first node has no room for workers, each other one has room for one.

    Attributes:
        environ: environment variables of a process that connects to it.
    """

    def __init__(self, directory: pathlib.Path) -> None:
        """Starts it.

        Args:
            directory: of all its files.
        """
        os.environ |= {
            **QUIET_ENVIRONMENT,
            **LOOPBACK_ENVIRONMENT,
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN": secrets.token_hex(32),
            "RAY_TMPDIR": str(directory),
            "TMPDIR": str(directory),
        }
        # Reads the environment.
        from ray.cluster_utils import Cluster

        first = {**_SETTINGS, "node_ip_address": LOOPBACK}
        self._cluster: Any = Cluster(initialize_head=True, head_node_args=first)
        self._raylets: list[subprocess.Popen[bytes]] = []
        self.environ = {"RAY_ADDRESS": self._cluster.address}
        for _ in range(_NUM_WORKERS):
            self.add()

    def __enter__(self) -> RayNodes:
        return self

    def __exit__(self, *_: object) -> None:
        self._cluster.shutdown()

    def add(self) -> None:
        """Starts a node with room for one worker."""
        address = f"127.0.0.{len(self._raylets) + 2}"
        node = self._cluster.add_node(**_SETTINGS, node_ip_address=address, resources={RESOURCE: 1})
        [raylet] = node.all_processes["raylet"]
        self._raylets.append(raylet.process)

    def processes(self) -> list[list[int]]:
        """Lists the processes of each node but the first."""
        alive = [raylet.pid for raylet in self._raylets if raylet.poll() is None]
        return [[raylet, *(pid for pid, _ in descendants(raylet))] for raylet in alive]
