"""The tensors whose values are compared to locate the first difference of two placements."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from graph_passes.colocation import ColocationGroups
from graph_passes.op_graph import OpGraph
from graph_passes.op_types import VARIABLES

__all__ = ["list_comparable_tensors"]

# A session cannot fetch tensors from within a v1 loop or conditional. All its operations share a
# colocation group with these.
_CONTROL_FLOW = ("Enter", "RefEnter", "Switch", "RefSwitch", "_SwitchN")
_MAX_BYTES_EACH, _MAX_BYTES = 2**22, 2**28


def list_comparable_tensors(graph: OpGraph, colocation: ColocationGroups) -> list[str]:
    """Lists tensors that a step computes and a session can fetch, in a topological order.

    Args:
        graph: the graph, in which the operations of the step are marked.
        colocation: its colocation groups.

    Returns:
        Names ("x:0") of numeric and Boolean tensors of known size, up to 256 MiB in all.
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
