"""A graph that computes the same values under every placement and whose variables can be read."""

from __future__ import annotations

import dataclasses
import math
import os
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.framework import op_def_registry

from tf_placer.environments.loaded_graph import LoadedGraph
from tf_placer.environments.tensor_file import write_tensors
from tf_placer.inputs.step import QueueRunner

__all__ = ["ProbedGraph", "fill_in_order", "seed_random_operations"]

_MAX_VARIABLE_BYTES = 256 * 2**20
_REF_VARIABLES = frozenset({"AutoReloadVariable", "Variable", "VariableV2"})


@dataclasses.dataclass(frozen=True)
class _VariableProbe:
    """Tensors that read a variable: whether it is initialized, and its value."""

    name: str
    initialized: str
    value: str


class ProbedGraph(LoadedGraph):
    """A copy of a graph whose random operations all have seeds and whose variables can be read."""

    def __init__(
        self, graph_def: tf.compat.v1.GraphDef, *, fetches: Sequence[str], **settings: Any
    ) -> None:
        """Imports a changed copy of a graph.

        Args:
            graph_def: the graph; it is not changed.
            fetches: names of operations and tensors that a step runs.
            **settings: the other arguments of `LoadedGraph`.
        """
        copy = tf.compat.v1.GraphDef()
        copy.CopyFrom(graph_def)
        seed_random_operations(copy)
        settings["queue_runners"] = fill_in_order(copy, settings.get("queue_runners", ()))
        self._probes = _add_probes(copy, fetches)
        self._tensor_names = [name for name in fetches if ":" in name]
        self._tensor_indices = [i for i, name in enumerate(fetches) if ":" in name]
        super().__init__(copy, fetches=fetches, **settings)

    def write_values(
        self,
        assignment: Mapping[str, str],
        steps: int,
        path: str | os.PathLike[str],
        timeout_secs: float,
        report_stage: Callable[[str], None],
        tensors: Sequence[str] = (),
        *,
        alone: bool = False,
    ) -> None:
        """Runs steps under a placement and writes their values.

        Args:
            assignment: full device names by operation name.
            steps: number of steps to run.
            path: file for the fetched tensors of each step ("loss:0@1") and, after the last step,
                the variables that the step needs (by name of the operation).
            timeout_secs: limit of every single run.
            report_stage: called with the name of each stage when it begins.
            tensors: names of additional tensors to fetch in each step.
            alone: whether the steps run in this process, without GPUs.

        Raises:
            SessionFailed: TensorFlow raised an exception.
        """
        values: dict[str, np.ndarray] = {}
        alone_on = sorted(os.sched_getaffinity(0)) if alone else None
        with self.open(assignment, timeout_secs, report_stage, alone_on) as opened:
            opened.enter("the steps")
            for number in range(1, steps + 1):
                if tensors:
                    fetched, others = self.run_with(opened.session, tensors)
                    values.update((f"{name}@{number}", others[name]) for name in tensors)
                else:
                    _, fetched = opened.step()
                for name, index in zip(self._tensor_names, self._tensor_indices, strict=True):
                    values[f"{name}@{number}"] = fetched[index]
            opened.enter("reading the variables")
            session = opened.session
            initialized = session.run([probe.initialized for probe in self._probes])
            readable = [p for p, ready in zip(self._probes, initialized, strict=True) if ready]
            read = session.run([probe.value for probe in readable])
            values.update((p.name, value) for p, value in zip(readable, read, strict=True))
            write_tensors(path, values)


def seed_random_operations(graph_def: tf.compat.v1.GraphDef) -> None:
    """Gives every stateful random operation without a seed one that depends on its name alone.

    Seeds are attributes of operations and inputs of datasets; both are found in the graph and in
    its functions. An operation with any seed keeps it.

    Args:
        graph_def: changed in place.
    """
    _seed_nodes(graph_def.node, "", "")
    for function in graph_def.library.function:
        _seed_nodes(function.node_def, function.signature.name + "/", ":output:0")


def fill_in_order(
    graph_def: tf.compat.v1.GraphDef, runners: Sequence[QueueRunner]
) -> list[QueueRunner]:
    """Makes queues give the same values in every session.

    Several threads fill a queue in any order, and a shuffling queue draws from the elements that it
    holds at the time.

    Args:
        graph_def: changed in place: queues that shuffle become queues that do not.
        runners: the runners that fill the queues.

    Returns:
        The runners, each with its first operation only.
    """
    for node in graph_def.node:
        if node.op in ("RandomShuffleQueue", "RandomShuffleQueueV2"):
            node.op = node.op.replace("RandomShuffle", "FIFO")
            for name in ("min_after_dequeue", "seed", "seed2"):
                node.attr.pop(name, None)
    return [dataclasses.replace(runner, enqueue=runner.enqueue[:1]) for runner in runners]


def _seed_nodes(nodes: Any, scope: str, output_suffix: str) -> None:
    by_name = {node.name: node for node in nodes}
    seed_inputs = []
    for node in nodes:
        op_def = op_def_registry.get(node.op)
        if op_def is None:
            # The node calls one of the graph's functions, which are seeded themselves.
            continue
        seed = zlib.crc32((scope + node.name).encode()) or 1
        if {"seed", "seed2"} <= {attr.name for attr in op_def.attr}:
            # A missing attribute has its default, which is 0.
            if not any(name in node.attr and node.attr[name].i for name in ("seed", "seed2")):
                node.attr["seed"].i = seed
            continue
        arguments = [argument.name for argument in op_def.input_arg]
        if not {"seed", "seed2"} <= set(arguments):
            continue
        indices = [arguments.index("seed"), arguments.index("seed2")]
        if all(_is_zero(by_name, node.input[index]) for index in indices):
            seed_inputs.append((node, indices[0], seed))
    for node, index, seed in seed_inputs:
        constant = nodes.add(name=f"{node.name}/tf_placer_seed", op="Const")
        constant.attr["dtype"].type = tf.int64.as_datatype_enum
        constant.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(seed, tf.int64))
        node.input[index] = constant.name + output_suffix


def _is_zero(by_name: Mapping[str, Any], tensor_name: str) -> bool:
    node = by_name.get(tensor_name.split(":")[0])
    return (
        node is not None and node.op == "Const" and not tf.make_ndarray(node.attr["value"].tensor)
    )


def _add_probes(graph_def: tf.compat.v1.GraphDef, fetches: Sequence[str]) -> list[_VariableProbe]:
    """Adds operations that read the variables needed by the fetches, small variables first."""
    # The graph's own reads may sit in a loop or in a branch that is not taken.
    variables = sorted(
        (
            node
            for node in _find_needed_nodes(graph_def, fetches)
            if node.op == "VarHandleOp" or node.op in _REF_VARIABLES
        ),
        key=_compute_variable_bytes,
    )
    probes = []
    total_bytes = 0
    for node in variables:
        total_bytes += _compute_variable_bytes(node)
        if total_bytes > _MAX_VARIABLE_BYTES:
            break
        initialized = graph_def.node.add(name=f"{node.name}/tf_placer_initialized")
        initialized.input.append(node.name)
        if node.op == "VarHandleOp":
            initialized.op = "VarIsInitializedOp"
            value = graph_def.node.add(name=f"{node.name}/tf_placer_value", op="ReadVariableOp")
            value.input.append(node.name)
            value.attr["dtype"].CopyFrom(node.attr["dtype"])
        else:
            initialized.op = "IsVariableInitialized"
            initialized.attr["dtype"].CopyFrom(node.attr["dtype"])
            value = node
        probes.append(_VariableProbe(node.name, initialized.name + ":0", value.name + ":0"))
    return probes


def _find_needed_nodes(graph_def: tf.compat.v1.GraphDef, fetches: Sequence[str]) -> list[Any]:
    by_name = {node.name: node for node in graph_def.node}
    waiting = [name.split(":")[0] for name in fetches]
    needed: dict[str, Any] = {}
    while waiting:
        name = waiting.pop()
        if name in by_name and name not in needed:
            needed[name] = by_name[name]
            waiting += [tensor.lstrip("^").split(":")[0] for tensor in by_name[name].input]
    return list(needed.values())


def _compute_variable_bytes(node: Any) -> int:
    """Computes the size of a variable; unknown dimensions count as 1."""
    dimensions = [max(1, dim.size) for dim in node.attr["shape"].shape.dim]
    return math.prod(dimensions) * tf.dtypes.as_dtype(node.attr["dtype"].type).size
