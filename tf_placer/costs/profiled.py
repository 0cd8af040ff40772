"""Costs from traced steps."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

import numpy as np

from graph_passes.functions import FunctionLibrary
from graph_passes.op_graph import OpGraph
from tf_placer.costs.operation_costs import OperationCosts
from tf_placer.environments.step_profile import StepProfile

__all__ = ["profiled_costs"]


def profiled_costs(
    graph: OpGraph, profiles: Sequence[StepProfile], whole_step_secs: Sequence[float | None]
) -> OperationCosts:
    """Computes the costs of operations as they were traced.

    Tracing costs time, and between two operations an executor has work to do that belongs to
    neither. So the seconds of all operations are scaled to add up to a step without a trace. The
    operations of a loop or a conditional that is one operation of the graph count for that one.
    What did not run in the traced steps, because TensorFlow had folded or merged it or because it
    lies in a branch that was not taken, costs nothing.

    Args:
        graph: the graph.
        profiles: for each device of the machine the profile of a step that ran on one like it.
        whole_step_secs: for each device the seconds of a step that runs all on it, on the machine
            itself; None for what the profile says.

    Returns:
        The costs. Sizes of tensors that the shapes do not tell are those seen in the traces.
    """
    compute_secs = np.zeros((graph.num_operations, len(profiles)))
    temp_bytes = np.zeros(graph.num_operations, np.int64)
    tensor_bytes = graph.tensor_bytes.copy()
    unknown = graph.tensor_bytes < 0
    functions = FunctionLibrary(graph.graph_def)
    for d, (profile, whole_secs) in enumerate(zip(profiles, whole_step_secs, strict=True)):
        for name, operation in profile.operations.items():
            i = graph.index.get(name)
            if i is None:
                i = _caller(graph, functions, name)
            if i is None:
                continue
            compute_secs[i, d] += operation.compute_secs
            temp_bytes[i] = max(temp_bytes[i], operation.temp_bytes)
            if graph.names[i] != name:
                continue
            for port, size in operation.output_bytes.items():
                tensor = int(graph.output_start[i]) + port
                if tensor < graph.output_start[i + 1] and unknown[tensor]:
                    tensor_bytes[tensor] = max(tensor_bytes[tensor], size)
        secs = whole_secs or statistics.median(profile.step_secs)
        compute_secs[:, d] *= secs / max(compute_secs[:, d].sum(), 1e-9)
    return OperationCosts(compute_secs, temp_bytes, np.maximum(tensor_bytes, 0), "profiled")


def _caller(graph: OpGraph, functions: FunctionLibrary, name: str) -> int | None:
    """Finds the operation that TensorFlow replaced by its functions' operations, this being one.

    They are called "while/body/_1/add" and "Func/while/body/_1/input/_7" then.
    """
    caller = name.removeprefix("Func/").rpartition("/")[0]
    while caller and caller not in graph.index:
        caller = caller.rpartition("/")[0]
    i = graph.index.get(caller)
    return i if i is not None and functions.find_all_callees(graph.graph_def.node[i]) else None
