"""Graphs of groups in JSON files, beside the problems whose groups they describe."""

from __future__ import annotations

import os

import numpy as np

from graph_passes.grouping.group_graph import GroupGraph
from graph_passes.util.json_records import check_format
from tf_placer.files import read_json, write_json

__all__ = ["read_group_graph", "write_group_graph"]

_FORMAT = 1


def write_group_graph(groups: GroupGraph, path: str | os.PathLike[str]) -> None:
    """Writes a graph of groups, whole or not at all.

    Raises:
        OSError: it cannot be written.
    """
    counted = np.argwhere(groups.type_counts)
    counts = groups.type_counts[tuple(counted.T)]
    value = {
        "format": _FORMAT,
        "names": groups.names,
        "kinds": groups.kinds,
        "type_names": groups.type_names,
        # Group, type, count: few of the types occur in a group.
        "type_counts": np.column_stack([counted, counts]).tolist(),
        "output_shapes": groups.output_shapes,
        "edges": groups.edges.tolist(),
        "edge_bytes": groups.edge_bytes.tolist(),
        "work": groups.work.tolist(),
        "layers": groups.layers.tolist(),
    }
    write_json(path, value)


def read_group_graph(path: str | os.PathLike[str]) -> GroupGraph:
    """Reads what `write_group_graph` wrote.

    Raises:
        OSError: the file cannot be read.
        ValueError: it is no graph of groups of this format.
    """
    value = read_json(path)
    check_format(value, _FORMAT, os.fspath(path))
    type_counts = np.zeros([len(value["names"]), len(value["type_names"])], np.int32)
    counted = np.array(value["type_counts"], np.int32).reshape(-1, 3)
    type_counts[counted[:, 0], counted[:, 1]] = counted[:, 2]
    return GroupGraph(
        names=tuple(value["names"]),
        kinds=tuple(value["kinds"]),
        type_names=tuple(value["type_names"]),
        type_counts=type_counts,
        output_shapes=tuple(
            tuple(tuple(shape) for shape in shapes) for shapes in value["output_shapes"]
        ),
        edges=np.array(value["edges"], np.int32).reshape(-1, 2),
        edge_bytes=np.array(value["edge_bytes"], np.int64),
        work=np.array(value["work"], np.float64),
        layers=np.array(value["layers"], np.int32),
    )
