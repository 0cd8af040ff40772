"""The application of a placement to a graph, a function or a Keras model of this process."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from graph_passes.errors import GraphError
from graph_passes.fitting import fit
from graph_passes.host_copies import HostCopy
from graph_passes.op_graph import OpGraph
from graph_passes.placement import Placement
from tf_placer.functions.placed_step import PlacedStep
from tf_placer.functions.traced_call import is_traceable, trace_call
from tf_placer.inputs import session_hook
from tf_placer.machines.lookup import find_machine
from tf_placer.machines.machine import Machine, MachineError

__all__ = ["apply_placement", "place_target"]


def apply_placement(
    target: Any,
    placement: Placement,
    *,
    example_inputs: Any = None,
    machine: str | Machine | None = None,
) -> Any:
    """Puts a placement on a tf.Graph, a tf.function or a Keras model.

    Operations are found by name, so the target may have been built anew.

    Args:
        target: a tf.Graph, whose operations get their devices in place, unless they have one; call
            this before the session is created. Or a tf.function, a ConcreteFunction or a Keras
            model, which `PlanResult.placement` was planned for.
        placement: the placement, such as `PlanResult.placement`, or one by `read_placement`.
        example_inputs: the arguments of one call of a function, or a batch of a model.
        machine: for functions and models, the machine that they run on: "attached", the default,
            or as `optimize` takes it. This process is connected to it.

    Returns:
        The placed function; the graph or the model itself.

    Raises:
        GraphError: nothing of the placement fits the target, or the machine lacks a device of it.
        MachineError: there is no such machine, or this process cannot connect to it.
        ValueError: a function or a model has no example inputs, or a graph has; or the placement
            is none, such as a whole result.

    Example:
        >>> result = tf_placer.plan("problem.json")
        >>> tf_placer.apply_placement(graph, result.placement)
    """
    if not isinstance(placement, Placement):
        raise ValueError(
            "a placement is one by read_placement, or the attribute `placement` of a result, which "
            f"is None if nothing was placed, not one of type {type(placement).__name__}"
        )
    if isinstance(target, tf.Graph):
        if example_inputs is not None or machine is not None:
            raise ValueError("a graph takes no example_inputs and no machine: its session has one")
        session_hook.apply_placement(target, placement)
        return target
    if not is_traceable(target):
        raise GraphError(
            "apply_placement takes a tf.Graph, a tf.function or a Keras model, not "
            f"{type(target).__name__}: the command `apply` takes files"
        )
    return place_target(target, placement, example_inputs, machine)


def place_target(
    target: Any,
    placement: Placement,
    example_inputs: Any,
    machine: str | Machine | None,
    choose_copies: Callable[[OpGraph], Sequence[HostCopy]] = lambda graph: (),
) -> Any:
    """Puts a placement on a function or a Keras model; see `apply_placement`.

    Args:
        target: a tf.function, a ConcreteFunction or a Keras model.
        placement: the placement.
        example_inputs: the arguments of one call of a function, or a batch of a model.
        machine: the machine.
        choose_copies: chooses the tensors of the traced graph that wait on the CPU.
    """
    if example_inputs is None:
        raise ValueError(
            "a function needs example_inputs=(...), the arguments of one call; a model a batch"
        )
    found = machine if isinstance(machine, Machine) else find_machine(machine)
    if not found.backend.is_timed:
        raise MachineError(
            f"machine {found.spec!r} is described, not attached: apply the placement on a computer "
            "with such devices, without machine=, or under `python -m tf_placer emulate`"
        )
    missing = {*placement.assignment.values()} - {device.name for device in found.devices}
    if missing:
        where = (
            "or rehearse it here under `python -m tf_placer emulate MACHINE -- COMMAND`"
            if any(":GPU:" in name for name in missing)
            else "or name a machine like local:2 as machine=..."
        )
        raise GraphError(
            f"the placement uses {min(missing)}, which {found.spec!r} does not have: apply it on a "
            f"computer that has it, {where}"
        )
    traced = trace_call(target, example_inputs)
    graph = traced.workload.op_graph
    fitted = dataclasses.replace(placement, assignment=fit(graph, placement).assignment)
    step = PlacedStep(traced, found, fitted, tuple(choose_copies(graph)))
    if not traced.is_model:
        return step.function
    step.apply(target)
    return target
