"""Loads SavedModels with their variables on the devices that were saved."""

from __future__ import annotations

import contextlib
import os
import weakref
from collections.abc import Iterator, Mapping
from typing import Any

import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2

from graph_passes.device_map import check_new_devices, read_device_map
from graph_passes.devices import has_device
from tf_placer.functions.connection import full_name, list_device_names
from tf_placer.functions.moved_variables import find_handle_variables, move_variables
from tf_placer.inputs.saved_model_devices import check_saved_devices, rename_saved_devices
from tf_placer.inputs.saved_model_files import link_saved_model, read_saved_model
from tf_placer.inputs.saved_signature import find_serving_graph
from tf_placer.temporary_directory import temporary_directory

__all__ = ["load_on_devices", "load_placed"]

_OWNER = "this process"
_CHECKPOINT = os.path.join("variables", "variables")


def load_placed(
    directory: str | os.PathLike[str], *, device_map: Mapping[str, str] | None = None
) -> Any:
    """Loads a placed SavedModel, with its variables and operations on their devices.

    `tf.saved_model.load` alone puts all variables on the first GPU, where they may not fit. It puts
    them on their devices if it is given a variable policy, but not where soft placement is off, nor
    for SavedModels of TensorFlow 1; and with soft placement a device that is missing is replaced by
    another without a word. This function loads all of them alike, each variable only on its own
    device, and leaves soft placement as it is.

    Args:
        directory: the SavedModel, as `result.save` or the command `apply` has written it.
        device_map: new devices by old devices, such as {"GPU:0": "GPU:2"}, for a computer whose
            devices have other numbers; parts that a new name lacks, such as the job, stay. The
            directory is not changed.

    Returns:
        The loaded object, as `tf.saved_model.load` returns it, with a function for each signature
        in `signatures`. Keep the object as long as its functions are in use.

    Raises:
        GraphError: it is no SavedModel, is on a device that this process does not have, or the map
            is wrong.
        tf.errors.OpError: the variables cannot be read, or do not fit into their devices.

    Example:
        >>> loaded = tf_placer.load_placed("placed", device_map={"GPU:0": "GPU:2"})
        >>> loaded.signatures["serving_default"](x=tf.constant(request))
    """
    directory = os.fspath(directory)
    saved_model = read_saved_model(directory)
    number = find_serving_graph(saved_model, directory)
    names = list_device_names()
    if device_map:
        new_names = read_device_map(device_map)
        check_new_devices(new_names, names, _OWNER)
        saved_model = rename_saved_devices(saved_model, new_names)
    check_saved_devices(saved_model.meta_graphs[number], names, _OWNER)
    if not device_map:
        return load_on_devices(directory, saved_model, number)
    # Functions may read files of the SavedModel at every call, so that the directory must live as
    # long as the object.
    with contextlib.ExitStack() as stack:
        linked = os.path.join(stack.enter_context(temporary_directory()), "model")
        os.mkdir(linked)
        link_saved_model(linked, saved_model, directory)
        loaded = load_on_devices(linked, saved_model, number)
        weakref.finalize(loaded, stack.pop_all().close)
    return loaded


def load_on_devices(
    directory: str | os.PathLike[str], saved_model: saved_model_pb2.SavedModel, number: int
) -> Any:
    """Loads a MetaGraph of a SavedModel, with its variables on their devices if these exist.

    Args:
        directory: the directory to load.
        saved_model: its graphs.
        number: the index of the MetaGraph.

    Returns:
        The loaded object.

    Raises:
        tf.errors.OpError: see `load_placed`.
    """
    meta_graph = saved_model.meta_graphs[number]
    # TensorFlow loads all others as SavedModels of TensorFlow 1. It ignores the devices of their
    # variables, which therefore get their memory and values only after they were moved.
    has_objects = len(saved_model.meta_graphs) == 1 and meta_graph.HasField("object_graph_def")
    options = tf.saved_model.LoadOptions(
        experimental_variable_policy=(
            tf.saved_model.experimental.VariablePolicy.SAVE_VARIABLE_DEVICES
        ),
        # The servers of a cluster may see other files.
        experimental_io_device=full_name("/device:CPU:0"),
        experimental_skip_checkpoint=not has_objects,
    )
    with _allow_soft_placement():
        loaded = tf.saved_model.load(directory, list(meta_graph.meta_info_def.tags), options)
    move_variables(_find_moves(loaded, meta_graph))
    if not has_objects and hasattr(loaded, "restore"):
        loaded.restore(os.path.join(directory, _CHECKPOINT))
    return loaded


@contextlib.contextmanager
def _allow_soft_placement() -> Iterator[None]:
    """Allows soft placement in the block, without which TensorFlow ignores the variable policy."""
    before = tf.config.get_soft_device_placement()
    tf.config.set_soft_device_placement(True)
    try:
        yield
    finally:
        tf.config.set_soft_device_placement(before)


def _find_moves(
    loaded: Any, meta_graph: tf.compat.v1.MetaGraphDef
) -> dict[tf.experimental.Ref, str]:
    """Finds the variables of signatures which are not on the device of their operation."""
    devices = {node.name: node.device for node in meta_graph.graph_def.node if node.device}
    known = list_device_names()
    captures = [
        (name, tensor)
        for key, function in loaded.signatures.items()
        for name, tensor in zip(
            _name_captures(function, meta_graph, key), function.captured_inputs, strict=True
        )
        if has_device(devices.get(name, ""), known) and name in devices
    ]
    variables = find_handle_variables([tensor for _, tensor in captures])
    return {
        variables[id(tensor)].ref(): full_name(devices[name])
        for name, tensor in captures
        if id(tensor) in variables
    }


def _name_captures(function: Any, meta_graph: tf.compat.v1.MetaGraphDef, key: str) -> list[str]:
    """Names the operations of the graph that stand for the captures of a loaded signature."""
    count = len(function.captured_inputs)
    if not count:
        return []
    functions = meta_graph.object_graph_def.concrete_functions
    results = {
        info.name.partition(":")[0] for info in meta_graph.signature_def[key].outputs.values()
    }
    for node in meta_graph.graph_def.node:
        if node.name in results and "f" in node.attr:
            saved = functions.get(node.attr["f"].func.name)
            if saved is not None and len(saved.bound_inputs) == count:
                given = [text for text in node.input if not text.startswith("^")]
                return [text.partition(":")[0] for text in given[-count:]]
    # A graph of TensorFlow 1 has no function, so the loaded function keeps its names.
    return [tensor.op.name for tensor in function.inputs[-count:]]
