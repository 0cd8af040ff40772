"""Traces one call of a function or a Keras model into a graph and a step."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from graph_passes.errors import GraphError
from graph_passes.host_copies import HostCopy
from graph_passes.op_graph import OpGraph
from graph_passes.restricted_colocation import VARIABLE_NAME_ATTR
from graph_passes.unknown_sizes import unknown_sizes
from tf_placer.functions.example_batch import take_batch
from tf_placer.functions.iterators import to_feed_value
from tf_placer.functions.keras_models import (
    build_variables,
    check_training,
    convert_train_step,
    has_own_step,
    is_keras_model,
)
from tf_placer.functions.moved_variables import find_handle_variables, list_moved
from tf_placer.functions.placed_concrete_function import place_concrete_function
from tf_placer.functions.placed_function import place_function
from tf_placer.functions.process_local_resources import find_session_substitute
from tf_placer.functions.tracing import convert_arrays
from tf_placer.inputs.initial_state import is_read
from tf_placer.inputs.step import Step
from tf_placer.inputs.workload import Workload
from tf_placer.text.sentences import join_sentences

__all__ = ["TracedCall", "is_traceable", "trace_call"]

_NOT_TENSORS = (tf.resource, tf.variant)
_THIS_PROCESS = "/job:localhost/replica:0/task:0"


@dataclasses.dataclass(frozen=True, eq=False)
class TracedCall:
    """One call of a function, or one training step of a Keras model.

    Attributes:
        target: a tf.function, a ConcreteFunction or a Keras model.
        example_inputs: the arguments of the call.
        workload: the graph and the step of the call.
        variables: the variables that the call reads or writes, by the name of their operations.
        kept: the devices of process-local resources, by the names of the operations that use them;
            see `find_session_substitute`.
        place: makes a placed copy of the function. Its arguments are a function that returns the
            device of an operation by its name, "" for none, and the tensors that wait on the CPU.
    """

    target: Any
    example_inputs: Any
    workload: Workload
    variables: Mapping[str, tf.Variable]
    kept: Mapping[str, str]
    place: Callable[[Callable[[str], str], Iterable[HostCopy]], Any]

    @property
    def is_model(self) -> bool:
        """True if the target is a Keras model."""
        return is_keras_model(self.target)

    @property
    def batch_size(self) -> int | None:
        """The number of examples in the batch of a model; None if it cannot be told."""
        if not self.is_model:
            return None
        leaves = tf.nest.flatten(self.example_inputs)
        shapes = [tf.TensorShape(leaf.shape) for leaf in leaves if hasattr(leaf, "shape")]
        sizes = {shape[0] for shape in shapes if shape.rank}
        return sizes.pop() if len(sizes) == 1 else None


def is_traceable(target: Any) -> bool:
    """Says whether something is a tf.function, a ConcreteFunction or a Keras model."""
    kinds = (tf.types.experimental.ConcreteFunction, tf.types.experimental.GenericFunction)
    return isinstance(target, kinds) or is_keras_model(target)


def trace_call(target: Any, example_inputs: Any, *, read_values: bool = True) -> TracedCall:
    """Traces one call without running it; no variable changes.

    Called functions are inlined, so that their operations can be placed one by one. If that fails,
    each call is one operation.

    Args:
        target: a tf.function, a ConcreteFunction, or a compiled Keras model.
        example_inputs: a tuple of the arguments of the call, or its only argument; for a model,
            a batch as `fit` takes it: (x, y), (x, y, sample_weight) or x; or a data set, whose
            first batch is taken.
        read_values: whether to copy the values of variables, which running the step needs.

    Returns:
        The traced call.

    Raises:
        GraphError: the call cannot be traced, is compiled by XLA, uses a resource that cannot be
            copied into a session, such as a queue, or takes elements from an iterator whose
            elements cannot be read in advance.
    """
    _check_context()
    if is_keras_model(target):
        check_training(target)
        if isinstance(example_inputs, tf.data.Dataset):
            example_inputs = take_batch(example_inputs)
        # The step takes the batch as one argument.
        step, batch = convert_train_step(target), convert_arrays(example_inputs)
        try:
            build_variables(target, batch)
            return _trace(target, step, (batch,), example_inputs, read_values, autograph=False)
        except GraphError as error:
            advice = _advise_on_batch(batch)
            if advice is None:
                raise
            raise GraphError(join_sentences(str(error).rstrip("."), advice)) from error
    arguments = convert_arrays(
        example_inputs if isinstance(example_inputs, tuple) else (example_inputs,)
    )
    if isinstance(target, tf.types.experimental.ConcreteFunction):
        return TracedCall(
            target,
            example_inputs,
            *_build_workload(target, arguments, read_values, _name(target)),
            functools.partial(place_concrete_function, target),
        )
    if target._jit_compile:
        raise GraphError(
            f"{_name(target)} is compiled by XLA, which runs it on one device: make it a "
            "tf.function without jit_compile"
        )
    try:
        # Creates the variables that the first call would create.
        target.get_concrete_function(*arguments)
    except (TypeError, ValueError) as error:
        raise GraphError(
            f"{_name(target)} cannot be called with this example: {_first_line(error)}"
        ) from error
    return _trace(
        target,
        target.python_function,
        arguments,
        example_inputs,
        read_values,
        autograph=target._autograph,
        input_signature=target.input_signature,
    )


def _check_context() -> None:
    """Checks that tracing works here: eagerly and with gradients."""
    if not tf.executing_eagerly():
        raise GraphError(
            "functions and models need eager execution, TensorFlow 2's default: neither inside of "
            "`with graph.as_default()` or a function that is being traced, nor after "
            "disable_eager_execution()"
        )
    with tf.GradientTape() as tape:
        one = tf.constant(1.0)
        tape.watch(one)
        same = tf.identity(one)
    if tape.gradient(same, one) is None:
        raise GraphError(
            "functions and models have no gradients inside of tf.init_scope() or "
            "tape.stop_recording(): place them outside of it"
        )


def _advise_on_batch(batch: Any) -> str | None:
    """Says what a batch of a model is, if the given one looks like something else."""
    for part in tf.nest.flatten(batch):
        if tf.is_tensor(part) or isinstance(part, str | bytes):
            continue
        first = None
        if isinstance(part, Iterator):
            first = "next(data)"
        elif hasattr(part, "__getitem__") and hasattr(part, "__len__"):
            first = "data[0]"
        if first is not None:
            return (
                "the example of a model is one batch, such as (x, y), or a tf.data.Dataset: if "
                f"what is of type {type(part).__name__} gives batches, pass {first}"
            )
    if not isinstance(batch, tuple):
        return "the example is x alone: pass (x, y) if the training step needs y"
    return None


def _trace(
    target: Any,
    function: Callable[..., Any],
    arguments: Sequence[Any],
    example_inputs: Any,
    read_values: bool,
    **options: Any,
) -> TracedCall:
    place: Callable[..., Any] = functools.partial(place_function, function, **options)
    for inline in (True, False):
        try:
            is_model = is_keras_model(target)
            if is_model:
                _build_optimizer(target)
            before = _count_variables(target) if is_model else 0
            concrete = place(_no_device, inline=inline).get_concrete_function(*arguments)
            if is_model and _count_variables(target) != before:
                # The first trace has created variables, such as those of metrics.
                concrete = place(_no_device, inline=inline).get_concrete_function(*arguments)
            break
        except Exception as error:
            if not inline:
                raise GraphError(
                    f"{_name(target)} cannot be traced with this example: {_first_line(error)}"
                ) from error
    return TracedCall(
        target,
        example_inputs,
        *_build_workload(concrete, arguments, read_values, _name(target)),
        functools.partial(place, inline=inline),
    )


def _build_optimizer(model: Any) -> None:
    """Creates the optimizer's variables, as Keras's own training does before its first step.

    If a trace created them, TensorFlow would trace twice. A training step of the user may have
    other variables than the model's.
    """
    optimizer = model.optimizer
    if not has_own_step(model) and not getattr(optimizer, "built", True):
        optimizer.build(model.trainable_variables)


def _count_variables(model: Any) -> int:
    """Counts the variables of a model, its metrics and its optimizer."""
    owners = [model, *getattr(model, "metrics", ()), model.optimizer]
    # Optimizers of Keras 2 have a method.
    found = [getattr(owner, "variables", ()) for owner in owners]
    return sum(len(each() if callable(each) else each) for each in found)


def _no_device(name: str) -> str:
    del name
    return ""


def _build_workload(
    concrete: Any, arguments: Sequence[Any], read_values: bool, name: str
) -> tuple[Workload, dict[str, tf.Variable], dict[str, str]]:
    """Builds a graph with the variables of a function; arguments and iterators become feeds.

    Returns:
        `workload`, `variables` and `kept` of a `TracedCall`.
    """
    graph_def = concrete.graph.as_graph_def()
    nodes = {node.name: node for node in graph_def.node}
    captured = concrete.captured_inputs
    num_given = len(concrete.inputs) - len(captured)
    given = _flatten_arguments(arguments)
    if len(given) != num_given:
        raise GraphError(
            f"the function takes {num_given} tensors, but the example has {len(given)}"
        )
    feeds: dict[str, np.ndarray] = {}
    variables: dict[str, tf.Variable] = {}
    names: dict[int, str] = {}
    twice: dict[str, str] = {}
    kept: dict[str, str] = {}
    outside: set[str] = set()
    initializers: list[str] = []
    leaves = tf.nest.flatten(list(arguments))
    passed = [leaf for leaf in leaves if isinstance(leaf, tf.Variable)]
    by_handle = {id(variable.handle): variable for variable in (*concrete.graph.variables, *passed)}
    by_handle |= find_handle_variables(
        [each for each in captured if each.dtype == tf.resource and id(each) not in by_handle]
    )
    for inner, value in zip(concrete.inputs, [*given, *captured], strict=True):
        variable = by_handle.get(id(value))
        if id(value) in names:
            twice[inner.op.name] = names[id(value)]
        elif variable is not None:
            names[id(value)] = inner.op.name
            variables[inner.op.name] = variable
            _convert_to_variable(nodes[inner.op.name], variable)
        elif (
            inner.dtype == tf.resource
            and (found := find_session_substitute(inner, value)) is not None
        ):
            kept |= dict.fromkeys(found.users, value.device)
            feeds |= found.feeds
            if found.table:
                nodes[inner.op.name].CopyFrom(found.table[0])
                graph_def.node.extend(found.table[1:])
                initializers.append(found.table[-1].name)
            else:
                outside |= found.users
        elif inner.dtype in _NOT_TENSORS or not hasattr(value, "numpy"):
            raise GraphError(f"{inner.op.name!r} is {_explain_refusal(inner)}")
        else:
            feeds[inner.name] = to_feed_value(value)
    outputs = [tensor.name for tensor in concrete.outputs if tensor.dtype not in _NOT_TENSORS]
    # Sorted, because the order changes from trace to trace.
    effects = sorted(
        operation.name
        for operation in concrete.graph.control_outputs
        if operation.name not in outside
    )
    fetches = tuple(dict.fromkeys([*outputs, *effects]))
    if not fetches:
        raise GraphError("the function returns nothing and changes nothing: there is no step")
    _exclude_operations(nodes, outside)
    _merge_duplicates(graph_def, twice)
    moved = {variable.device for variable in list_moved(variables.values())}
    _clear_variable_devices(graph_def, moved)
    op_graph = OpGraph.from_graph_def(graph_def, fetches, list(feeds))
    feeds = {name: value for name, value in feeds.items() if is_read(op_graph, name, fetches)}
    op_graph = op_graph.restrict(fetches, list(feeds))
    if unknown_sizes(op_graph):
        op_graph = op_graph.with_fed_values(feeds)
    values = {
        name: v.numpy()
        for name, v in variables.items()
        if read_values and op_graph.needed[op_graph.index[name]]
    }
    step = Step(fetches, feeds, tuple(initializers), restored=values)
    return Workload(op_graph, step, name=name), variables, kept


def _exclude_operations(nodes: Mapping[str, tf.compat.v1.NodeDef], names: Collection[str]) -> None:
    """Removes the devices of operations that sessions do not run, and control edges from them."""
    for name in names:
        # The device of the resource belongs to this process.
        nodes[name].device = nodes[nodes[name].input[0]].device = ""
    waited_for = {f"^{name}" for name in names}
    for node in nodes.values() if names else ():
        if not waited_for.isdisjoint(node.input):
            node.input[:] = [each for each in node.input if each not in waited_for]


def _merge_duplicates(graph_def: tf.compat.v1.GraphDef, twice: Mapping[str, str]) -> None:
    """Merges the arguments that stand for the same variable into one operation."""
    for index in reversed(range(len(graph_def.node) if twice else 0)):
        node = graph_def.node[index]
        if node.name in twice:
            del graph_def.node[index]
        else:
            node.input[:] = [twice.get(name, name) for name in node.input]


def _clear_variable_devices(graph_def: tf.compat.v1.GraphDef, moved: Collection[str]) -> None:
    """Removes from operations the devices of this process, and those that variables have moved to.

    No user writes such a name. `tf.group` and optimizers copy it from a variable, and variables are
    to move.
    """
    for nodes in (graph_def.node, *(function.node_def for function in graph_def.library.function)):
        for node in nodes:
            if node.device.startswith(_THIS_PROCESS) or node.device in moved:
                node.device = ""


def _convert_to_variable(node: tf.compat.v1.NodeDef, variable: tf.Variable) -> None:
    """Turns the argument of a function into the operation of a variable."""
    node.op = "VarHandleOp"
    node.attr.clear()
    node.attr["dtype"].type = variable.dtype.as_datatype_enum
    node.attr["shape"].shape.CopyFrom(variable.shape.as_proto())
    node.attr["shared_name"].s = node.name.encode()
    node.attr[VARIABLE_NAME_ATTR].s = variable.name.removesuffix(":0").encode()


def _flatten_arguments(arguments: Sequence[Any]) -> list[tf.Tensor]:
    flat = tf.nest.flatten(list(arguments), expand_composites=True)
    # A variable that is passed twice is one argument of the function.
    handles = {id(leaf.handle): leaf.handle for leaf in flat if isinstance(leaf, tf.Variable)}
    flat = [
        handles.pop(id(leaf.handle), None) if isinstance(leaf, tf.Variable) else leaf
        for leaf in flat
    ]
    return [leaf for leaf in flat if isinstance(leaf, tf.Tensor)]


def _explain_refusal(inner: tf.Tensor) -> str:
    """Explains why a captured input cannot be supported, and the remedy."""
    if any("Dataset" in operation.type for operation in inner.consumers()):
        return (
            "a data set that the function goes through: only what it does with a batch can be "
            "placed; have a loop outside call a tf.function for each batch"
        )
    kind = "resource" if inner.dtype in _NOT_TENSORS else "tensor of another graph"
    return (
        f"a {kind} that the function takes from outside: only variables, tensors, tables and "
        "iterators can be, and of the latter two only what it takes outside of loops; pass what it "
        "gives as an argument"
    )


def _name(target: Any) -> str:
    if is_keras_model(target):
        return f"the model {target.name!r}"
    return f"the function {getattr(target, '__name__', None) or type(target).__name__!r}"


def _first_line(error: BaseException) -> str:
    text = str(error).strip()
    return text.splitlines()[0] if text else type(error).__name__
