"""Shows that the native pass puts operations where a placement says.

Graphs of the zoo are placed at random, once by the pass and once by their device fields: the
operations must run on the same devices, as TensorFlow's partition graphs tell, and on those of the
placement. Five kinds of functions are traced, placed at random by the pass, and must compute what
they compute without it.
"""

from __future__ import annotations

import argparse
import os
import re
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np
import tensorflow as tf
from tensorflow.python.eager import context
from tensorflow.python.framework import op_def_registry

from benchmarks.zoo.catalogue import KINDS
from benchmarks.zoo.placed_runs import PlacedGraph, device_names
from tf_placer.native_pass.loading import place
from tf_placer.text.table import table

__all__ = ["main"]

_DEVICES = device_names(2)
_SIZE = 8
# Loops are taken apart, and handles are where their variable is.
_NOT_PLACED = ("Identity", "NoOp", "StatelessWhile")


def place_graph(kind: str) -> list[str]:
    """Places a graph of the zoo at random; a row of the table."""
    placed = PlacedGraph(KINDS[kind](), num_devices=len(_DEVICES))
    row = placed.random_placement(np.random.default_rng(zlib.crc32(kind.encode())))
    assignment = placed.grouped.assignment(row, placed.devices)
    place(assignment)
    try:
        by_pass = placed.devices_of_step({})
    finally:
        place({})
    by_fields = placed.devices_of_step(assignment)
    return [kind, str(len(assignment)), *_counts(assignment, by_pass), str(by_pass == by_fields)]


def place_function(name: str) -> list[str]:
    """Places a function at random; a row of the table."""
    make, pattern = _FUNCTIONS[name]
    # What was traced lives as long as this.
    function = make()
    expected = function()
    random = np.random.default_rng(zlib.crc32(name.encode()))
    assignment = {
        node.name: _DEVICES[random.integers(len(_DEVICES))]
        for node in _last_traced(pattern).node_def
        if node.op not in _NOT_PLACED and not op_def_registry.get(node.op).is_stateful
    }
    place(assignment)
    try:
        nodes = _devices_of_call(make())
        computed = make()()
    finally:
        place({})
    ran = {}
    for node, device in nodes.items():
        # Behind the name of the operation that calls the function.
        parts = node.split("/")
        suffixes = ("/".join(parts[i:]) for i in range(len(parts)))
        named = next((suffix for suffix in suffixes if suffix in assignment), None)
        if named is not None:
            ran[named] = device
    same = all(
        np.array_equal(one, other)
        for one, other in zip(tf.nest.flatten(expected), tf.nest.flatten(computed), strict=True)
    )
    return [name, str(len(assignment)), *_counts(assignment, ran), str(same)]


def _last_traced(pattern: str) -> Any:
    """Finds the function of such a name that was traced last."""
    names = [
        name if isinstance(name, str) else name.decode()
        for name in context.context().list_function_names()
    ]
    found = [name for name in names if re.match(f"__inference_.*({pattern})", name)]
    last = max(found, key=lambda name: int(name.rpartition("_")[2]))
    return context.context().get_function_def(last)


def _counts(assignment: Mapping[str, str], ran: Mapping[str, str]) -> list[str]:
    """Counts the placed operations that ran, those on the second device, and those elsewhere."""
    shared = assignment.keys() & ran.keys()
    second = sum(ran[name] == _DEVICES[1] for name in shared)
    elsewhere = sum(ran[name] != assignment[name] for name in shared)
    return [str(len(shared)), str(second), str(elsewhere)]


def _devices_of_call(call: Callable[[], Any]) -> dict[str, str]:
    """Calls a function and finds where each operation ran."""
    context.enable_run_metadata()
    context.enable_graph_collection()
    try:
        # What ran before is not asked for.
        context.export_run_metadata()
        call()
        metadata = context.export_run_metadata()
    finally:
        context.disable_graph_collection()
        context.disable_run_metadata()
    return {node.name: node.device for part in metadata.partition_graphs for node in part.node}


def _value() -> tf.Tensor:
    random = np.random.default_rng(7)
    return tf.constant(random.standard_normal([_SIZE, _SIZE]).astype(np.float32) / _SIZE)


def _layers(value: tf.Tensor) -> tf.Tensor:
    return tf.tanh(tf.matmul(tf.nn.relu(value), value)) + tf.exp(-value)


def _plain() -> Callable[[], Any]:
    function = tf.function(_layers)
    return lambda: function(_value())


def _nested() -> Callable[[], Any]:
    inner = tf.function(_layers)
    middle = tf.function(lambda value: inner(inner(value)) + 1.0)
    outer = tf.function(lambda value: 2.0 * middle(value))
    return lambda: outer(_value())


def _while_loop() -> Callable[[], Any]:
    inner = tf.function(_layers)

    @tf.function
    def loop(value: tf.Tensor, count: tf.Tensor) -> tf.Tensor:
        for _ in tf.range(count):
            value = inner(value)
        return value

    return lambda: loop(_value(), tf.constant(3))


def _captured() -> Callable[[], Any]:
    variable = tf.Variable(_value())

    @tf.function
    def captured_step(value: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(_layers(tf.matmul(value, variable)))
        variable.assign_sub(0.1 * tape.gradient(loss, variable))
        return loss

    return lambda: (captured_step(_value()), variable.numpy())


def _keras() -> Callable[[], Any]:
    # Names as in a process of its own.
    tf.keras.backend.clear_session()
    tf.keras.utils.set_random_seed(7)
    given = tf.keras.Input([_SIZE])
    towers = [tf.keras.layers.Dense(16, "relu", name=f"tower_{i}")(given) for i in range(2)]
    result = tf.keras.layers.Dense(1, name="joined")(tf.keras.layers.concatenate(towers))
    model = tf.keras.Model(given, result, name="model")
    model.compile("adam", "mse", jit_compile=False)

    def fit() -> Any:
        labels = np.ones([_SIZE, 1], np.float32)
        model.fit(_value().numpy(), labels, batch_size=_SIZE, epochs=2, verbose=0)
        return model.get_weights()

    return fit


#: By name what makes a function, anew each time, and a pattern of the name of what is placed: in
#: Keras 2 the training step is inlined when it is traced.
_FUNCTIONS: Mapping[str, tuple[Callable[[], Callable[[], Any]], str]] = {
    "function": (_plain, "_layers_"),
    "functions in functions": (_nested, "_layers_"),
    "function in a loop": (_while_loop, "_layers_"),
    "captured variables": (_captured, "captured_step"),
    "training step of Keras": (_keras, "one_step_on_data|train_function"),
}


def main(argv: Sequence[str] | None = None) -> None:
    """Places graphs and functions and prints two tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--graphs", type=int, default=20, help="default %(default)s")
    args = parser.parse_args(argv)

    (cpu,) = tf.config.list_physical_devices("CPU")
    tf.config.set_logical_device_configuration(
        cpu, [tf.config.LogicalDeviceConfiguration()] * len(_DEVICES)
    )
    tf.config.set_soft_device_placement(False)
    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
    columns = ["placed", "of them ran", "on the second", "elsewhere"]
    functions = [place_function(name) for name in _FUNCTIONS]
    # All over the zoo.
    kinds = [*KINDS][:: max(1, len(KINDS) // args.graphs)][: args.graphs]
    graphs = [place_graph(kind) for kind in kinds]
    print(table(["graph", *columns, "as by device fields"], graphs, "lrrrrr"))
    print()
    print(table(["function", *columns, "same values"], functions, "lrrrrr"))


if __name__ == "__main__":
    main()
