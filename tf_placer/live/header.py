"""What a live search is of, in full."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import numpy as np
import tensorflow as tf
from google.protobuf import text_format

from graph_passes.fingerprint import graph_fingerprint
from graph_passes.pipeline import GroupedGraph
from tf_placer.live.run_directory import Request
from tf_placer.placers import Units, describe_placer

__all__ = ["request_digest", "search_header", "size_lines"]


def search_header(
    request: Request,
    grouped: GroupedGraph,
    units: Units,
    legal: np.ndarray,
    session_config: tf.compat.v1.ConfigProto,
) -> dict[str, Any]:
    """What the log of a live search says that it is of.

    Args:
        request: what is asked.
        grouped: the graph with the groups that are placed.
        units: which groups these are.
        legal: bool [num_groups, num_devices], where they may go.
        session_config: the configuration of the user's sessions.

    Returns:
        JSON values. A search may go on with a log if they are the same, versions apart.
    """
    graph_def = grouped.op_graph.graph_def
    digest = hashlib.sha256()
    for node, group in zip(graph_def.node, grouped.operation_groups.tolist(), strict=True):
        # The devices that the graph came with count; its own fingerprint leaves them out.
        digest.update(f"{node.name}\0{node.device}\0{group}\0".encode())
    digest.update(str(legal.shape).encode() + np.packbits(legal).tobytes())
    settings = describe_placer(request.placer, request.placer_options).settings
    return request.log_header(graph_fingerprint(graph_def)) | {
        "configuration": {setting.name: setting.value for setting in settings},
        "session_config": text_format.MessageToString(session_config, as_one_line=True),
        "grouping": units,
        "grouping_fingerprint": digest.hexdigest(),
    }


def request_digest(
    request: Request, graph_def: tf.compat.v1.GraphDef, session_config: tf.compat.v1.ConfigProto
) -> str:
    """A name for all that a search depends on but its budget, for which nothing is grouped.

    Args:
        request: what is asked.
        graph_def: the graph.
        session_config: the configuration of the user's sessions.

    Returns:
        64 hexadecimal digits. Requests with the same have the same header; another serialisation of
        a graph has the same, too.
    """
    asked = request.log_header(graph_fingerprint(graph_def)) | {
        "session_config": text_format.MessageToString(session_config, as_one_line=True),
    }
    digest = hashlib.sha256(json.dumps(asked, sort_keys=True).encode())
    for node in graph_def.node:
        digest.update(f"{node.name}\0{node.device}\0".encode())
    return digest.hexdigest()


def size_lines(request: Request, grouped: GroupedGraph) -> list[str]:
    """How large a search is, as lines for people."""
    needed = grouped.op_graph.needed
    num_devices = len(request.machine.devices)
    coarse = grouped.coarse or grouped
    lines = [
        f"{grouped.op_graph.num_operations} operations, {needed.sum()} in a step, "
        f"{len(np.unique(grouped.colocation.group[needed]))} colocation groups in "
        f"{coarse.grouping.num_groups} groups, to place on {num_devices} devices of "
        f"{request.machine.spec}"
    ]
    if coarse.num_decisions < 4 * num_devices:
        lines.append(f"only {coarse.num_decisions} groups can be placed: there is little to choose")
    return lines
