"""Process-local resources of a function: iterators, summary writers and lookup tables.

They stay in the process that created them. Sessions get a substitute: the next elements of an
iterator as feeds, a copy of a table, and nothing for a summary writer.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence

import numpy as np
import tensorflow as tf

from tf_placer.functions.iterators import peek_elements
from tf_placer.functions.table_contents import read_table_content

__all__ = ["ProcessLocalResource", "find_session_substitute"]

_WRITES = re.compile(r"Write\w*Summary|FlushSummaryWriter")


@dataclasses.dataclass(frozen=True)
class ProcessLocalResource:
    """A resource that stays in its process, and its substitute in a session.

    Attributes:
        users: the names of the operations that use the resource, and run on its device.
        feeds: for an iterator, the values that the users would take, by the names of their outputs.
        table: for a table, operations that build a copy; the last one fills it. If this is empty,
            sessions do not run the users.
    """

    users: frozenset[str]
    feeds: Mapping[str, np.ndarray] = dataclasses.field(default_factory=dict)
    table: Sequence[tf.compat.v1.NodeDef] = ()


def find_session_substitute(inner: tf.Tensor, resource: tf.Tensor) -> ProcessLocalResource | None:
    """Finds the substitute of a resource in a session.

    Args:
        inner: the argument for the resource in the graph of the function.
        resource: the handle of the resource.

    Returns:
        The resource and its substitute; None if it is of another kind, or if a loop or another call
        uses it.

    Raises:
        GraphError: an iterator or a table cannot be read.
    """
    users = frozenset(operation.name for operation in inner.consumers())
    if feeds := peek_elements(inner, resource):
        return ProcessLocalResource(users, feeds)
    if all(_WRITES.fullmatch(operation.type) for operation in inner.consumers()):
        return ProcessLocalResource(users)
    if (content := read_table_content(inner, resource)) is not None:
        return ProcessLocalResource(users, table=content.build_nodes(inner.op.name))
    return None
