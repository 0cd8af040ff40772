"""Reads the initial values of variables from a checkpoint or from a running session."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from graph_passes.errors import GraphError
from graph_passes.op_graph import OpGraph
from graph_passes.op_types import VARIABLES
from tf_placer.inputs.graph_collections import VariableSlice
from tf_placer.inputs.session_arguments import list_names

__all__ = ["RestoredValues", "read_session_values", "restore_values"]

_FILE_ENDING = re.compile(r"\.(index|meta|data-\d{5}-of-\d{5})$")
_PART = re.compile(r"(.+)/part_(\d+)$")


@dataclasses.dataclass(frozen=True)
class RestoredValues:
    """Values of variables and their origin.

    Attributes:
        values: the values, by name of the variable's operation.
        missing: names of the variables without a value.
        source: the checkpoint or the session, for messages.
    """

    values: Mapping[str, np.ndarray]
    missing: Sequence[str]
    source: str

    def describe(self) -> str:
        """Says, for the user, how many variables have a value."""
        text = f"restored {len(self.values)} variables from {self.source}"
        if not self.missing:
            return text
        others = "the other one" if len(self.missing) == 1 else f"the other {len(self.missing)}"
        keep = "keeps its initializer" if len(self.missing) == 1 else "keep their initializers"
        return f"{text}; {others} ({self.missing[0]!r}{', ...' * (len(self.missing) > 1)}) {keep}"


def _is_session(value: Any) -> bool:
    """Says whether something is a session, monitored or not."""
    return isinstance(getattr(value, "graph", None), tf.Graph) and hasattr(value, "run")


def restore_values(
    checkpoint: Any,
    graph: OpGraph,
    variables: Sequence[str],
    slices: Mapping[str, VariableSlice],
) -> RestoredValues:
    """Reads the values that a checkpoint or a session has for the variables of a graph.

    Args:
        checkpoint: the prefix of a checkpoint's files, a directory whose latest checkpoint is
            taken, or a session.
        graph: the graph.
        variables: names of the variables' operations.
        slices: the positions of parts of partitioned variables.

    Returns:
        The values.

    Raises:
        GraphError: there is no such checkpoint, one of its variables has another shape or type, or
            it has none of the variables.
    """
    if _is_session(checkpoint):
        values = read_session_values(checkpoint, variables)
        for name, value in values.items():
            _check_value(graph, name, value.shape, value.dtype, "the session", name)
        missing = [name for name in variables if name not in values]
        if variables and not values:
            raise GraphError(
                f"the session has a value for none of the variables: {variables[0]!r} is the first"
            )
        return RestoredValues(values, missing, "the session")
    return _read_checkpoint(_find_prefix(checkpoint), graph, variables, slices)


def read_session_values(session: Any, names: Sequence[str]) -> dict[str, np.ndarray]:
    """Reads the initialized variables of a session, without adding operations to its graph.

    Args:
        session: the session.
        names: names of the variables' operations.

    Returns:
        Values by name.
    """
    # The inner session of a monitored session, because it calls no hooks.
    session = session._tf_sess() if hasattr(session, "_tf_sess") else session
    readers = {}
    collected = _find_collected(session.graph)
    for name in names:
        reader = collected.get(name) or _find_reader(session.graph, name)
        if reader is not None:
            readers[name] = reader
    return _run_readers(session, list(readers.items()))


def _run_readers(session: Any, readers: Sequence[tuple[str, str]]) -> dict[str, np.ndarray]:
    """Reads the initialized variables among some, given as pairs of a name and a tensor."""
    try:
        values = session.run([reader for _, reader in readers])
    except tf.errors.FailedPreconditionError:
        if len(readers) < 2:
            return {}
        # Every run of other fetches optimizes the graph anew, which takes a second for a large one.
        middle = len(readers) // 2
        first, second = (
            _run_readers(session, half) for half in (readers[:middle], readers[middle:])
        )
        return first | second
    return {name: value for (name, _), value in zip(readers, values, strict=True)}


def _find_collected(graph: tf.Graph) -> dict[str, str]:
    """Finds the value tensors of the variables in a graph's collections, by operation."""
    keys = tf.compat.v1.GraphKeys
    found = {}
    for variable in (
        *graph.get_collection(keys.GLOBAL_VARIABLES),
        *graph.get_collection(keys.LOCAL_VARIABLES),
    ):
        with contextlib.suppress(AttributeError, GraphError):
            [found[variable.op.name]] = list_names(variable)
    return found


def _find_reader(graph: tf.Graph, name: str) -> str | None:
    """Finds a tensor with the value of a variable that is in no collection."""
    try:
        operation = graph.get_operation_by_name(name)
    except KeyError:
        return None
    if operation.type != "VarHandleOp":
        return f"{name}:0"
    for consumer in operation.outputs[0].consumers():
        if consumer.type == "ReadVariableOp" and not consumer.control_inputs:
            return str(consumer.outputs[0].name)
    return None


def _find_prefix(checkpoint: Any) -> str:
    """Finds the prefix of a checkpoint's files."""
    if not isinstance(checkpoint, str | os.PathLike):
        raise GraphError(
            "a checkpoint is the prefix of its files, their directory or a session, not "
            f"{type(checkpoint).__name__}"
        )
    path = os.fspath(checkpoint)
    if not path or "\0" in path:
        raise GraphError(f"{path!r} is not the name of a checkpoint")
    if os.path.isdir(path):
        latest = tf.train.latest_checkpoint(path)
        if latest is None:
            raise GraphError(f"the directory {path!r} holds no checkpoint to restore from")
        return str(latest)
    for prefix in (path, _FILE_ENDING.sub("", path)):
        if tf.io.gfile.exists(f"{prefix}.index"):
            return prefix
    if os.path.isfile(path):
        return path  # TensorFlow's first checkpoint format is a single file.
    raise GraphError(f"there is no checkpoint {path!r} to restore from")


def _read_checkpoint(
    prefix: str, graph: OpGraph, variables: Sequence[str], slices: Mapping[str, VariableSlice]
) -> RestoredValues:
    values = {}
    try:
        reader = tf.train.load_checkpoint(prefix)
        shapes, dtypes = reader.get_variable_to_shape_map(), reader.get_variable_to_dtype_map()
        keys = _map_keys(prefix, shapes)
        for name in variables:
            key = next((keys[each] for each in _list_names(graph, name) if each in keys), None)
            part = None
            if key is None:
                part = slices.get(name) or _infer_slice(graph, name, keys, shapes)
                if part is None or part.full_name not in keys:
                    continue
                key = keys[part.full_name]
            source = f"the checkpoint {prefix!r}"
            if part is not None and tuple(shapes[key]) != part.full_shape:
                raise GraphError(
                    f"{source} has {key!r} of the shape {shapes[key]}, and {name!r} is a part of "
                    f"{list(part.full_shape)}"
                )
            shape = tuple(shapes[key]) if part is None else part.shape
            _check_value(graph, name, shape, np.dtype(dtypes[key].as_numpy_dtype), source, key)
            value = np.asarray(reader.get_tensor(key))
            values[name] = value if part is None else value[part.index]
    except (RuntimeError, tf.errors.OpError) as error:
        reason = " ".join((getattr(error, "message", None) or str(error)).split())
        raise GraphError(f"cannot read the checkpoint {prefix!r}: {reason}") from error
    if variables and not values:
        first = repr(min(keys)) if keys else "nothing"
        raise GraphError(
            f"the checkpoint {prefix!r} has none of the variables that are needed: the graph has "
            f"{variables[0]!r}, the checkpoint {first}"
        )
    missing = [name for name in variables if name not in values]
    return RestoredValues(values, missing, prefix)


def _map_keys(prefix: str, shapes: Mapping[str, Sequence[int]]) -> dict[str, str]:
    """Maps the names of variables to their keys in a checkpoint."""
    graph_key = "_CHECKPOINTABLE_OBJECT_GRAPH"
    keys = {key: key for key in shapes if key != graph_key}
    if graph_key in shapes:
        # The checkpoint was written by tf.train.Checkpoint, whose keys are paths of objects.
        from tensorflow.python.training import saver

        named = saver.object_graph_key_mapping(prefix)
        keys |= {name: key for name, key in named.items() if key in shapes}
    return keys


def _list_names(graph: OpGraph, name: str) -> list[str]:
    """Lists the names that a variable may have in a checkpoint."""
    shared = graph.graph_def.node[graph.index[name]].attr["shared_name"].s.decode()
    return [shared, name] if shared else [name]


def _infer_slice(
    graph: OpGraph, name: str, keys: Mapping[str, str], shapes: Mapping[str, Sequence[int]]
) -> VariableSlice | None:
    """Infers the position of a variable "x/part_N" in the variable "x" of a checkpoint.

    Returns:
        The position; None if the shapes of the parts do not add up to the checkpoint's variable.
    """
    match = _PART.match(name)
    if match is None or match[1] not in keys:
        return None
    full_shape = tuple(shapes[keys[match[1]]])
    parts = {}
    for i in np.flatnonzero(graph.has_type(VARIABLES)).tolist():
        other = _PART.match(graph.names[i])
        if other is not None and other[1] == match[1]:
            parts[int(other[2])] = _read_shape(graph, graph.names[i])
    own, number = parts[int(match[2])], int(match[2])
    in_order = [parts[each] for each in sorted(parts)]
    if own is None or any(part is None or len(part) != len(full_shape) for part in in_order):
        return None
    for axis in range(len(full_shape)):
        sizes = [part[axis] for part in in_order if part is not None]
        if sum(sizes) == full_shape[axis] and all(
            size == full_shape[k] for k, size in enumerate(own) if k != axis
        ):
            offset = [0] * len(full_shape)
            offset[axis] = sum(sizes[: sorted(parts).index(number)])
            return VariableSlice(match[1], full_shape, tuple(offset), own)
    return None


def _read_shape(graph: OpGraph, name: str) -> tuple[int, ...] | None:
    """Reads the shape of a variable; None if it is not fully defined."""
    shape = tf.TensorShape(graph.graph_def.node[graph.index[name]].attr["shape"].shape)
    return tuple(shape.as_list()) if shape.is_fully_defined() else None


def _check_value(
    graph: OpGraph,
    name: str,
    shape: tuple[int, ...],
    dtype: np.dtype[Any],
    source: str,
    key: str,
) -> None:
    """Checks that a value has the shape and type of its variable."""
    own = _read_shape(graph, name)
    code = graph.graph_def.node[graph.index[name]].attr["dtype"].type
    own_dtype = np.dtype(tf.dtypes.as_dtype(code).as_numpy_dtype)
    if own is not None and own != shape:
        raise GraphError(
            f"{source} has {key!r} of the shape {list(shape)}, the variable {name!r} is of "
            f"{list(own)}"
        )
    if own_dtype != dtype:
        raise GraphError(
            f"{source} has {key!r} of the type {dtype}, the variable {name!r} is of {own_dtype}"
        )
