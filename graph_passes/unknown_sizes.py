"""Tensors whose size is unknown before a step runs."""

from __future__ import annotations

import numpy as np

from graph_passes.op_graph import OpGraph
from graph_passes.tensors import SIZELESS
from graph_passes.work import CUDNN_LAYERS

__all__ = ["unknown_sizes"]

# The outputs of the first are short lists of axes; the last outputs of the others are reserved for
# the gradient kernel.
_AXES = ("BroadcastGradientArgs", "BroadcastArgs")
_RESERVES_SPACE = ("FusedBatchNorm", "FusedBatchNormV2", "FusedBatchNormV3", *CUDNN_LAYERS)


def unknown_sizes(graph: OpGraph) -> list[str]:
    """Lists the tensors of unknown size that a step computes.

    Args:
        graph: the graph, with the operations of the step marked as needed.

    Returns:
        Descriptions such as "'pool:0' [?, 10]", in topological order.
    """
    has_size = ~np.isin(graph.tensor_dtypes, SIZELESS)
    unknown = (graph.tensor_bytes < 0) & has_size & graph.needed[graph.tensor_producer]
    unknown &= ~graph.fed & ~graph.has_type([*_AXES, *_RESERVES_SPACE])[graph.tensor_producer]
    tensors = np.flatnonzero(unknown)
    tensors = tensors[np.argsort(graph.position[graph.tensor_producer[tensors]], kind="stable")]
    return [_describe(graph, tensor) for tensor in tensors.tolist()]


def _describe(graph: OpGraph, tensor: int) -> str:
    producer = int(graph.tensor_producer[tensor])
    port = tensor - int(graph.output_start[producer])
    shape = graph.tensor_shapes[tensor]
    sizes = "of unknown rank"
    if shape is not None:
        sizes = f"[{', '.join('?' if size < 0 else str(size) for size in shape)}]"
    return f"'{graph.names[producer]}:{port}' {sizes}"
