"""Recreates lookup tables that a process loses when it connects to a cluster."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import tensorflow as tf
from tensorflow.python.framework.ops import EagerTensor
from tensorflow.python.trackable.resource import CapturableResource

from tf_placer.functions.living_objects import find_living

__all__ = ["recreate_tables"]


@contextlib.contextmanager
def recreate_tables() -> Iterator[None]:
    """Recreates the tables of this process at the end of the block.

    When a process connects to a cluster, its devices forget the names of their resources. Tables
    are looked up by name, even by functions and data sets that hold handles. A new table with the
    same name and content therefore replaces the old one for all of them.
    """
    tables = find_living(CapturableResource)
    tables = [each for each in tables if isinstance(each._resource_handle, EagerTensor)]
    contents = [each.export() if hasattr(each, "insert") else None for each in tables]
    yield
    for table, content in zip(tables, contents, strict=True):
        try:
            table._create_resource()
            table._initialize()
        except (NotImplementedError, tf.errors.OpError):
            # TensorFlow raises the error again at the next lookup, for example if the file of the
            # table was deleted.
            continue
        if content is not None:
            table.insert(*content)
