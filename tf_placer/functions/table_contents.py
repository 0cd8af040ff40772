"""Lookup tables that a function looks up in."""

from __future__ import annotations

import dataclasses

import numpy as np
import tensorflow as tf

from graph_passes.errors import GraphError

__all__ = ["TableContent", "table_content"]


@dataclasses.dataclass(frozen=True, eq=False)
class TableContent:
    """What is in a table.

    Attributes:
        keys: its keys in order, [num_keys].
        values: the value of each, [num_keys, ...].
    """

    keys: np.ndarray
    values: np.ndarray

    def nodes(self, name: str) -> list[tf.compat.v1.NodeDef]:
        """Makes the operations of a table with this content.

        Args:
            name: of the table.

        Returns:
            The table, its keys and values, and last what fills it.
        """
        table = tf.compat.v1.NodeDef(name=name, op="MutableHashTableV2")
        table.attr["shared_name"].s = name.encode()
        if shape := self.values.shape[1:]:
            table.op = "MutableHashTableOfTensorsV2"
            table.attr["value_shape"].shape.CopyFrom(tf.TensorShape(shape).as_proto())
        fill = tf.compat.v1.NodeDef(name=f"{name}/tf_placer_fill", op="LookupTableImportV2")
        nodes = [table]
        fill.input.append(name)
        for part, array, of_table, of_fill in (
            ("keys", self.keys, "key_dtype", "Tin"),
            ("values", self.values, "value_dtype", "Tout"),
        ):
            proto = tf.make_tensor_proto(array)
            constant = tf.compat.v1.NodeDef(name=f"{name}/tf_placer_{part}", op="Const")
            constant.attr["value"].tensor.CopyFrom(proto)
            for node, attr in ((constant, "dtype"), (table, of_table), (fill, of_fill)):
                node.attr[attr].type = proto.dtype
            fill.input.append(constant.name)
            nodes.append(constant)
        return [*nodes, fill]


def table_content(inner: tf.Tensor, table: tf.Tensor) -> TableContent | None:
    """Reads what is in a table that a function looks up in.

    Args:
        inner: the table, as an argument in the graph of the function.
        table: its handle.

    Returns:
        The content; None if it is no table, or if what type it has is not to be seen, because
        others than lookups, such as a loop, take it.

    Raises:
        GraphError: it has no content yet.
    """
    types = {
        (operation.get_attr("Tin"), operation.get_attr("Tout"))
        for operation in inner.consumers()
        if operation.type == "LookupTableFindV2"
    }
    if len(types) != 1 or any(not o.type.startswith("LookupTable") for o in inner.consumers()):
        return None
    [(key_dtype, value_dtype)] = types
    try:
        keys, values = tf.raw_ops.LookupTableExportV2(
            table_handle=table, Tkeys=key_dtype, Tvalues=value_dtype
        )
    except tf.errors.OpError as error:
        raise GraphError(f"the table {inner.op.name!r} cannot be read: {error.message}") from error
    # A table has no order; that of its keys is the same in each process.
    order = np.argsort(keys.numpy(), kind="stable")
    return TableContent(keys.numpy()[order], values.numpy()[order])
