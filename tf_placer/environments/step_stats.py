"""Summaries of TensorFlow's StepStats by operation."""

from __future__ import annotations

import collections
import math
import re
import statistics
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

__all__ = ["summarize_traces"]

# The name of an operation that was folded into a constant: "softmax/Reshape/_42__cf__42".
_FOLDED = re.compile(r"/_\d+__cf__\d+$")
# A GPU's kernels are listed on a line of its own; the line of the device itself holds their launch.
_KERNELS = re.compile(r"/stream:all$")
# Further lines hold the same kernels by stream, copies, and waiting.
_OTHERS = re.compile(r"/(memcpy|stream:.*|sync)$")
# Transfers between devices have the name of the sent tensor and a number: "x/_27".
_TRANSFER = re.compile(r" = _(Host)?(Send|Recv)\(")


def summarize_traces(traces: Sequence[Any]) -> dict[str, dict[str, Any]]:
    """Summarizes the traces of steps by operation.

    On a CPU the time of an operation is from its start to its end. On a GPU it is the time of its
    kernels or, without kernels, of its launch. A folded constant counts for its operation.

    Args:
        traces: a StepStats per step.

    Returns:
        By operation name `compute_secs`, `runs`, `temp_bytes` and `output_bytes`, as in
        `OperationProfile`.
    """
    secs: dict[str, list[float]] = collections.defaultdict(lambda: [0.0] * len(traces))
    kernel_secs: dict[str, list[float]] = collections.defaultdict(lambda: [0.0] * len(traces))
    runs: dict[str, list[int]] = collections.defaultdict(lambda: [0] * len(traces))
    temp_bytes: dict[str, int] = collections.defaultdict(int)
    output_bytes: dict[str, dict[int, int]] = collections.defaultdict(dict)
    for step, trace in enumerate(traces):
        for device in trace.dev_stats:
            if _KERNELS.search(device.device):
                for node in device.node_stats:
                    name = node.node_name.split(":")[0]
                    # TensorFlow reports kernels in whole microseconds only.
                    kernel_secs[name][step] += node.all_end_rel_micros / 1e6
            if _OTHERS.search(device.device):
                continue
            for node in device.node_stats:
                if _TRANSFER.search(node.timeline_label):
                    continue
                name = _FOLDED.sub("", node.node_name)
                secs[name][step] += (node.op_end_rel_nanos - node.op_start_rel_nanos) / 1e9
                runs[name][step] += 1
                temp_bytes[name] = max(temp_bytes[name], node.memory_stats.temp_memory_size)
                if name != node.node_name:
                    continue
                for output in node.output:
                    size = _compute_bytes(output.tensor_description)
                    known = output_bytes[name].get(output.slot, 0)
                    output_bytes[name][output.slot] = max(known, size)
    return {
        name: {
            "compute_secs": statistics.median(kernel_secs.get(name, times)),
            "runs": int(statistics.median_high(runs[name])),
            "temp_bytes": temp_bytes[name],
            "output_bytes": output_bytes[name],
        }
        for name, times in secs.items()
        if name != "_SOURCE"
    }


def _compute_bytes(description: Any) -> int:
    """Computes the size of a tensor; 0 for strings, handles and unknown types."""
    try:
        dtype = tf.dtypes.as_dtype(description.dtype).base_dtype
    except TypeError:
        return 0
    if dtype in (tf.string, tf.resource, tf.variant):
        return 0
    return math.prod(dim.size for dim in description.shape.dim) * dtype.size
