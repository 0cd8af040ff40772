"""What a function uses and a session has none of: iterators, writers of summaries, tables."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence

import numpy as np
import tensorflow as tf

from tf_placer.functions.iterators import next_elements
from tf_placer.functions.table_contents import table_content

__all__ = ["KeptResource", "keep_resource"]

_WRITES = re.compile(r"Write\w*Summary|FlushSummaryWriter")


@dataclasses.dataclass(frozen=True)
class KeptResource:
    """Something that stays where it is, and what a session has in place of it.

    Attributes:
        users: the names of the operations that use it, which run where it is.
        feeds: of an iterator, what these would take, by the names of their outputs.
        table: of a table, the operations of one with the same content, the last of which fills it.
            Without one, sessions do not run the users.
    """

    users: frozenset[str]
    feeds: Mapping[str, np.ndarray] = dataclasses.field(default_factory=dict)
    table: Sequence[tf.compat.v1.NodeDef] = ()


def keep_resource(inner: tf.Tensor, resource: tf.Tensor) -> KeptResource | None:
    """Finds out what a resource is, and what a session can have in place of it.

    Args:
        inner: the resource, as an argument in the graph of the function.
        resource: its handle.

    Returns:
        What is kept; None if it is something else, or used by a loop or another call.

    Raises:
        GraphError: an iterator cannot be looked at, or a table cannot be read.
    """
    users = frozenset(operation.name for operation in inner.consumers())
    if feeds := next_elements(inner, resource):
        return KeptResource(users, feeds)
    if all(_WRITES.fullmatch(operation.type) for operation in inner.consumers()):
        return KeptResource(users)
    if (content := table_content(inner, resource)) is not None:
        return KeptResource(users, table=content.nodes(inner.op.name))
    return None
