"""Runs graphs on emulated GPUs, and prints the results as JSON.

Run by `emulated_gpu_test.py` with the environment of an emulated machine.
"""

from __future__ import annotations

import json
import pathlib
import resource
import sys
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import tf_placer
from graph_passes.host_copies import AddHostCopies
from graph_passes.pipeline import group_operations
from tests import graphs
from tests.tf_placer.costs import deep_training
from tf_placer.costs.costed_graph import estimate_costs
from tf_placer.costs.host_copies import choose_host_copies
from tf_placer.inputs.workload import read_workload
from tf_placer.machines.catalog import make_described_machine
from tf_placer.problem.memory_limits import limit_problem
from tf_placer.simulation.simulator import Simulator

tf1 = tf.compat.v1
_PREFIX = "/job:localhost/replica:0/task:0/device:"
DEVICES = (f"{_PREFIX}CPU:0", f"{_PREFIX}GPU:0", f"{_PREFIX}GPU:1")
#: Graphs with kernels and copies of all kinds.
VALUES_OF = ("v1_ref_variables", "resource_variables", "small_convnet", "lstm", "while_loop_v2")
_PLACEMENTS = 3
_CONFIG = tf1.ConfigProto(allow_soft_placement=False)
_CONFIG.graph_options.rewrite_options.disable_meta_optimizer = True
# Disable constant folding, which would compute constants before the step.
_CONFIG.graph_options.optimizer_options.opt_level = tf1.OptimizerOptions.L0


def compare_values() -> dict[str, list[bool]]:
    """Runs random placements of each graph, and tells if each computes the bits of the CPU."""
    random = np.random.default_rng(0)
    equal = {}
    for name in VALUES_OF:
        made = graphs.share_graph(name)
        workload = read_workload(made.graph, made.fetches, made.feeds)
        grouped = group_operations(workload.op_graph)
        legal = grouped.grouping.legal_devices(grouped.colocation, DEVICES)
        expected = _steps(workload, {})
        equal[name] = []
        for _ in range(_PLACEMENTS):
            placement = np.where(legal, random.random(legal.shape), -1.0).argmax(axis=1)
            computed = _steps(workload, grouped.assignment(placement.astype(np.int32), DEVICES))
            equal[name].append(computed == expected)
    return equal


def optimize_convolutions() -> list[list[float]]:
    """Runs convolutions on a GPU with TensorFlow's optimizations, and on the CPU without."""
    made = graphs.share_graph("small_convnet")
    workload = read_workload(made.graph, made.fetches, made.feeds)
    grouped = group_operations(workload.op_graph)
    legal = grouped.grouping.legal_devices(grouped.colocation, DEVICES)
    on_gpu = np.where(legal[:, 1], 1, 0).astype(np.int32)
    placed = _steps(workload, grouped.assignment(on_gpu, DEVICES), tf1.ConfigProto())
    return [
        np.frombuffer(b"".join(each[0] for each in steps), np.float32).tolist()
        for steps in (placed, _steps(workload, {}))
    ]


def _steps(
    workload: Any, assignment: dict[str, str], config: tf1.ConfigProto = _CONFIG
) -> list[list[bytes]]:
    graph_def = tf1.GraphDef.FromString(workload.graph_def.SerializeToString())
    for node in graph_def.node:
        node.device = assignment.get(node.name, DEVICES[0] if not assignment else "")
    with tf.Graph().as_default() as graph:
        tf.import_graph_def(graph_def, name="")
    step = workload.step
    with tf1.Session(graph=graph, config=config) as session:
        session.run(list(step.initializers), step.initializer_feeds)
        fetches = [name for name in step.fetches if ":" in name]
        operations = [name for name in step.fetches if ":" not in name]
        values = [session.run((fetches, operations), step.feeds)[0] for _ in range(3)]
    return [[np.asarray(value).tobytes() for value in each] for each in values]


def trace_step() -> dict[str, Any]:
    """Traces a step of a convolutional network, and returns the times in microseconds."""
    made = graphs.share_graph("small_convnet")
    workload = read_workload(made.graph, made.fetches, made.feeds)
    graph_def = tf1.GraphDef.FromString(workload.graph_def.SerializeToString())
    grouped = group_operations(workload.op_graph)
    legal = grouped.grouping.legal_devices(grouped.colocation, DEVICES)
    placement = np.where(legal[:, 1], 1, 0).astype(np.int32)
    assignment = grouped.assignment(placement, DEVICES)
    for node in graph_def.node:
        node.device = assignment.get(node.name, "")
    with tf.Graph().as_default() as graph:
        tf.import_graph_def(graph_def, name="")
    options, metadata = tf1.RunOptions(trace_level=tf1.RunOptions.FULL_TRACE), tf1.RunMetadata()
    with tf1.Session(graph=graph, config=_CONFIG) as session:
        session.run(list(workload.step.initializers), workload.step.initializer_feeds)
        session.run(workload.step.fetches, workload.step.feeds)
        session.run(workload.step.fetches, workload.step.feeds, options, metadata)
        limits = [device.memory_limit_bytes for device in session.list_devices()]
    kernels: dict[str, float] = {}
    copies = []
    for device in metadata.step_stats.dev_stats:
        for node in device.node_stats:
            if device.device.endswith("GPU:0/stream:all"):
                name = node.node_name.partition(":")[0]
                kernels[name] = kernels.get(name, 0) + node.all_end_rel_micros
            if device.device.endswith("GPU:0/memcpy"):
                copies.append((node.timeline_label, node.all_end_rel_micros))
    return {"kernels": kernels, "copies": copies, "memory_limits": limits}


def exhaust_memory() -> str:
    """Allocates a tensor that is larger than a GPU, and returns the error message."""
    with tf.Graph().as_default() as graph, tf.device("/GPU:0"):
        total = tf.reduce_sum(tf.random.normal([3, 1 << 30]))
    with tf1.Session(graph=graph, config=_CONFIG) as session:
        try:
            session.run(total)
        except tf.errors.ResourceExhaustedError as error:
            return error.message
    return ""


def touch_large_tensors() -> int:
    """Computes large tensors and conditions on a GPU, and returns the memory taken on the host."""
    with tf.Graph().as_default() as graph, tf.device("/GPU:0"):
        values = tf.random.normal([1 << 28])
        total = tf.reduce_sum(tf.where(values > 0.5, values, -values))
    with tf1.Session(graph=graph, config=_CONFIG) as session:
        before = _read_resident_bytes()
        session.run(total)
        return _read_resident_bytes() - before


def move_activations() -> list[dict[str, Any]]:
    """Runs a graph as it is and with activations on the CPU: peak memory, and bits of the losses.

    The simulator makes it fit into 70 % of the memory.
    """
    made = deep_training.build(batch=512, units=256, layers=12)
    workload = read_workload(made.graph, made.fetches, made.feeds)
    costed = estimate_costs(
        group_operations(workload.op_graph, "fine"), make_described_machine("1xK80")
    )
    problem, placement = costed.build_placed_problem(None)
    peak_bytes = int(Simulator(problem).trace(placement).peak_bytes[1])
    limited = limit_problem(problem, {"GPU:0": int(0.7 * peak_bytes)}, 0.0)
    found = choose_host_copies(workload.op_graph, limited, placement)
    assert found is not None
    results = []
    for graph_def in (workload.graph_def, AddHostCopies(found[1]).run(workload.graph_def)):
        with tf.Graph().as_default() as graph:
            tf.import_graph_def(graph_def, name="")
        tf.config.experimental.reset_memory_stats("GPU:0")
        # TensorFlow's own optimizations must not undo the copies.
        with tf1.Session(graph=graph) as session:
            session.run("init")
            losses = [session.run(["loss:0", "train"], made.feeds)[0] for _ in range(4)]
        peak = tf.config.experimental.get_memory_info("GPU:0")["peak"]
        results.append({"peak_bytes": peak, "losses": [float(loss).hex() for loss in losses]})
    return results


def offload_model() -> list[dict[str, Any]]:
    """Trains a Keras model, and then one whose activations wait on the CPU.

    Returns:
        For each, the peak memory of the GPU, and its losses, to the last bit.
    """
    x, y = np.random.default_rng(0).random([512, 256], np.float32), np.ones([512, 1], np.float32)
    results = []
    for max_memory in (None, {"GPU:0": "8MB"}):
        keras.utils.set_random_seed(0)
        layers = [keras.layers.Dense(256, "tanh") for _ in range(12)]
        model = keras.Sequential([keras.Input([256]), *layers, keras.layers.Dense(1)])
        model.compile("sgd", "mse", jit_compile=False)
        if max_memory is not None:
            problem = tf_placer.profile(model, example_inputs=(x, y), machine="2xK80")
            tf_placer.offload(model, problem, example_inputs=(x, y), max_memory=max_memory)
        tf.config.experimental.reset_memory_stats("GPU:0")
        before = tf.config.experimental.get_memory_info("GPU:0")["current"]
        losses = model.fit(x, y, 512, 4, verbose=0, shuffle=False).history["loss"]
        peak = tf.config.experimental.get_memory_info("GPU:0")["peak"] - before
        results.append({"peak_bytes": peak, "losses": [float(loss).hex() for loss in losses]})
    return results


def _read_resident_bytes() -> int:
    pages = int(pathlib.Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


if __name__ == "__main__":
    tests = {
        "values": compare_values,
        "convolutions": optimize_convolutions,
        "trace": trace_step,
        "memory": exhaust_memory,
        "touched": touch_large_tensors,
        "moved": move_activations,
        "offloaded": offload_model,
    }
    print(json.dumps({name: tests[name]() for name in sys.argv[1:]}))
