"""The training step of a script, as it is kept from one run of the script to the next."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
import pathlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import tensorflow as tf
from tensorflow.core.protobuf import struct_pb2
from tensorflow.python.saved_model import nested_structure_coder

from graph_passes.annotate import DropDanglingColocation
from graph_passes.errors import GraphError
from graph_passes.fingerprint import graph_fingerprint
from graph_passes.functions import called_functions
from graph_passes.graph_pass import GraphState
from graph_passes.op_graph import OpGraph
from graph_passes.placement import Placement, read_placement
from tf_placer.files import read_json, write_bytes, write_json
from tf_placer.inputs.sources import Source, read_graph
from tf_placer.live.own_files import EXAMPLE, TRAINED_BY
from tf_placer.live.run_directory import Request, RunDirectory
from tf_placer.machines.machine import Machine

__all__ = ["KeptStep", "keep_step", "kept_source", "read_kept_step", "step_fingerprint"]

_ITEMS = "items"


@dataclasses.dataclass(frozen=True, eq=False)
class KeptStep:
    """A training step, and where its operations go.

    Attributes:
        title: what it is known by, for people: a directory or a file.
        placement: its placement; None where nothing faster was found.
        machine: the machine that it was placed on; None where that is not known.
        trained_by: what it fetches that trains; nothing where that is not known.
        fingerprint: of the operations that these need; None where they are not known.
        graph_def: the graph that they are in; None where it is not known.
        coded_example: of a Keras model, the shapes and types of the batch that it was placed with,
            if TensorFlow can write them down; else None.
    """

    title: str
    placement: Placement | None
    machine: Machine | None = None
    trained_by: tuple[str, ...] = ()
    fingerprint: str | None = None
    graph_def: tf.compat.v1.GraphDef | None = None
    coded_example: bytes | None = None

    @functools.cached_property
    def example(self) -> Any:
        """A batch of zeros of these shapes and types; None if they are not known.

        Types of a library are known when the script has imported it.
        """
        if self.coded_example is None:
            return None
        coded = struct_pb2.StructuredValue.FromString(self.coded_example)
        try:
            specs = _from_order(nested_structure_coder.decode_proto(coded))
            with tf.init_scope():
                return tf.nest.map_structure(_zeros, specs)
        except (nested_structure_coder.NotEncodableError, TypeError, ValueError):
            return None

    def is_in(self, graph_def: tf.compat.v1.GraphDef) -> bool:
        """Says whether a graph has this step, or, where only devices are known, what has them."""
        names = {node.name for node in graph_def.node}
        if self.fingerprint is None:
            assert self.placement is not None
            known = self.placement.assignment
            return 2 * sum(name in names for name in known) >= len(known) > 0
        if any(_operation(name) not in names for name in self.trained_by):
            return False
        return step_fingerprint(graph_def, self.trained_by) == self.fingerprint


def step_fingerprint(graph_def: tf.compat.v1.GraphDef, fetches: Iterable[str]) -> str:
    """Computes a hash of the operations that a step needs; see `graph_fingerprint`.

    What else is in the graph, such as operations for checkpoints and summaries, does not count.
    """
    nodes = {node.name: node for node in graph_def.node}
    needed: set[str] = set()
    waiting = [_operation(name) for name in fetches]
    while waiting:
        name = waiting.pop()
        if name not in needed:
            needed.add(name)
            waiting += [_operation(name) for name in nodes[name].input]
    step = tf.compat.v1.GraphDef(library=graph_def.library)
    step.node.extend(nodes[name] for name in needed)
    step.library.CopyFrom(called_functions(step))
    return graph_fingerprint(DropDanglingColocation().run(GraphState(step)).state.graph_def)


def keep_step(
    directory: RunDirectory,
    request: Request,
    source: Source,
    session_config: tf.compat.v1.ConfigProto,
    trained_by: Sequence[str],
    example: Any = None,
) -> None:
    """Writes down a step that is to be searched for.

    Args:
        directory: of the search.
        request: what is asked.
        source: the graph and its step.
        session_config: of the script's sessions.
        trained_by: those of the fetches that train; others only look at what is trained.
        example: of a Keras model, a batch.

    Raises:
        OSError: the directory cannot be written.
    """
    directory.path.mkdir(parents=True, exist_ok=True)
    # First: by this file alone what a kill leaves of the others is told from somebody else's.
    write_json(directory.path / TRAINED_BY, [*trained_by])
    if example is not None:
        specs = tf.nest.map_structure(tf.type_spec_from_value, example)
        with contextlib.suppress(nested_structure_coder.NotEncodableError):
            coded = nested_structure_coder.encode_structure(_with_order(specs))
            write_bytes(directory.path / EXAMPLE, coded.SerializeToString())
    directory.write_request(
        request, source.graph_def.SerializeToString(), session_config.SerializeToString()
    )


def read_kept_step(path: str | os.PathLike[str]) -> KeptStep:
    """Reads a step and its placement.

    Args:
        path: the directory of a search that has ended; or a placement file, which lies in such a
            directory or elsewhere.

    Raises:
        GraphError: something cannot be read, or is something else.
    """
    given = pathlib.Path(path)
    placement: Placement | None
    if not given.is_dir():
        placement = read_placement(given)
        directory = RunDirectory(given.parent)
        if not directory.has_request or directory.placement.name != given.name:
            return KeptStep(os.fspath(path), placement)
    else:
        directory = RunDirectory(given)
        placement = read_placement(directory.placement) if directory.placement.exists() else None
    try:
        request, _ = directory.read_request()
        graph_def = read_graph(directory.graph).graph_def
        kept = directory.path / TRAINED_BY
        # Of a search that `run` did not make, all that it fetches.
        trained_by = read_json(kept) if kept.exists() else request.step.fetches
        fingerprint = step_fingerprint(graph_def, trained_by)
    except (OSError, TypeError, ValueError, KeyError) as error:
        raise GraphError(
            f"{os.fspath(directory.path)!r} holds no search that can be read: {error}"
        ) from error
    example = directory.path / EXAMPLE
    return KeptStep(
        os.fspath(path),
        placement,
        request.machine,
        tuple(trained_by),
        fingerprint,
        graph_def,
        example.read_bytes() if example.exists() else None,
    )


def kept_source(directory: RunDirectory) -> tuple[Source, Request, tf.compat.v1.ConfigProto]:
    """Reads a step that is to be searched for: its graph, what is asked, and the configuration.

    Raises:
        GraphError: it cannot be read.
    """
    try:
        request, config = directory.read_request()
        graph_def = read_graph(directory.graph).graph_def
    except (OSError, ValueError, KeyError) as error:
        raise GraphError(
            f"{os.fspath(directory.path)!r} holds no step that can be read: {error}"
        ) from error
    step = request.step
    graph = OpGraph.from_graph_def(graph_def, step.fetches, step.feeds)
    return Source(graph, step), request, tf.compat.v1.ConfigProto.FromString(config)


def _zeros(spec: tf.TypeSpec) -> Any:
    if isinstance(spec, tf.SparseTensorSpec):
        rank = len(spec.shape)
        return tf.SparseTensor(tf.zeros([0, rank], tf.int64), tf.zeros([0], spec.dtype), spec.shape)
    if isinstance(spec, tf.RaggedTensorSpec):
        # One element in each row: a model may be called on it.
        ones = tf.ones([spec.shape[0]], spec.row_splits_dtype)
        values = tf.zeros([spec.shape[0], *spec.shape[spec.ragged_rank + 1 :]], spec.dtype)
        return tf.RaggedTensor.from_nested_row_lengths(values, [ones] * spec.ragged_rank)
    if isinstance(spec, tf.TensorSpec):
        return tf.zeros(spec.shape, spec.dtype)
    parts = tf.nest.flatten(spec, expand_composites=True)
    zeros = [tf.zeros([size or 0 for size in part.shape], part.dtype) for part in parts]
    return tf.nest.pack_sequence_as(spec, zeros, expand_composites=True)


def _with_order(batch: Any) -> Any:
    """Makes lists of dictionaries: TensorFlow writes these in no order, but a step may go by it."""
    if isinstance(batch, Mapping):
        return {_ITEMS: [[key, _with_order(value)] for key, value in batch.items()]}
    if isinstance(batch, tuple | list):
        return _like(batch, [_with_order(each) for each in batch])
    return batch


def _from_order(batch: Any) -> Any:
    """Turns what `_with_order` made into what it was given."""
    if isinstance(batch, Mapping):
        return {key: _from_order(value) for key, value in batch[_ITEMS]}
    if isinstance(batch, tuple | list):
        return _like(batch, [_from_order(each) for each in batch])
    return batch


def _like(one: Any, parts: list[Any]) -> Any:
    return type(one)(*parts) if hasattr(one, "_fields") else type(one)(parts)


def _operation(name: str) -> str:
    return name.removeprefix("^").partition(":")[0]
