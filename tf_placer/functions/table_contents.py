"""Reads the content of lookup tables that a function uses."""

from __future__ import annotations

import dataclasses

import numpy as np
import tensorflow as tf

from graph_passes.errors import GraphError

__all__ = ["TableContent", "read_table_content"]


@dataclasses.dataclass(frozen=True, eq=False)
class TableContent:
    """The content of a lookup table.

    Attributes:
        keys: [num_keys], sorted.
        values: [num_keys, ...], the value of each key.
    """

    keys: np.ndarray
    values: np.ndarray

    def build_nodes(self, name: str) -> list[tf.compat.v1.NodeDef]:
        """Builds the operations of a table with this content.

        Args:
            name: the name of the table.

        Returns:
            The table, its keys, its values and, last, the operation that fills it.
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


def read_table_content(inner: tf.Tensor, table: tf.Tensor) -> TableContent | None:
    """Reads the content of a table that a function uses.

    Args:
        inner: the argument for the table in the graph of the function.
        table: the handle of the table.

    Returns:
        The content; None if the resource is no table, or if its types are unknown because an
        operation other than a lookup, such as a loop, uses it.

    Raises:
        GraphError: the table has not been initialized.
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
    # Sorted, because the order of a table's entries differs between processes.
    order = np.argsort(keys.numpy(), kind="stable")
    return TableContent(keys.numpy()[order], values.numpy()[order])
