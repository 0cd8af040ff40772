"""The first batch of a data set, taken without a change of what the data set gives later."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from graph_passes.errors import GraphError
from tf_placer.text.notes import say

__all__ = ["take_batch"]

# Data sets of the newer type share their last input, the seeds of the orders to come, with all
# iterators over them. Those of the older type have seeds of their own.
_WITH_OWN_SEEDS = {
    "ShuffleDatasetV3": "ShuffleDataset",
    "ShuffleAndRepeatDatasetV2": "ShuffleAndRepeatDataset",
    "RandomDatasetV2": "RandomDataset",
}
_CACHES = ("CacheDataset", "CacheDatasetV2")
_RETURNED = "_Retval"
# Operations whose state changes must not stop the copy of a data set.
_IGNORE_STATE = 1


def take_batch(data: tf.data.Dataset) -> Any:
    """Takes the first batch of a data set.

    A data set that shuffles has another order for each iterator, so that training would get other
    batches than without us. The batch is therefore of a copy with seeds of its own; a line says
    where there can be none. Python functions in it, and random generators, are asked for the batch.

    Raises:
        GraphError: the data set is empty.
    """
    try:
        batches = list(_copy(data).take(1))
    except (tf.errors.OpError, ValueError, NotImplementedError):
        say(
            "the data set cannot be copied, so the example is a batch of its own: if it shuffles, "
            "its next order is another one than without"
        )
        batches = list(data.take(1))
    if not batches:
        raise GraphError("the data set is empty: it has no batch to take as an example")
    return batches[0]


def _copy(data: tf.data.Dataset) -> tf.data.Dataset:
    """Copies a data set with the seeds and the cache that it has at first.

    Raises:
        OpError, ValueError: the data set cannot be copied.
    """
    serialized = tf.raw_ops.DatasetToGraphV2(
        input_dataset=tf.data.experimental.to_variant(data),
        external_state_policy=_IGNORE_STATE,
        strip_device_assignment=True,
    )
    graph_def = tf.compat.v1.GraphDef.FromString(serialized.numpy())
    nodes = [node for node in graph_def.node if node.op != _RETURNED]
    [returned] = [node.input[0] for node in graph_def.node if node.op == _RETURNED]
    # A cache that is read in part is useless, and one in a file would be locked.
    cached = {node.name: node.input[0] for node in nodes if node.op in _CACHES}
    for node in nodes:
        for number, name in enumerate(node.input):
            node.input[number] = _find_uncached(name, cached)
        if node.op in _WITH_OWN_SEEDS:
            node.op = _WITH_OWN_SEEDS[node.op]
            del node.input[-1]
            node.attr.pop("rerandomize_each_iteration", None)
    # This process has the functions, and refuses others of their names.
    graph_def.ClearField("library")
    del graph_def.node[:]
    graph_def.node.extend(nodes)
    read = tf.compat.v1.wrap_function(
        lambda: tf.import_graph_def(
            graph_def, return_elements=[f"{_find_uncached(returned, cached)}:0"]
        )[0],
        [],
    )
    return tf.data.experimental.from_variant(read(), data.element_spec)


def _find_uncached(name: str, cached: Mapping[str, str]) -> str:
    while name in cached:
        name = cached[name]
    return name
