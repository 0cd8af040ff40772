"""What a live search is of: what says whether it may go on with a log, or with costs."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf
from google.protobuf import text_format

from graph_passes.fingerprint import graph_fingerprint
from graph_passes.pipeline import GroupedGraph
from tf_placer.environments.paired import PAIRED
from tf_placer.environments.session import COLOCRL
from tf_placer.placers import Granularity
from tf_placer.runs.run_directory import Request
from tf_placer.search.log_header import search_header

__all__ = ["live_header", "of_costs", "request_digest", "with_costs"]

# What the costs of the operations depend on.
_COST_FIELDS = (
    "graph_fingerprint",
    "fetches",
    "feeds",
    "initializers",
    "initializer_feeds",
    "queue_runners",
    "restored",
    "machine",
    "session_config",
    "granularity",
    "grouping_fingerprint",
)


def _request_header(
    request: Request, graph_def: tf.compat.v1.GraphDef, session_config: tf.compat.v1.ConfigProto
) -> dict[str, Any]:
    """Says what is asked, but for the budget and the devices that the graph came with."""
    step = request.step
    # Searches of earlier versions had none of these: a step without them has the same header.
    more: dict[str, Any] = {}
    if step.initializer_feeds:
        more["initializer_feeds"] = _kinds(step.initializer_feeds)
    if step.queue_runners:
        more["queue_runners"] = [runner.to_json() for runner in step.queue_runners]
    if step.restored:
        more["restored"] = sorted(step.restored)
    if request.workers is not None and request.workers.controllers > 1:
        more["controllers"] = request.workers.controllers
    subject = {
        "graph_fingerprint": graph_fingerprint(graph_def),
        "fetches": list(step.fetches),
        "feeds": _kinds(step.feeds),
        "initializers": list(step.initializers),
        **more,
        # Free memory, which TensorFlow takes for a GPU's size, changes from run to run.
        "machine": {
            "spec": request.machine.spec,
            "devices": [{"name": d.name, "type": d.type} for d in request.machine.devices],
        },
        "protocol": dataclasses.asdict(COLOCRL) | dataclasses.asdict(PAIRED),
        "session_config": text_format.MessageToString(session_config, as_one_line=True),
    }
    return search_header(subject, request.placer, request.placer_options, request.seed)


def _kinds(tensors: Mapping[str, np.ndarray]) -> dict[str, str]:
    """Says of which type and shape tensors are: their values are no part of a header."""
    return {
        name: f"{value.dtype.name}{list(value.shape)}" for name, value in sorted(tensors.items())
    }


def live_header(
    request: Request,
    grouped: GroupedGraph,
    granularity: Granularity,
    legal: np.ndarray,
    session_config: tf.compat.v1.ConfigProto,
) -> dict[str, Any]:
    """Says what a live search is of, as its log does.

    Args:
        request: what is asked.
        grouped: the graph with the groups that are placed.
        granularity: which groups these are.
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
    return {
        **_request_header(request, graph_def, session_config),
        "granularity": granularity,
        "grouping_fingerprint": digest.hexdigest(),
    }


def with_costs(header: Mapping[str, Any]) -> dict[str, Any]:
    """Adds to a header that the placer knows the costs: then it proposes something else."""
    return {**header, "costs": "profiled"}


def of_costs(header: Mapping[str, Any]) -> dict[str, Any]:
    """Picks from a header what the costs of the operations depend on, as a JSON file has it."""
    fields = {field: header[field] for field in _COST_FIELDS if field in header}
    of: dict[str, Any] = json.loads(json.dumps(fields))
    return of


def request_digest(
    request: Request, graph_def: tf.compat.v1.GraphDef, session_config: tf.compat.v1.ConfigProto
) -> str:
    """Names all that a search depends on but its budget, for which nothing is grouped.

    Args:
        request: what is asked.
        graph_def: the graph.
        session_config: the configuration of the user's sessions.

    Returns:
        64 hexadecimal digits. Requests with the same have the same header; another serialisation of
        a graph has the same, too.
    """
    asked = _request_header(request, graph_def, session_config)
    digest = hashlib.sha256(json.dumps(asked, sort_keys=True).encode())
    for node in graph_def.node:
        digest.update(f"{node.name}\0{node.device}\0".encode())
    return digest.hexdigest()
