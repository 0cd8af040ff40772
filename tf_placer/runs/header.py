"""The header of a live search, which decides whether a log or profiled costs can be reused."""

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
from tf_placer.environments.measuring_protocol import COLOCRL
from tf_placer.environments.paired import PAIRED
from tf_placer.inputs.step import Step
from tf_placer.inputs.workload import Workload
from tf_placer.placers import find_granularity
from tf_placer.placers.former_names import restore_former
from tf_placer.search.config import SearchConfig
from tf_placer.search.log_header import search_header

__all__ = ["live_header", "mark_costs_known", "request_digest", "select_cost_fields"]

# Trials with fewer blocks of long steps measure the same, so that earlier logs may go on.
_UNNAMED_TURNS = ("most_long_blocks", "long_burst_secs")
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
    "max_memory",
    "headroom",
    "granularity",
    "grouping_fingerprint",
)


def _build_request_header(
    config: SearchConfig, step: Step, graph_def: tf.compat.v1.GraphDef
) -> dict[str, Any]:
    """Describes a request without its budget and without the original devices of the graph."""
    machine, workers = config.found_machine, config.wanted_workers
    # Add these only where present, so that headers of earlier versions, without them, still match.
    more: dict[str, Any] = {}
    if step.initializer_feeds:
        more["initializer_feeds"] = _describe_tensors(step.initializer_feeds)
    if step.queue_runners:
        more["queue_runners"] = [runner.to_json() for runner in step.queue_runners]
    if step.restored:
        more["restored"] = sorted(step.restored)
    if workers is not None and workers.controllers > 1:
        more["controllers"] = workers.controllers
    if config.pin:
        more["pin"] = dict(config.pin)
    if config.keep_together:
        more["keep_together"] = [list(patterns) for patterns in config.keep_together]
    more |= config.goal
    subject = {
        "graph_fingerprint": graph_fingerprint(graph_def),
        "fetches": list(step.fetches),
        "feeds": _describe_tensors(step.feeds),
        "initializers": list(step.initializers),
        **more,
        # Leave out memory sizes: TensorFlow reports the free memory of a GPU, which varies.
        "machine": {
            "spec": machine.spec,
            "devices": [{"name": d.name, "type": d.type} for d in machine.devices],
        },
        "protocol": _describe_protocol(config),
        "session_config": text_format.MessageToString(
            config.found_session_config, as_one_line=True
        ),
    }
    return search_header(subject, config.placer, config.placer_options, config.seed)


def _describe_protocol(config: SearchConfig) -> dict[str, Any]:
    """Describes the measuring protocol of a trial; that of turns as earlier versions did."""
    if config.alone_protocol is None:
        values = dataclasses.asdict(COLOCRL) | dataclasses.asdict(PAIRED)
        return {name: value for name, value in values.items() if name not in _UNNAMED_TURNS}
    return {"name": config.protocol, **dataclasses.asdict(config.alone_protocol)}


def _describe_tensors(tensors: Mapping[str, np.ndarray]) -> dict[str, str]:
    """Describes types and shapes of tensors; a header does not contain their values."""
    return {
        name: f"{value.dtype.name}{list(value.shape)}" for name, value in sorted(tensors.items())
    }


def live_header(
    config: SearchConfig, step: Step, grouped: GroupedGraph, legal: np.ndarray
) -> dict[str, Any]:
    """Builds the header of the log of a live search.

    Args:
        config: the settings of the search, with the machine that was found.
        step: the step of the graph.
        grouped: the graph with the groups to place.
        legal: bool [num_groups, num_devices], the allowed devices of each group.

    Returns:
        JSON values. A search may resume a log if they are the same, except for the versions.
    """
    graph_def = grouped.op_graph.graph_def
    digest = hashlib.sha256()
    for node, group in zip(graph_def.node, grouped.operation_groups.tolist(), strict=True):
        # Add the original devices, which the fingerprint of the graph leaves out.
        digest.update(f"{node.name}\0{node.device}\0{group}\0".encode())
    digest.update(str(legal.shape).encode() + np.packbits(legal).tobytes())
    return {
        **_build_request_header(config, step, graph_def),
        "granularity": find_granularity(config.placer, config.placer_options),
        "grouping_fingerprint": digest.hexdigest(),
        "num_operations": len(graph_def.node),
    }


def mark_costs_known(header: Mapping[str, Any]) -> dict[str, Any]:
    """Adds to a header that costs are profiled, because the placer then proposes differently."""
    return {**header, "costs": "profiled"}


def select_cost_fields(header: Mapping[str, Any]) -> dict[str, Any]:
    """Selects the fields of a header that the costs depend on, as JSON values."""
    fields = {field: header[field] for field in _COST_FIELDS if field in header}
    values: dict[str, Any] = json.loads(json.dumps(fields))
    return values


def request_digest(config: SearchConfig, workload: Workload) -> str:
    """Computes a digest of all inputs of a search except its budget, without grouping the graph.

    Args:
        config: the settings of the search, with the machine that was found.
        workload: the graph and its step.

    Returns:
        64 hexadecimal digits. Requests with equal digests have equal headers. The digest does not
        depend on the serialization of the graph.
    """
    graph_def = workload.graph_def
    asked = _build_request_header(config, workload.step, graph_def)
    # Digest the former names of options, so that results of earlier versions still match.
    asked["configuration"] = restore_former(asked["configuration"])
    digest = hashlib.sha256(json.dumps(asked, sort_keys=True).encode())
    for node in graph_def.node:
        digest.update(f"{node.name}\0{node.device}\0".encode())
    return digest.hexdigest()
