"""Which tensors tell where the values of two placements begin to differ."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from graph_passes.colocation import ColocationGroups
from graph_passes.op_graph import OpGraph
from graph_passes.op_types import VARIABLES

__all__ = ["comparable_tensors"]

# What begins a v1 loop or conditional, in whose group all of it is: a session fetches none of that.
_CONTROL_FLOW = ("Enter", "RefEnter", "Switch", "RefSwitch", "_SwitchN")
_MAX_BYTES_EACH, _MAX_BYTES = 2**22, 2**28


def comparable_tensors(graph: OpGraph, colocation: ColocationGroups) -> list[str]:
    """Lists tensors that a step makes and that a session can fetch, in a topological order.

    Args:
        graph: the graph, with what the step needs marked.
        colocation: its colocation groups.

    Returns:
        Names ("x:0") of numbers and truth values of known size, up to 256 MiB in all.
    """
    unfetchable = np.zeros(colocation.num_groups, bool)
    unfetchable[colocation.group[graph.has_type(_CONTROL_FLOW)]] = True
    made = graph.needed & ~graph.has_type(VARIABLES) & ~unfetchable[colocation.group]
    is_number = np.array(
        [_is_number(tf.dtypes.as_dtype(code)) for code in graph.tensor_dtypes.tolist()], bool
    )
    sizes = graph.tensor_bytes
    wanted = made[graph.tensor_producer] & is_number & ~graph.fed
    wanted &= (sizes >= 0) & (sizes <= _MAX_BYTES_EACH)
    tensors = np.flatnonzero(wanted)
    tensors = tensors[np.argsort(graph.position[graph.tensor_producer[tensors]], kind="stable")]
    tensors = tensors[np.cumsum(sizes[tensors]) <= _MAX_BYTES]
    producers = graph.tensor_producer[tensors]
    ports = tensors - graph.output_start[producers]
    return [
        f"{graph.names[i]}:{port}"
        for i, port in zip(producers.tolist(), ports.tolist(), strict=True)
    ]


def _is_number(dtype: tf.DType) -> bool:
    return dtype.is_floating or dtype.is_integer or dtype.is_complex or dtype == tf.bool
