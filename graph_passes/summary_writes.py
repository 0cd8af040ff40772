"""Graphs that run without writing summaries."""

from __future__ import annotations

import re
from collections.abc import Sequence

import tensorflow as tf

__all__ = ["drop_summary_writes"]

# None of them has a result.
_WRITES = re.compile(
    r"Write\w*Summary|ImportEvent|(?:Flush|Close)SummaryWriter|CreateSummary(?:File|Db)Writer"
)


def drop_summary_writes(graph_def: tf.compat.v1.GraphDef) -> None:
    """Has a graph compute what it writes as summaries, but write nothing.

    The files of the writers that `tf.summary.create_file_writer` makes belong to the user's
    training, and no step that is tried may add to them.

    Args:
        graph_def: changed in place: what makes, writes to, flushes or closes such a file does
            nothing but wait for its inputs.
    """
    _drop(graph_def.node, ())
    for function in graph_def.library.function:
        _drop(function.node_def, [arg.name for arg in function.signature.input_arg])


def _drop(nodes: Sequence[tf.compat.v1.NodeDef], arguments: Sequence[str]) -> None:
    for node in nodes:
        if _WRITES.fullmatch(node.op):
            # Nothing can wait for an argument of a function.
            before = [text.removeprefix("^").partition(":")[0] for text in node.input]
            waits = dict.fromkeys(f"^{name}" for name in before if name not in arguments)
            node.op = "NoOp"
            node.attr.clear()
            del node.input[:]
            node.input.extend(waits)
