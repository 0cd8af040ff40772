"""Control edges by which the parts of a step run one after another."""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf

from graph_passes.op_types import VARIABLES

__all__ = ["run_in_turn"]

# They take no time, so what reads them waits in their place.
_SOURCES = VARIABLES | {"Const", "Placeholder", "PlaceholderV2", "PlaceholderWithDefault"}


def run_in_turn(
    graph_def: tf.compat.v1.GraphDef, turns: Sequence[Sequence[str]]
) -> tf.compat.v1.GraphDef:
    """Adds control edges so that parts of a step run one after another.

    An operation that several parts need runs in the first of them.

    Args:
        graph_def: the graph.
        turns: the operations that have run at the end of each part, in the order of the parts.

    Returns:
        A copy of the graph in which each part begins when the one before has ended.
    """
    result = tf.compat.v1.GraphDef()
    result.CopyFrom(graph_def)
    nodes = {node.name: node for node in result.node}
    done: set[str] = set()
    before: Sequence[str] = ()
    for ends in turns:
        own = _find_ancestors(nodes, ends) - done
        done |= own
        own = {name for name in own if nodes[name].op not in _SOURCES}
        if not own:
            continue
        waits = [f"^{name}" for name in dict.fromkeys(before)]
        for name in sorted(own):
            if not any(_operation_name(text) in own for text in nodes[name].input):
                nodes[name].input.extend(each for each in waits if each not in nodes[name].input)
        before = [name for name in ends if name in own]
    return result


def _find_ancestors(nodes: dict[str, tf.compat.v1.NodeDef], names: Sequence[str]) -> set[str]:
    """Finds operations and all that they need."""
    found: set[str] = set()
    pending = list(names)
    while pending:
        name = pending.pop()
        if name not in found and name in nodes:
            found.add(name)
            pending += map(_operation_name, nodes[name].input)
    return found


def _operation_name(text: str) -> str:
    return text.removeprefix("^").partition(":")[0]
