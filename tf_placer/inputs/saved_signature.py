"""Reads signatures of a SavedModel as a graph and a step, and writes devices back into them."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2, saved_object_graph_pb2
from tensorflow.core.protobuf.trackable_object_graph_pb2 import TrackableObjectGraph
from tensorflow.python.saved_model import loader_impl

from graph_passes.annotate import ClearDevices
from graph_passes.errors import GraphError, StepError
from graph_passes.inlined_calls import InlinedGraph, inline_calls, put_devices
from graph_passes.turns import run_in_turn
from tf_placer.inputs.restored_values import read_session_values
from tf_placer.inputs.saved_model_files import read_saved_model

__all__ = [
    "SavedSignature",
    "explain_no_signatures",
    "find_serving_graph",
    "list_signatures",
    "read_signature",
]

_DEFAULT = tf.saved_model.DEFAULT_SERVING_SIGNATURE_DEF_KEY
_OBJECT_GRAPH = "_CHECKPOINTABLE_OBJECT_GRAPH"
_INIT_OP = "__saved_model_init_op"
# Signatures that TensorFlow adds for its own use.
_INTERNAL = (_INIT_OP, "__saved_model_train_op")
_MAIN_OPS = (
    tf.compat.v1.saved_model.constants.MAIN_OP_KEY,
    tf.compat.v1.saved_model.constants.LEGACY_INIT_OP_KEY,
)
_NOT_FETCHED = (tf.resource.as_datatype_enum, tf.variant.as_datatype_enum)
# TensorFlow raises these for a graph that it cannot import.
_REFUSALS = (AttributeError, IndexError, KeyError, TypeError, ValueError)
# TensorFlow puts lines that begin like these before the reason of an error.
_PREAMBLES = ("Restoring from checkpoint failed.", "Graph execution error:", "Detected at node")
_PARTS_OF_SPARSE = ("values", "indices", "dense_shape")


@dataclasses.dataclass(frozen=True, eq=False)
class SavedSignature:
    """One or several signatures of a SavedModel, which a step calls one after another.

    Attributes:
        directory: the directory of the SavedModel.
        names: the names of the signatures, in the order of their calls.
        saved_model: the MetaGraphs of the SavedModel.
        number: the index of the MetaGraph with the signatures.
        inlined: the part of this graph that calls of the signatures and their initializers need,
            with function calls inlined.
        arguments: tensor names by argument name, one for each signature that has the argument; a
            sparse argument "x" has three entries, such as "x/values".
        defaults: values of optional arguments, by tensor name.
        initializers: names of the operations that run before the first call.
        assets: paths of files, by name of the tensor that passes the path to an initializer.
    """

    directory: str
    names: tuple[str, ...]
    saved_model: saved_model_pb2.SavedModel
    number: int
    inlined: InlinedGraph
    arguments: Mapping[str, tuple[str, ...]]
    defaults: Mapping[str, np.ndarray]
    initializers: tuple[str, ...]
    assets: Mapping[str, str]

    @property
    def meta_graph(self) -> tf.compat.v1.MetaGraphDef:
        """The MetaGraph with all signatures."""
        return self.saved_model.meta_graphs[self.number]

    @property
    def title(self) -> str:
        """The signatures in a sentence: "the signature 'score'", "the signatures 'a', 'b'"."""
        names = ", ".join(map(repr, self.names))
        return f"the signature{'s' if len(self.names) > 1 else ''} {names}"

    def bind_example_inputs(self, example_inputs: Any) -> Mapping[str, Any]:
        """Converts the inputs of an example call to values by argument name.

        Args:
            example_inputs: values by argument name, or the value of the only argument.

        Raises:
            GraphError: there is one value, but there are several arguments.
        """
        if isinstance(example_inputs, Mapping):
            return example_inputs
        if len(self.arguments) != 1:
            raise GraphError(
                f"the arguments of {self.title} are {self._join_arguments()}: pass a dictionary of "
                "values by these names"
            )
        return dict.fromkeys(self.arguments, example_inputs)

    def build_feeds(self, values: Mapping[str, Any] | None) -> dict[str, Any]:
        """Builds the feeds of a call.

        Args:
            values: values by argument name; None for no values.

        Returns:
            Values by tensor name, including the paths of assets for initializers.

        Raises:
            GraphError: an argument is unknown, or has neither a value nor a fully defined shape.
        """
        values = {} if values is None else values
        for name in values:
            if name not in self.arguments:
                raise GraphError(
                    f"there is no argument {name!r} of {self.title}: the arguments are "
                    f"{self._join_arguments()}"
                )
        nodes = {node.name: node for node in self.inlined.graph_def.node}
        feeds: dict[str, Any] = dict(self.assets)
        tensors = ((name, tensor) for name, of in self.arguments.items() for tensor in of)
        for name, tensor in tensors:
            value = values.get(name, self.defaults.get(tensor))
            if value is not None:
                feeds[tensor] = value
                continue
            node = nodes.get(tensor.partition(":")[0])
            shape = None if node is None else tf.TensorShape(node.attr["shape"].shape)
            if shape is not None and not shape.is_fully_defined():
                raise GraphError(
                    f"the argument {name!r} of {self.title} has the shape {shape}, so no value can "
                    "be made up for it: pass one by its name in example_inputs (--feeds)"
                )
        return feeds

    def check_files(self) -> None:
        """Checks that the files that initializers read exist.

        Raises:
            GraphError: a file is missing.
        """
        for path in self.assets.values():
            if not os.path.exists(path):
                raise GraphError(f"the SavedModel {self.directory!r} lacks its file {path!r}")

    def check_objects(self) -> None:
        """Checks that the object graph of the SavedModel has all captures of the signatures.

        Raises:
            GraphError: an object is missing.
        """
        self._list_bound_inputs()

    def _list_bound_inputs(self) -> list[tuple[str, int]]:
        """Lists the captures of the signatures' functions, which are their last arguments.

        Returns:
            Pairs of an operation's name and the index of an object in the object graph.
        """
        functions = self.meta_graph.object_graph_def.concrete_functions
        found: list[tuple[str, int]] = []
        for node in self.meta_graph.graph_def.node:
            saved = functions.get(node.attr["f"].func.name) if "f" in node.attr else None
            if node.name in self.inlined.calls and saved is not None and saved.bound_inputs:
                given = [text for text in node.input if not text.startswith("^")]
                bound = list(saved.bound_inputs)
                known = range(len(self.meta_graph.object_graph_def.nodes))
                if len(bound) > len(given) or any(number not in known for number in bound):
                    raise GraphError(
                        f"the SavedModel {self.directory!r} is damaged: its objects do not have "
                        f"what {node.attr['f'].func.name!r} takes from them"
                    )
                names = [text.partition(":")[0] for text in given[-len(bound) :]]
                found += zip(names, bound, strict=True)
        return found

    def _join_arguments(self) -> str:
        return ", ".join(self.arguments) or "none"

    def read_values(self, names: Sequence[str]) -> dict[str, np.ndarray]:
        """Reads the saved values of variables.

        Args:
            names: the names of the variables' operations.

        Returns:
            Values by name, for the variables that have one.

        Raises:
            GraphError: the values cannot be read.
        """
        prefix = os.path.join(self.directory, "variables", "variables")
        try:
            # First those of objects: a session looks for variables without a value by bisection,
            # a run for each, and the restoring operations of Keras 3 leave all without one.
            values = self._read_object_values(prefix, names)
            others = [name for name in names if name not in values]
            return values | self._read_restored_values(prefix, others) if others else values
        except (tf.errors.OpError, *_REFUSALS) as error:
            raise GraphError(
                f"cannot read the variables of the SavedModel {self.directory!r}, in {prefix!r}: "
                f"{_find_reason(error)}"
            ) from error

    def _read_restored_values(self, prefix: str, names: Sequence[str]) -> dict[str, np.ndarray]:
        """Reads the values of variables that the graph itself restores; see `read_values`."""
        # On the CPU, because GPU memory may be too small for them or in use by this process.
        config = tf.compat.v1.ConfigProto(allow_soft_placement=True, device_count={"GPU": 0})
        # Reading a variable gains nothing from optimizing the graph of the model.
        config.graph_options.rewrite_options.disable_meta_optimizer = True
        # A copy, because TensorFlow modifies a MetaGraphDef that it imports.
        meta_graph = tf.compat.v1.MetaGraphDef()
        meta_graph.CopyFrom(self.meta_graph)
        with tf.Graph().as_default() as graph:
            saver = tf.compat.v1.train.import_meta_graph(meta_graph, clear_devices=True)
            if saver is None:
                return {}
            for name in names:
                variable = graph.get_operation_by_name(name)
                if variable.type == "VarHandleOp":
                    dtype = tf.dtypes.as_dtype(variable.get_attr("dtype"))
                    tf.raw_ops.ReadVariableOp(resource=variable.outputs[0], dtype=dtype)
            with tf.compat.v1.Session(graph=graph, config=config) as session:
                saver.restore(session, prefix)
                return read_session_values(session, names)

    def _read_object_values(self, prefix: str, names: Sequence[str]) -> dict[str, np.ndarray]:
        """Reads the values of captured variables, which a checkpoint has by their objects.

        `tf.saved_model.save` of a model of Keras 3 saves its variables twice: TensorFlow restores
        those of signatures by their objects alone.

        Args:
            prefix: the checkpoint of the SavedModel.
            names: the names of the variables' operations.
        """
        wanted = {name: number for name, number in self._list_bound_inputs() if name in names}
        if not wanted:
            return {}
        reader = tf.train.load_checkpoint(prefix)
        keys = _find_checkpoint_keys(
            self.meta_graph.object_graph_def,
            TrackableObjectGraph.FromString(reader.get_tensor(_OBJECT_GRAPH)),
        )
        return {
            name: reader.get_tensor(keys[number])
            for name, number in wanted.items()
            if number in keys
        }

    def copy_without_devices(self) -> SavedSignature:
        """Copies the signatures without the original devices of their SavedModel."""
        saved_model = _copy(self.saved_model)
        meta_graph = saved_model.meta_graphs[self.number]
        meta_graph.graph_def.CopyFrom(ClearDevices().run(meta_graph.graph_def))
        for node in meta_graph.object_graph_def.nodes:
            if node.WhichOneof("kind") == "variable":
                node.variable.device = ""
        return _build_signature(self.directory, saved_model, self.number, self.names)

    def build_placed_model(self, assignment: Mapping[str, str]) -> saved_model_pb2.SavedModel:
        """Copies the SavedModel and sets devices.

        Args:
            assignment: the device of each operation, by its name in `inlined`.

        Returns:
            A copy of the SavedModel with devices for operations, for the functions that the
            signatures call, and for variables. The devices in functions affect all their callers.
        """
        result = _copy(self.saved_model)
        meta_graph = result.meta_graphs[self.number]
        graph_def = put_devices(meta_graph.graph_def, self.inlined.calls, assignment)
        objects = meta_graph.object_graph_def.nodes
        for name, number in self._list_bound_inputs():
            device = assignment.get(name)
            is_variable = objects[number].WhichOneof("kind") == "variable"
            if device and is_variable and not objects[number].variable.device:
                objects[number].variable.device = device
        meta_graph.graph_def.CopyFrom(graph_def)
        return result


def read_signature(
    directory: str | os.PathLike[str], signature_key: str | Sequence[str] | None = None
) -> SavedSignature:
    """Reads one or several signatures of a SavedModel.

    Args:
        directory: the directory of the SavedModel.
        signature_key: the name of the signature, or the names of several; by default
            "serving_default", or the only one.

    Raises:
        GraphError: the SavedModel cannot be read, has no such signature, or has several and none is
            chosen.
    """
    directory = os.fspath(directory)
    saved_model = read_saved_model(directory)
    number = find_serving_graph(saved_model, directory)
    known = list_signatures(saved_model.meta_graphs[number])
    if signature_key is None and (_DEFAULT in known or len(known) == 1):
        signature_key = _DEFAULT if _DEFAULT in known else known[0]
    names = [signature_key] if isinstance(signature_key, str) else [*(signature_key or ())]
    missing = [name for name in names if name not in known]
    if not names or missing:
        if not known:
            raise GraphError(explain_no_signatures(directory))
        lacks = f"no signature {missing[0]!r}" if missing else "several signatures"
        raise StepError(
            f"the SavedModel {directory!r} has {lacks}: name one or more of {', '.join(known)}"
        )
    return _build_signature(directory, saved_model, number, tuple(dict.fromkeys(names)))


def find_serving_graph(
    saved_model: saved_model_pb2.SavedModel, directory: str | os.PathLike[str]
) -> int:
    """Finds the MetaGraph that servers take; a SavedModel may have others, such as for training.

    Args:
        saved_model: the SavedModel.
        directory: its directory, for the error message.

    Returns:
        The index of the MetaGraph.

    Raises:
        GraphError: there is no MetaGraph.
    """
    if not saved_model.meta_graphs:
        raise GraphError(f"the SavedModel {os.fspath(directory)!r} holds no graph")
    serving = [
        number
        for number, each in enumerate(saved_model.meta_graphs)
        if list(each.meta_info_def.tags) == [tf.saved_model.SERVING]
    ]
    return serving[0] if serving else 0


def list_signatures(meta_graph: tf.compat.v1.MetaGraphDef) -> list[str]:
    """Lists the names of the signatures that users call, in alphabetical order."""
    return sorted(name for name in meta_graph.signature_def if name not in _INTERNAL)


def explain_no_signatures(directory: str) -> str:
    """Formats the error message for a SavedModel without signatures."""
    return (
        f"the SavedModel {directory!r} has no signatures, so nobody can call it: save it with "
        "signatures=, or pass the tf.function that it was saved from"
    )


def _build_signature(
    directory: str,
    saved_model: saved_model_pb2.SavedModel,
    number: int,
    names: tuple[str, ...],
) -> SavedSignature:
    meta_graph = saved_model.meta_graphs[number]
    initializers = _find_initializers(meta_graph)
    there = {node.name for node in meta_graph.graph_def.node}
    arguments: dict[str, tuple[str, ...]] = {}
    outputs: dict[str, list[str]] = {}
    defaults: dict[str, np.ndarray] = {}
    for name in names:
        definition = meta_graph.signature_def[name]
        given = _find_tensors(definition.inputs, directory)
        outputs[name] = list(_find_tensors(definition.outputs, directory).values())
        for tensor in (*given.values(), *outputs[name], *initializers):
            if tensor.partition(":")[0] not in there:
                raise GraphError(
                    f"the SavedModel {directory!r} is damaged: its graph lacks {tensor!r}, which "
                    f"the signature {name!r} needs"
                )
        if not outputs[name]:
            raise GraphError(f"the signature {name!r} of {directory!r} returns nothing to wait for")
        for key, tensor in given.items():
            arguments[key] = tuple(dict.fromkeys((*arguments.get(key, ()), tensor)))
        for key, value in definition.defaults.items():
            defaults[given[key]] = tf.make_ndarray(value)
    fed = [tensor for tensors in arguments.values() for tensor in tensors]
    try:
        inlined = inline_calls(
            meta_graph.graph_def,
            list(dict.fromkeys(tensor for tensors in outputs.values() for tensor in tensors)),
            fed,
            # Callers have to pass an argument even if nothing reads it.
            [*initializers, *(tensor.partition(":")[0] for tensor in fed)],
        )
    except (KeyError, ValueError) as error:  # ValueError for a call with too few arguments.
        raise GraphError(f"the SavedModel {directory!r} is damaged: it has no {error}") from error
    if len(names) > 1:
        turns = [
            [end for tensor in outputs[name] for end in inlined.ends[tensor]] for name in names
        ]
        inlined = dataclasses.replace(inlined, graph_def=run_in_turn(inlined.graph_def, turns))
    assets = {
        tensor: os.fsdecode(path)
        for tensor, path in loader_impl.get_asset_tensors(directory, meta_graph).items()
        if _has_tensor(inlined, tensor)
    }
    result = SavedSignature(
        directory,
        names,
        saved_model,
        number,
        inlined,
        arguments,
        defaults,
        initializers,
        assets,
    )
    result.check_objects()
    return result


def _find_tensors(infos: Mapping[str, Any], directory: str) -> dict[str, str]:
    """Returns the tensor names of arguments or results, by key."""
    tensors = {}
    for key, info in sorted(infos.items()):
        kind = info.WhichOneof("encoding")
        if kind == "name":
            if info.dtype not in _NOT_FETCHED:
                tensors[key] = info.name
        elif kind == "coo_sparse":
            for part in _PARTS_OF_SPARSE:
                tensors[f"{key}/{part}"] = getattr(info.coo_sparse, f"{part}_tensor_name")
        else:
            for i, part in enumerate(info.composite_tensor.components):
                tensors[f"{key}/{i}"] = part.name
    return tensors


def _find_reason(error: Exception) -> str:
    """Returns the line of a TensorFlow error that states the reason."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    own = [line for line in lines if not line.startswith(_PREAMBLES)]
    return (own or lines or [type(error).__name__])[0]


def _find_initializers(meta_graph: tf.compat.v1.MetaGraphDef) -> tuple[str, ...]:
    """Finds the operation that TensorFlow's loader runs before the first call, if any."""
    if _INIT_OP in meta_graph.signature_def:
        info = meta_graph.signature_def[_INIT_OP].outputs[_INIT_OP]
        return (info.name.partition(":")[0],)
    collections = meta_graph.collection_def
    for key in _MAIN_OPS:
        if key in collections and collections[key].node_list.value:
            return (collections[key].node_list.value[0].partition(":")[0],)
    return ()


def _find_checkpoint_keys(
    objects: saved_object_graph_pb2.SavedObjectGraph, saved: TrackableObjectGraph
) -> dict[int, str]:
    """Finds the entry of a checkpoint for each object that has one, by its number."""
    pairs = {0: 0}
    pending = [0]
    while pending:
        number = pending.pop()
        children = {each.local_name: each.node_id for each in saved.nodes[pairs[number]].children}
        for child in objects.nodes[number].children:
            if child.node_id not in pairs and child.local_name in children:
                pairs[child.node_id] = children[child.local_name]
                pending.append(child.node_id)
    return {
        number: saved.nodes[other].attributes[0].checkpoint_key
        for number, other in pairs.items()
        if saved.nodes[other].attributes
    }


def _has_tensor(inlined: InlinedGraph, tensor: str) -> bool:
    name = tensor.partition(":")[0]
    return any(node.name == name for node in inlined.graph_def.node)


def _copy(saved_model: saved_model_pb2.SavedModel) -> saved_model_pb2.SavedModel:
    result = saved_model_pb2.SavedModel()
    result.CopyFrom(saved_model)
    return result
