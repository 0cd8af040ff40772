"""Operation costs from traced steps."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

import numpy as np

from graph_passes.functions import FunctionLibrary
from graph_passes.op_graph import OpGraph
from tf_placer.costs.operation_costs import OperationCosts
from tf_placer.environments.step_profile import StepProfile

__all__ = ["compute_profiled_costs"]


def compute_profiled_costs(
    graph: OpGraph, profiles: Sequence[StepProfile], whole_step_secs: Sequence[float | None]
) -> OperationCosts:
    """Computes the costs of operations from traced steps.

    Tracing takes time, and so does the executor's work between two operations, which belongs to
    neither. So the seconds of all operations are scaled to add up to a step without a trace. The
    operations inside a functional loop or conditional count for the loop or conditional.
    Operations that did not run in the traced steps, because TensorFlow folded or merged them or
    because their branch was not taken, cost nothing.

    Args:
        graph: the graph.
        profiles: for each device of the machine, the profile of a step on a device of its kind.
        whole_step_secs: for each device, the seconds of a step that runs entirely on it, on the
            machine itself; None to use the step time of the profile.

    Returns:
        The costs. Tensors whose shapes are unknown have the sizes seen in the traces.
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
                i = _find_caller(graph, functions, name)
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


def _find_caller(graph: OpGraph, functions: FunctionLibrary, name: str) -> int | None:
    """Finds the operation whose inlined function contains the operation of this name.

    TensorFlow names inlined operations "while/body/_1/add" and "Func/while/body/_1/input/_7".
    """
    caller = name.removeprefix("Func/").rpartition("/")[0]
    while caller and caller not in graph.index:
        caller = caller.rpartition("/")[0]
    i = graph.index.get(caller)
    return i if i is not None and functions.find_all_callees(graph.graph_def.node[i]) else None
