"""A process that loads a SavedModel and calls its signatures.

Run by `tf_placer.live.signature_check` as `python -m tf_placer.live.signature_check_process`.
"""

from __future__ import annotations

import pathlib
import statistics
import time
from collections.abc import Mapping
from typing import Any

from tf_placer.processes import Parent

__all__ = ["main"]

# Calls of each signature that are timed: at least the first number, and up to the second one as
# long as time is left.
_MIN_CALLS, _MAX_CALLS, _MAX_SECS = 3, 50, 2.0


def main() -> None:
    """Loads the SavedModel, calls its signatures and sends the results to the parent process."""
    parent = Parent()
    parent.send({"stage": "importing TensorFlow in the process"})
    import tensorflow as tf

    from graph_passes.errors import GraphError
    from tf_placer.machines.local_cluster import LocalClusterError
    from tf_placer.machines.machine import MachineError

    try:
        _check(parent)
    except (GraphError, LocalClusterError, MachineError) as error:
        parent.send({"kind": type(error).__name__, "error": str(error)})
    except (tf.errors.OpError, MemoryError, OSError, RuntimeError, ValueError) as error:
        reason = _describe_error(error, "loading")
        text = f"the SavedModel {parent.settings['directory']!r} cannot be loaded: {reason}"
        parent.send({"kind": "SearchError", "error": text})
    # The parent process ends this one.
    parent.receive()


def _describe_error(error: Exception, stage: str) -> str:
    """Describes an error of TensorFlow in one sentence."""
    from tf_placer.environments.environment import FailureKind
    from tf_placer.environments.failures import classify_error

    failure = classify_error(type(error).__name__, str(error), stage, 0)
    is_memory = failure.kind is FailureKind.OUT_OF_MEMORY
    return f"{'out of memory ' if is_memory else ''}{failure.message}"


def _check(parent: Parent) -> None:
    import tensorflow as tf

    from graph_passes.errors import GraphError
    from tf_placer.inputs.feeds_file import read_feeds

    settings = parent.settings
    parent.send({"stage": "loading the signatures"})
    loaded = _load(settings)
    feeds = {} if settings["feeds"] is None else read_feeds(settings["feeds"])
    signatures = {name: loaded.signatures.get(name) for name in settings["signatures"]}
    specs = {
        name: _list_arguments(function)
        for name, function in signatures.items()
        if function is not None
    }
    for argument in feeds:
        if not any(argument in arguments for arguments in specs.values()):
            known = sorted({each for arguments in specs.values() for each in arguments})
            raise GraphError(
                f"no signature has the argument {argument!r} of the feeds: the arguments are "
                f"{', '.join(known) or 'none'}"
            )
    calls = {
        name: _Call(name, signatures[name], _build_inputs(name, arguments, feeds))
        for name, arguments in specs.items()
    }
    errors: dict[str, str | None] = {}
    # All are called once before the others follow, since a call may change variables of others.
    for number, name in enumerate(settings["signatures"]):
        if name not in calls:
            errors[name] = "there is no such signature"
        else:
            parent.send({"stage": f"running signature {name!r}"})
            errors[name] = calls[name].write_results(pathlib.Path(settings["values"], str(number)))
    gpus = [device.name for device in tf.config.list_logical_devices("GPU")]
    for name in settings["signatures"]:
        message: dict[str, Any] = {"name": name, "error": errors[name]}
        if errors[name] is None:
            parent.send({"stage": f"timing signature {name!r}"})
            message |= calls[name].measure(gpus)
        parent.send({"signature": message})
    parent.send({"variable_bytes": _sum_variables([each.function for each in calls.values()])})


def _load(settings: Mapping[str, Any]) -> Any:
    """Loads the SavedModel on its machine, or on the CPU of this process."""
    import tensorflow as tf

    from tf_placer.functions.connection import connect
    from tf_placer.functions.loaded_model import load_placed
    from tf_placer.inputs.saved_model_files import read_saved_model
    from tf_placer.inputs.saved_signature import find_serving_graph
    from tf_placer.machines.machine import Machine

    directory = settings["directory"]
    if settings["machine"] is None:
        saved_model = read_saved_model(directory)
        meta_graph = saved_model.meta_graphs[find_serving_graph(saved_model, directory)]
        return tf.saved_model.load(directory, list(meta_graph.meta_info_def.tags))
    connect(Machine.from_json(settings["machine"]))
    return load_placed(directory, device_map=settings["device_map"])


def _list_arguments(function: Any) -> dict[str, Any]:
    """Lists the specifications of the arguments of a signature, by name."""
    return dict(function.structured_input_signature[1])


def _build_inputs(
    signature: str, arguments: Mapping[str, Any], feeds: Mapping[str, Any]
) -> dict[str, Any]:
    """Builds the inputs of a call from the feeds, and makes up the others.

    Raises:
        GraphError: a value does not fit its argument, or none can be made up.
    """
    import numpy as np
    import tensorflow as tf

    from graph_passes.errors import GraphError
    from tf_placer.inputs.synthetic_feeds import convert_value, synthesize_value

    inputs = {}
    for name, spec in arguments.items():
        where = f"the argument {name!r} of the signature {signature!r}"
        if not isinstance(spec, tf.TensorSpec) or spec.dtype in (tf.resource, tf.variant):
            raise GraphError(f"{where} is no tensor, so no value can be passed: name another one")
        if name in feeds:
            try:
                value = convert_value(feeds[name], np.dtype(spec.dtype.as_numpy_dtype))
                spec.shape.assert_is_compatible_with(value.shape)
            except (NotImplementedError, TypeError, ValueError) as error:
                raise GraphError(f"the feed of {where} does not fit: {error}") from None
        else:
            rank = spec.shape.rank or 0
            shape = tuple(size or 1 for size in spec.shape) if rank else ()
            value = synthesize_value(name, spec.dtype, shape)
        inputs[name] = tf.constant(value, spec.dtype)
    return inputs


class _Call:
    """A call of a signature.

    Attributes:
        function: the signature as a function.
    """

    def __init__(self, name: str, function: Any, inputs: Mapping[str, Any]) -> None:
        self._name = name
        self.function = function
        self._inputs = inputs

    def write_results(self, path: pathlib.Path) -> str | None:
        """Calls the signature for the first time, and writes its results to a file of tensors.

        Returns:
            The reason why it does not run, in one sentence; None if it runs.
        """
        import tensorflow as tf

        from tf_placer.environments.tensor_file import write_tensors

        try:
            write_tensors(path, self._run())
        except (tf.errors.OpError, MemoryError, TypeError, ValueError) as error:
            return _describe_error(error, "the first call")
        return None

    def _run(self) -> dict[str, Any]:
        """Calls the signature and copies its results to the host."""
        import tensorflow as tf

        results = {}
        for name, value in self.function(**self._inputs).items():
            for number, tensor in enumerate(tf.nest.flatten(value, expand_composites=True)):
                results[f"{name}/{number}" if number else name] = tensor.numpy()
        return results

    def measure(self, gpus: list[str]) -> dict[str, Any]:
        """Times further calls.

        Args:
            gpus: the names of the devices whose memory TensorFlow may know.

        Returns:
            Further entries of a `SignatureCheck`.
        """
        import tensorflow as tf

        from tf_placer.functions.connection import full_name

        peak_bytes: dict[str, int | None] = {}
        secs: list[float] = []
        try:
            self._run()
            for name in gpus:
                tf.config.experimental.reset_memory_stats(name)
            start = time.perf_counter()
            while len(secs) < _MIN_CALLS or (
                len(secs) < _MAX_CALLS and time.perf_counter() - start < _MAX_SECS
            ):
                before = time.perf_counter()
                self._run()
                secs.append(time.perf_counter() - before)
            for name in gpus:
                peak_bytes[full_name(name)] = tf.config.experimental.get_memory_info(name)["peak"]
        except (tf.errors.OpError, MemoryError, ValueError) as error:
            return {"error": _describe_error(error, "a further call")}
        return {"step_secs": statistics.median(secs), "peak_bytes": peak_bytes}


def _sum_variables(functions: list[Any]) -> dict[str, int]:
    """Sums the bytes of the variables that functions use, by device."""
    from tf_placer.functions.connection import full_name
    from tf_placer.functions.moved_variables import find_handle_variables

    handles = [tensor for function in functions for tensor in function.captured_inputs]
    result: dict[str, int] = {}
    for variable in find_handle_variables(handles).values():
        device = full_name(variable.device)
        size = (variable.shape.num_elements() or 0) * variable.dtype.size
        result[device] = result.get(device, 0) + size
    return result


if __name__ == "__main__":
    main()
