"""A Ray cluster of several nodes on this computer: a program, for campaigns that kill nodes.

The first node has no room for workers; each other one has room for one. When a node is there, a
line of JSON is written with the address of the cluster and the process of its raylet. A line on
standard input starts one more node, and the end of standard input ends the cluster:

    RAY_AUTH_MODE=token RAY_AUTH_TOKEN=... python -m benchmarks.campaigns.ray_nodes
"""

from __future__ import annotations

import json
import sys
from typing import Any

from tf_placer.search.distributed.workers import LOOPBACK, OBJECT_STORE_BYTES, RESOURCE

__all__ = ["main"]


def main() -> None:
    """Runs the cluster."""
    from ray.cluster_utils import Cluster

    alike = {
        "num_cpus": 1,
        "num_gpus": 0,
        "object_store_memory": OBJECT_STORE_BYTES,
        "include_dashboard": False,
    }
    cluster: Any = Cluster(
        initialize_head=True, head_node_args={**alike, "node_ip_address": LOOPBACK}
    )
    nodes = [cluster.head_node]
    try:
        _tell(cluster, nodes[-1])
        for _ in sys.stdin:
            # Each has an address of its own, all of them on the loopback.
            address = f"127.0.0.{len(nodes) + 1}"
            nodes.append(
                cluster.add_node(**alike, node_ip_address=address, resources={RESOURCE: 1})
            )
            _tell(cluster, nodes[-1])
    finally:
        cluster.shutdown()


def _tell(cluster: Any, node: Any) -> None:
    [raylet] = node.all_processes["raylet"]
    print(json.dumps({"address": cluster.address, "raylet": raylet.process.pid}), flush=True)


if __name__ == "__main__":
    main()
