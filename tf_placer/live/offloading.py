"""Activations of a function or a Keras model that wait on the CPU, so that it fits."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from graph_passes.errors import GraphError
from graph_passes.host_copies import HostCopy
from graph_passes.op_graph import OpGraph
from graph_passes.placement import Placement
from tf_placer.costs.host_copies import choose_host_copies
from tf_placer.functions.placement_application import place_target
from tf_placer.functions.traced_call import is_traceable
from tf_placer.machines.machine import Machine
from tf_placer.problem.assignment_file import assign_groups
from tf_placer.problem.memory_limits import (
    OFFLOAD_HEADROOM,
    check_headroom,
    limit_problem,
    read_max_memory,
)
from tf_placer.problem.placement_problem import PlacementProblem
from tf_placer.problem.problem_file import read_problem
from tf_placer.report.memory_use import describe_memory_use
from tf_placer.report.one_device import place_on_one
from tf_placer.simulation.host_offload import HostOffload
from tf_placer.text.notes import say
from tf_placer.text.stages import Stages
from tf_placer.text.units import format_bytes, format_step

__all__ = ["choose_copies", "describe_copies", "offload"]


def choose_copies(
    graph: OpGraph, problem: PlacementProblem, placement: np.ndarray
) -> tuple[HostOffload, list[HostCopy]]:
    """Chooses the tensors that wait on the CPU; see `choose_host_copies`.

    Raises:
        GraphError: the placement does not fit in this way.
    """
    found = choose_host_copies(graph, problem, placement)
    if found is None:
        used = describe_memory_use(problem, placement.tolist(), None)
        raise GraphError(
            f"the graph does not fit in this way: {used}, and too few of its tensors wait for "
            "later readers. Place it on more devices, or take devices with more memory"
        )
    return found


def describe_copies(moved: HostOffload, copies: Sequence[HostCopy]) -> str:
    """Says how many tensors wait on the CPU, and what that costs."""
    if not copies:
        return "the placement fits as it is: nothing was moved"
    longer = moved.step_secs / moved.unmoved_secs - 1.0
    return (
        f"{len(copies)} tensors wait on the CPU, {format_bytes(moved.moved_bytes)} together: "
        f"{format_step(moved.step_secs)} a step by simulation, {longer:.1%} slower than with "
        "enough memory"
    )


def offload(
    target: Any,
    problem: PlacementProblem | str | os.PathLike[str],
    placement: Placement | None = None,
    *,
    example_inputs: Any = None,
    machine: str | Machine | None = None,
    max_memory: Mapping[str, Any] | None = None,
    headroom: float = OFFLOAD_HEADROOM,
) -> Any:
    """Puts a placement on a function or a Keras model, with activations that wait on the CPU.

    Activations leave over-full GPUs after the forward pass, and come back before the backward pass
    reads them. Values stay the same. The command `offload` does so to graph files.

    Args:
        target: a tf.function, a ConcreteFunction or a Keras model.
        problem: the placement problem of its step, by `profile`, or its file; it tells what does
            not fit.
        placement: the placement, such as `PlanResult.offload_placement`; by default everything is
            on the first GPU.
        example_inputs: the arguments of one call of a function, or a batch of a model.
        machine: the machine to run on: "attached", the default, or as `optimize` takes it.
        max_memory: see `SearchConfig`.
        headroom: see `SearchConfig`. TensorFlow's allocator does not find room for a large tensor
            between others where nearly all memory is in use.

    Returns:
        The placed function; the model itself.

    Raises:
        GraphError: the problem is of another step, the step does not fit in this way, or the
            machine lacks a device.
        MachineError: there is no such machine, or this process cannot connect to it.
        OSError: the file cannot be read.
        ValueError: there are no example inputs, or a file, a limit or the placement is wrong.

    Example:
        >>> problem = tf_placer.profile(model, example_inputs=(x, y))
        >>> tf_placer.offload(model, problem, example_inputs=(x, y))
        >>> model.fit(data)
    """
    if not is_traceable(target):
        raise GraphError(
            f"offload takes a tf.function or a Keras model, not {type(target).__name__}: the "
            "command `offload` takes graph files"
        )
    if not isinstance(problem, PlacementProblem):
        problem = read_problem(problem)
    limited = limit_problem(problem, read_max_memory(max_memory), check_headroom(headroom))
    if placement is None:
        row = place_on_one(limited)[0]
    else:
        row = np.array(assign_groups(limited, placement.assignment), np.int32)
    devices = tuple(device.name for device in limited.devices)
    of_operations = {
        name: devices[row[group]]
        for name, group in zip(limited.operation_names, limited.groups.tolist(), strict=True)
    }

    def choose(graph: OpGraph) -> Sequence[HostCopy]:
        strange = [name for name in of_operations if name not in graph.index]
        if strange:
            raise GraphError(
                f"the problem is of another step, with an operation {strange[0]!r}: make it with "
                "tf_placer.profile of this model and batch. Keras numbers the layers of one "
                "process: a second model of the same kind has the names of the first only after "
                "keras.backend.clear_session()"
            )
        stages.enter("choosing the tensors that wait on the CPU")
        moved, copies = choose_copies(graph, limited, row)
        stages.say(describe_copies(moved, copies))
        return copies

    planned = Placement("", devices, of_operations)
    with Stages(say) as stages:
        stages.enter("reading the step")
        return place_target(target, planned, example_inputs, machine, choose)
