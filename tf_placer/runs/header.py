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
from tf_placer.inputs.sources import Source
from tf_placer.inputs.step import Step
from tf_placer.placers import granularity_of
from tf_placer.search.config import SearchConfig
from tf_placer.search.log_header import search_header

__all__ = ["live_header", "mark_costs_known", "request_digest", "select_cost_fields"]

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


def _build_request_header(
    config: SearchConfig, step: Step, graph_def: tf.compat.v1.GraphDef
) -> dict[str, Any]:
    """Says what is asked, but for the budget and the devices that the graph came with."""
    machine, workers = config.found_machine, config.wanted_workers
    # Searches of earlier versions had none of these: a step without them has the same header.
    more: dict[str, Any] = {}
    if step.initializer_feeds:
        more["initializer_feeds"] = _describe_tensors(step.initializer_feeds)
    if step.queue_runners:
        more["queue_runners"] = [runner.to_json() for runner in step.queue_runners]
    if step.restored:
        more["restored"] = sorted(step.restored)
    if workers is not None and workers.controllers > 1:
        more["controllers"] = workers.controllers
    subject = {
        "graph_fingerprint": graph_fingerprint(graph_def),
        "fetches": list(step.fetches),
        "feeds": _describe_tensors(step.feeds),
        "initializers": list(step.initializers),
        **more,
        # Free memory, which TensorFlow takes for a GPU's size, changes from run to run.
        "machine": {
            "spec": machine.spec,
            "devices": [{"name": d.name, "type": d.type} for d in machine.devices],
        },
        "protocol": dataclasses.asdict(COLOCRL) | dataclasses.asdict(PAIRED),
        "session_config": text_format.MessageToString(
            config.found_session_config, as_one_line=True
        ),
    }
    return search_header(subject, config.placer, config.placer_options, config.seed)


def _describe_tensors(tensors: Mapping[str, np.ndarray]) -> dict[str, str]:
    """Says of which type and shape tensors are: their values are no part of a header."""
    return {
        name: f"{value.dtype.name}{list(value.shape)}" for name, value in sorted(tensors.items())
    }


def live_header(
    config: SearchConfig, step: Step, grouped: GroupedGraph, legal: np.ndarray
) -> dict[str, Any]:
    """Says what a live search is of, as its log does.

    Args:
        config: how to search, on a machine that was looked up.
        step: what a step of the graph runs.
        grouped: the graph with the groups that are placed.
        legal: bool [num_groups, num_devices], where they may go.

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
        **_build_request_header(config, step, graph_def),
        "granularity": granularity_of(config.placer, config.placer_options),
        "grouping_fingerprint": digest.hexdigest(),
    }


def mark_costs_known(header: Mapping[str, Any]) -> dict[str, Any]:
    """Adds to a header that the placer knows the costs: then it proposes something else."""
    return {**header, "costs": "profiled"}


def select_cost_fields(header: Mapping[str, Any]) -> dict[str, Any]:
    """Picks from a header what the costs of the operations depend on, as a JSON file has it."""
    fields = {field: header[field] for field in _COST_FIELDS if field in header}
    of: dict[str, Any] = json.loads(json.dumps(fields))
    return of


def request_digest(config: SearchConfig, workload: Source) -> str:
    """Names all that a search depends on but its budget, for which nothing is grouped.

    Args:
        config: how to search, on a machine that was looked up.
        workload: the graph and its step.

    Returns:
        64 hexadecimal digits. Requests with the same have the same header; another serialization of
        a graph has the same, too.
    """
    graph_def = workload.graph_def
    asked = _build_request_header(config, workload.step, graph_def)
    digest = hashlib.sha256(json.dumps(asked, sort_keys=True).encode())
    for node in graph_def.node:
        digest.update(f"{node.name}\0{node.device}\0".encode())
    return digest.hexdigest()
