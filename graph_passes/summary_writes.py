"""Removal of writes of summaries."""

from __future__ import annotations

import re
from collections.abc import Sequence

import tensorflow as tf

__all__ = ["drop_summary_writes"]

# None of these types has an output, so a NoOp can replace them.
_WRITES = re.compile(
    r"Write\w*Summary|ImportEvent|(?:Flush|Close)SummaryWriter|CreateSummary(?:File|Db)Writer"
)


def drop_summary_writes(graph_def: tf.compat.v1.GraphDef) -> None:
    """Replaces writes of summaries by NoOps, and keeps the computation of their inputs.

    The files of `tf.summary.create_file_writer` belong to the user's training, and no trial may
    add to them.

    Args:
        graph_def: the graph, changed in place: operations that open, write, flush or close such a
            file only wait for their inputs.
    """
    _drop(graph_def.node, ())
    for function in graph_def.library.function:
        _drop(function.node_def, [arg.name for arg in function.signature.input_arg])


def _drop(nodes: Sequence[tf.compat.v1.NodeDef], arguments: Sequence[str]) -> None:
    for node in nodes:
        if _WRITES.fullmatch(node.op):
            # A control input cannot name an argument of a function.
            before = [text.removeprefix("^").partition(":")[0] for text in node.input]
            waits = dict.fromkeys(f"^{name}" for name in before if name not in arguments)
            node.op = "NoOp"
            node.attr.clear()
            del node.input[:]
            node.input.extend(waits)
