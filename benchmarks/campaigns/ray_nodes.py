"""A Ray cluster of several nodes on this computer: a program, for campaigns that disturb nodes.

The first node has no room for workers; each other one has room for one. When a node is there, a
line of JSON is written with the address of the cluster, that of the node, and the process of its
raylet. An empty line on standard input starts one more node, and the end of standard input ends the
cluster:

    RAY_AUTH_MODE=token RAY_AUTH_TOKEN=... python -m benchmarks.campaigns.ray_nodes

With `--cuttable`, each other node has a network of its own behind a cable, which "cut ADDRESS" cuts
and "mend ADDRESS" mends.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
from collections.abc import Sequence
from typing import Any

from benchmarks.campaigns.cuttable_network import CuttableNetwork
from tf_placer.search.distributed.workers import LOOPBACK, OBJECT_STORE_BYTES, RESOURCE

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> None:
    """Runs the cluster."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--cuttable", action="store_true", help="nodes can be cut off; takes root")
    args = parser.parse_args(argv)
    # Before Ray is there, which has threads.
    network = CuttableNetwork() if args.cuttable else None

    from ray.cluster_utils import Cluster

    alike = {
        "num_cpus": 1,
        "num_gpus": 0,
        "object_store_memory": OBJECT_STORE_BYTES,
        "include_dashboard": False,
    }
    address = network.address if network else LOOPBACK
    cluster: Any = Cluster(
        initialize_head=True, head_node_args={**alike, "node_ip_address": address}
    )
    num_nodes = 1
    try:
        _tell(cluster, cluster.head_node, address)
        for line in sys.stdin:
            word, _, where = line.strip().partition(" ")
            if network and word in ("cut", "mend"):
                (network.cut if word == "cut" else network.mend)(where)
                continue
            num_nodes += 1
            # An address of its own; where there is one network only, on the loopback.
            address = network.add() if network else f"127.0.0.{num_nodes}"
            with network.inside(address) if network else contextlib.nullcontext():
                node = cluster.add_node(**alike, node_ip_address=address, resources={RESOURCE: 1})
            _tell(cluster, node, address)
    finally:
        cluster.shutdown()


def _tell(cluster: Any, node: Any, address: str) -> None:
    [raylet] = node.all_processes["raylet"]
    told = {"cluster": cluster.address, "address": address, "raylet": raylet.process.pid}
    print(json.dumps(told), flush=True)


if __name__ == "__main__":
    main()
