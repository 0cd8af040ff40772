"""Lookup tables that stay when a process connects to a cluster."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import tensorflow as tf
from tensorflow.python.framework.ops import EagerTensor
from tensorflow.python.trackable.resource import CapturableResource

from tf_placer.functions.living_objects import find_living

__all__ = ["tables_kept"]


@contextlib.contextmanager
def tables_kept() -> Iterator[None]:
    """Makes the tables of this process again behind what is done in it.

    When a process connects to a cluster, its devices forget the names of what they hold, and tables
    are found by their names: by functions and data sets that have their handles, too. A table of
    the same name with the same content is the same for all of them.
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
            # Such as one of a file that is gone: TensorFlow tells whoever uses it.
            continue
        if content is not None:
            table.insert(*content)
