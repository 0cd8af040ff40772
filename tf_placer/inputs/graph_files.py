"""Reads and writes graph files: GraphDefs and MetaGraphDefs, binary or text."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Mapping

import tensorflow as tf
from google.protobuf import message, text_format

from graph_passes.errors import GraphError
from graph_passes.util.atomic_write import write_atomically
from tf_placer import files
from tf_placer.inputs.message_text import parse_message_text

__all__ = [
    "FORMATS",
    "GraphFormat",
    "check_output",
    "read_graph_file",
    "replace_meta_graph",
    "write_graph",
]

# TensorFlow can write a MetaGraphDef as text into a `.meta` file, too. No binary one starts with
# these bytes, because as tags they would belong to fields that MetaGraphDef does not have.
_META_TEXT_STARTS = tuple(
    field.name.encode() for field in tf.compat.v1.MetaGraphDef.DESCRIPTOR.fields
)


@dataclasses.dataclass(frozen=True)
class GraphFormat:
    """A file format of graphs.

    Attributes:
        parse: converts the content of a file to a GraphDef or a MetaGraphDef. Raises DecodeError,
            ParseError or ValueError if it is neither.
        serialize: converts a GraphDef, and its original MetaGraphDef or None, to the content of a
            file.
    """

    parse: Callable[[bytes], tf.compat.v1.GraphDef | tf.compat.v1.MetaGraphDef]
    serialize: Callable[[tf.compat.v1.GraphDef, tf.compat.v1.MetaGraphDef | None], bytes]


def replace_meta_graph(
    graph_def: tf.compat.v1.GraphDef, meta_graph: tf.compat.v1.MetaGraphDef | None
) -> tf.compat.v1.MetaGraphDef:
    """Copies a MetaGraphDef, or makes a new one, and replaces its graph."""
    result = tf.compat.v1.MetaGraphDef()
    if meta_graph is not None:
        result.CopyFrom(meta_graph)
    result.graph_def.CopyFrom(graph_def)
    return result


def _parse_text(content: bytes) -> tf.compat.v1.GraphDef:
    return parse_message_text(content, tf.compat.v1.GraphDef)


def _parse_meta(content: bytes) -> tf.compat.v1.MetaGraphDef:
    if content.startswith(_META_TEXT_STARTS):
        return parse_message_text(content, tf.compat.v1.MetaGraphDef)
    return tf.compat.v1.MetaGraphDef.FromString(content)


_SAVED_MODEL = ("saved_model.pb", "saved_model.pbtxt")
#: The formats of graph files, by file name extension.
FORMATS: Mapping[str, GraphFormat] = {
    ".pb": GraphFormat(
        tf.compat.v1.GraphDef.FromString, lambda graph_def, meta: graph_def.SerializeToString()
    ),
    ".pbtxt": GraphFormat(
        _parse_text, lambda graph_def, meta: text_format.MessageToString(graph_def).encode()
    ),
    ".meta": GraphFormat(
        _parse_meta, lambda graph_def, meta: replace_meta_graph(graph_def, meta).SerializeToString()
    ),
}


def read_graph_file(
    path: str | os.PathLike[str],
) -> tf.compat.v1.GraphDef | tf.compat.v1.MetaGraphDef:
    """Reads a graph file in the format of its file name extension.

    Raises:
        GraphError: the file is not a graph; the message names it.
        OSError: the file cannot be read; the message names it.
    """
    path = os.fspath(path)
    _refuse_models(path)
    known = _find_format(path)
    try:
        with open(path, "rb") as file:
            content = file.read()
        parsed = known.parse(content)
    except OSError as error:
        raise type(error)(f"cannot read the graph {path!r}: {error.strerror}") from error
    except (message.DecodeError, text_format.ParseError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise GraphError(f"{path!r} is not a graph, or is cut short: {reason}") from error
    is_meta = isinstance(parsed, tf.compat.v1.MetaGraphDef)
    if not (parsed.graph_def if is_meta else parsed).node:
        what = "holds no operations" if content else "is empty"
        raise GraphError(f"the graph file {path!r} {what}")
    return parsed


def write_graph(
    path: str | os.PathLike[str],
    graph_def: tf.compat.v1.GraphDef,
    meta_graph: tf.compat.v1.MetaGraphDef | None = None,
) -> None:
    """Writes a graph file atomically.

    Args:
        path: a path that ends in `.pb`, `.pbtxt` or `.meta`.
        graph_def: the graph.
        meta_graph: for `.meta`, the MetaGraphDef whose other fields are written, too.

    Raises:
        GraphError: the path has another extension.
        OSError: the file cannot be written; the message names it.
    """
    path = os.fspath(path)
    data = _find_format(path).serialize(graph_def, meta_graph)
    try:
        write_atomically(path, data)
    except OSError as error:
        raise type(error)(f"cannot write the graph {path!r}: {error.strerror}") from error


def check_output(path: str | os.PathLike[str], *others: str | os.PathLike[str] | None) -> None:
    """Checks, before any work, that a graph can be written to a path.

    Args:
        path: the output file.
        others: input files, which must not be overwritten; None for none.

    Raises:
        GraphError: the path has no extension of a graph file.
        OSError: no file can be written there.
    """
    _find_format(os.fspath(path))
    files.check_output(path, *others)


def _refuse_models(path: str) -> None:
    """Refuses files of models, which are no graphs.

    Raises:
        GraphError: the file belongs to a SavedModel or is a Keras model; the message says what to
            do.
    """
    name = os.path.basename(os.path.normpath(path))
    if name in _SAVED_MODEL:
        raise GraphError(f"{path!r} is a file of a SavedModel: name the directory that it is in")
    if name.endswith((".keras", ".h5")):
        raise GraphError(
            f"{path!r} is a Keras model: load it, compile it, and pass it with a batch, "
            "tf_placer.optimize_model(model, (x, y))"
        )


def _find_format(path: str) -> GraphFormat:
    known = FORMATS.get(os.path.splitext(path)[1])
    if known is None:
        *endings, last = FORMATS
        raise GraphError(
            f"{path!r} is not a graph file: its name must end in {', '.join(endings)} or {last}; "
            "and a SavedModel is a directory with saved_model.pb in it"
        )
    return known
