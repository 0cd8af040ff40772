"""Operations that share a resource by its name: one of them reads what another one writes."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

import tensorflow as tf

from benchmarks.zoo.graph_parts import (
    Kinds,
    StepGraph,
    counter,
    make_training,
    new_graph,
    perceptron,
)

tf1 = tf.compat.v1
raw = tf.raw_ops

__all__ = ["KINDS"]

KINDS = Kinds()

# The type of TensorFlow's random generators.
_PHILOX = 1
_ANY_STEP = 1000


def _make_scaling(
    scale: tf.Tensor,
    update: Callable[[], tf.Operation] | None = None,
    initializers: Sequence[tf.Operation] = (),
) -> StepGraph:
    """Trains a perceptron whose inputs are scaled by what a resource holds.

    Args:
        scale: what was read of the resource.
        update: adds what is done with the resource when the loss is known.
        initializers: of the resource.
    """
    scale = tf.reshape(scale, [])
    loss, feeds = perceptron(scale)
    updated: tuple[str, ...] = ()
    if update is not None:
        with tf.control_dependencies([loss]):
            updated = (update().name,)
    trainer = tf1.train.GradientDescentOptimizer(0.3)
    step = make_training(loss, trainer, feeds, initializers)
    return dataclasses.replace(step, fetches=(*step.fetches, scale.name, *updated))


def _variables(v2: bool, names: Sequence[str], **attributes: str) -> list[tf.Tensor]:
    """Makes operations for variables of one number: handles or references."""
    make = raw.VarHandleOp if v2 else raw.VariableV2
    return [make(dtype=tf.float32, shape=[], name=name, **attributes) for name in names]


def _read(variable: tf.Tensor) -> tf.Tensor:
    if variable.dtype == tf.resource:
        return raw.ReadVariableOp(resource=variable, dtype=tf.float32)
    return tf.identity(variable)


def _assign(variable: tf.Tensor, value: tf.Tensor | float) -> tf.Operation:
    name = f"{variable.op.name}/Assign"
    if variable.dtype == tf.resource:
        return raw.AssignVariableOp(resource=variable, value=value, name=name)
    return tf1.assign(variable, value, name=name).op


@KINDS.both
def imported_twice(v2: bool) -> StepGraph:
    """Trains one copy of a network and evaluates another, which have the same variables."""
    with new_graph(v2=v2) as part:
        _, feeds = perceptron(1.0)
        names = [each.op.name for each in tf1.trainable_variables()]
        initializer = tf1.global_variables_initializer().name
        graph_def = part.as_graph_def()
    for node in graph_def.node:
        if node.name in names:
            node.attr["shared_name"].s = node.name.encode()
    scopes = ("trained", "evaluated")
    for scope in scopes:
        tf.graph_util.import_graph_def(graph_def, name=scope)
    graph = tf1.get_default_graph()
    loss, other_loss = (graph.get_tensor_by_name(f"{scope}/loss:0") for scope in scopes)
    variables = [graph.get_tensor_by_name(f"trained/{name}:0") for name in names]
    gradients = tf.tuple(tf.gradients(loss, variables), control_inputs=[loss, other_loss])
    update = raw.ResourceApplyGradientDescent if v2 else raw.ApplyGradientDescent
    with tf.control_dependencies(gradients):
        for name, variable, gradient in zip(names, variables, gradients, strict=True):
            update(var=variable, alpha=0.3, delta=gradient, name=f"update_{name}")
    updates = [graph.get_operation_by_name(f"update_{name}") for name in names]
    fetches = (tf.group(*updates, name="train").name, loss.name, other_loss.name)
    fed = {f"{scope}/{name}": value for scope in scopes for name, value in feeds.items()}
    return StepGraph(graph, fetches, fed, (f"trained/{initializer}",))


@KINDS.both
def variable_of_two_names(v2: bool) -> StepGraph:
    """Counts by one operation and reads by another, beside a variable of another container."""
    count, read = _variables(v2, ("count", "read"), shared_name="count")
    (apart,) = _variables(v2, ("apart",), shared_name="count", container="apart")
    first = [_assign(count, 1.0), _assign(apart, 10.0)]
    scale = _read(read) * _read(apart) / 10.0
    return _make_scaling(scale, lambda: _assign(count, _read(read) + 1.0), first)


@KINDS.v1
def variable_by_name_of_operation() -> StepGraph:
    """Reads a reference variable without a shared name by the name of its operation."""
    (count,) = _variables(False, ("count",))
    (read,) = _variables(False, ("read",), shared_name="count")
    first = _assign(count, 1.0)
    return _make_scaling(_read(read), lambda: _assign(count, count + 1.0), [first])


@KINDS.v2
def handles_without_names() -> StepGraph:
    """Counts by handles without a shared name, which all are of one variable."""
    count, read = _variables(True, ("count", "read"))
    first = _assign(count, 1.0)
    return _make_scaling(_read(read), lambda: _assign(count, _read(read) + 1.0), [first])


@KINDS.v2
def variable_in_a_function() -> StepGraph:
    """Reads and counts up a variable in functions, which find it by its name."""
    (count,) = _variables(True, ("count",), shared_name="count")
    first = _assign(count, 1.0)

    def hold_variable() -> tf.Tensor:
        return _variables(True, ("inner",), shared_name="count")[0]

    @tf.function(autograph=False)
    def read() -> tf.Tensor:
        return _read(hold_variable()) + 0.5

    @tf.function(autograph=False)
    def add(value: tf.Tensor) -> tf.Tensor:
        raw.AssignAddVariableOp(resource=hold_variable(), value=value)
        return value + 1.0

    return _make_scaling(read(), lambda: add(tf.constant(1.0)).op, [first])


@KINDS.v2
def generator_of_two_handles() -> StepGraph:
    """Draws random numbers by one handle of a generator's state, and skips some by another."""
    state, other = (
        raw.VarHandleOp(dtype=tf.int64, shape=[3], shared_name="state", name=name)
        for name in ("state", "other")
    )
    seed = tf.constant([1, 2, 3], tf.int64)
    first = raw.AssignVariableOp(resource=state, value=seed, name="state/Assign")
    drawn = raw.StatefulUniform(
        resource=other,
        algorithm=tf.constant(_PHILOX, tf.int64),
        shape=tf.constant([], tf.int64),
        dtype=tf.float32,
    )
    algorithm, skipped = tf.constant(_PHILOX, tf.int64), tf.constant(256, tf.int64)
    return _make_scaling(
        drawn + 1.0,
        lambda: raw.RngSkip(resource=state, algorithm=algorithm, delta=skipped),
        [first],
    )


@KINDS.both
def accumulators_of_one_name(v2: bool) -> StepGraph:
    """Adds up gradients in an accumulator and takes them from another of the same name."""
    gradient = counter("number", tf.float32).assign_add(1.0)
    if v2:
        given, taken = (
            raw.ResourceConditionalAccumulator(dtype=tf.float32, shape=[], shared_name="sum")
            for _ in range(2)
        )
        apply = raw.ResourceAccumulatorApplyGradient(
            handle=given, local_step=_ANY_STEP, gradient=gradient
        )
        with tf.control_dependencies([apply]):
            scale = raw.ResourceAccumulatorTakeGradient(
                handle=taken, num_required=1, dtype=tf.float32
            )
    else:
        given, taken = (
            raw.ConditionalAccumulator(dtype=tf.float32, shape=[], shared_name="sum")
            for _ in range(2)
        )
        apply = raw.AccumulatorApplyGradient(handle=given, local_step=_ANY_STEP, gradient=gradient)
        with tf.control_dependencies([apply]):
            scale = raw.AccumulatorTakeGradient(handle=taken, num_required=1, dtype=tf.float32)
    return _make_scaling(scale)


@KINDS.v1
def queues_of_one_name() -> StepGraph:
    """Puts numbers into a queue, a barrier and stages, and takes them out by other operations."""
    number = counter("number", tf.float32).assign_add(1.0)
    enqueued, dequeued = (
        raw.FIFOQueueV2(component_types=[tf.float32], shared_name="queue") for _ in range(2)
    )
    inserted, taken = (
        raw.Barrier(component_types=[tf.float32], shapes=[[]], shared_name="barrier")
        for _ in range(2)
    )
    key = tf.constant(7, tf.int64)
    puts = [
        raw.QueueEnqueueV2(handle=enqueued, components=[number]),
        raw.BarrierInsertMany(
            handle=inserted,
            keys=tf.strings.as_string(number)[None],
            values=number[None],
            component_index=0,
        ),
        raw.Stage(values=[number], name="stage"),
        raw.MapStage(key=key, indices=[0], values=[number], dtypes=[tf.float32], shared_name="map"),
    ]
    with tf.control_dependencies(puts):
        found = [
            raw.QueueDequeueV2(handle=dequeued, component_types=[tf.float32])[0],
            raw.BarrierTakeMany(handle=taken, num_elements=1, component_types=[tf.float32]).values[
                0
            ][0],
            raw.Unstage(dtypes=[tf.float32], shared_name="stage")[0],
            raw.MapUnstage(key=key, indices=[0], dtypes=[tf.float32], shared_name="map")[0],
        ]
    return _make_scaling(tf.add_n(found))


@KINDS.v2
def tables_of_one_name() -> StepGraph:
    """Fills tables, one once and one in each step, and reads others of the same names."""
    types = {"key_dtype": tf.int64, "value_dtype": tf.float32}
    key = tf.constant([1], tf.int64)
    filled, static = (raw.HashTableV2(**types, shared_name="static") for _ in range(2))
    first = raw.InitializeTableV2(table_handle=filled, keys=key, values=[3.0])
    tf1.add_to_collection(tf1.GraphKeys.TABLE_INITIALIZERS, first)
    written, read = (raw.MutableHashTableV2(**types, shared_name="count") for _ in range(2))
    found = raw.LookupTableFindV2(table_handle=read, keys=key, default_value=1.0)
    scale = found[0] * raw.LookupTableFindV2(table_handle=static, keys=key, default_value=0.0)
    return _make_scaling(
        scale,
        lambda: raw.LookupTableInsertV2(table_handle=written, keys=key, values=found + 1.0),
    )


@KINDS.v2
def iterators_of_one_name() -> StepGraph:
    """Takes from an iterator what was given to another one of the same name."""
    data = tf1.data.Dataset.range(1, 9).repeat().map(lambda number: tf.cast(number, tf.float32))
    made, taken = (
        raw.IteratorV2(
            shared_name="numbers", container="", output_types=[tf.float32], output_shapes=[[]]
        )
        for _ in range(2)
    )
    first = raw.MakeIterator(dataset=data._variant_tensor, iterator=made)
    (scale,) = raw.IteratorGetNext(iterator=taken, output_types=[tf.float32], output_shapes=[[]])
    return _make_scaling(scale, initializers=[first])


@KINDS.v1
def sparse_tensors_by_name() -> StepGraph:
    """Keeps a sparse tensor under the name of the operation that keeps it."""
    number = counter("number", tf.float32).assign_add(1.0)
    kept = raw.AddSparseToTensorsMap(
        sparse_indices=[[0]], sparse_values=number[None], sparse_shape=[1], name="kept"
    )
    taken = raw.TakeManySparseFromTensorsMap(
        sparse_handles=kept[None], dtype=tf.float32, shared_name="kept"
    )
    return _make_scaling(taken.sparse_values[0])
