"""Checks of a machine and a step before anything is measured."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from graph_passes.colocation import find_colocation_groups
from graph_passes.errors import GraphError
from graph_passes.op_graph import OpGraph
from graph_passes.placement import read_placement
from graph_passes.restricted_colocation import describe_restrictions, restrict_colocation
from tf_placer.costs.graph_memory import compute_variables_bytes
from tf_placer.costs.graph_problem import find_batch_size, list_needed_operations
from tf_placer.functions.placed_signature import PlacedSignature
from tf_placer.functions.placed_step import PlacedStep
from tf_placer.functions.process_gpus import build_session_config, holds_gpu_memory
from tf_placer.inputs.given_devices import check_given_devices
from tf_placer.inputs.python_functions import check_python_functions_are_here
from tf_placer.live.optimization_target import OptimizationTarget
from tf_placer.machines.emulated_machine import PREFIX
from tf_placer.machines.emulation_state import find_emulated_spec
from tf_placer.machines.lookup import find_machine
from tf_placer.machines.machine import Machine, MachineError
from tf_placer.placers import ORIGINAL_START, find_start_source
from tf_placer.problem.memory_limits import limit_devices
from tf_placer.search.config import SearchConfig, starting_options
from tf_placer.search.distributed.workers import check_is_for_workers
from tf_placer.text.units import format_bytes

__all__ = [
    "describe_pins",
    "describe_start",
    "explain_little_memory",
    "explain_no_choice",
    "note_on_gpus",
    "prepare",
]


def prepare(given: OptimizationTarget, config: SearchConfig) -> SearchConfig:
    """Finds the machine, and checks that the step can be placed on it.

    Args:
        given: the step to place.
        config: the settings of the search.

    Returns:
        The settings with the machine that was found, whose memory is limited, the configuration
        of its sessions, the full names of the devices of pins, and the start of a learned placer.

    Raises:
        GraphError: the graph, a pin, or the placement that the placer is to start from, is on
            devices that the machine lacks; the graph runs in this process only; there is no such
            placement; or a data set uses a variable of the step.
        MachineError: there is no such machine, it is only described, or a data set assigns to a
            variable, which would be lost with it.
        SearchError: workers cannot measure the step there.
        ValueError: a limit of memory is for a device that is not there, or for a part of a GPU.
    """
    workload, machine, workers = given.workload, config.machine, config.wanted_workers
    session_config = config.session_config or _default_config(machine)
    found = machine if isinstance(machine, Machine) else find_machine(machine, session_config)
    if not found.backend.is_timed:
        raise MachineError(
            f"machine {found.spec!r} is described, not attached, so no step can be timed on it: "
            "`profile` computes a problem for it, `search` finds a placement of that, and `apply` "
            "puts it on the graph"
        )
    caller = check_python_functions_are_here(workload, found)
    if workers is not None:
        check_is_for_workers(workers, found.kind, found.spec, calls_python=caller is not None)
    if len(found.devices) > 1:
        step = given.on(found)
        if isinstance(step, PlacedStep):
            step.check()
        soft = session_config.allow_soft_placement
        check_given_devices(workload.op_graph, found, workload.step.initializers, soft=soft)
    found, session_config = _limit_memory(found, session_config, config)
    options = starting_options(config.placer, config.placer_options, is_simulated=False)
    _check_start(config.placer, options, found)
    prepared = dataclasses.replace(
        config, machine=found, placer_options=options, session_config=session_config
    )
    restrictions = prepared.restrictions
    if restrictions is None:
        return prepared
    return dataclasses.replace(prepared, pin=restrictions.pin)


def describe_pins(given: OptimizationTarget, config: SearchConfig) -> list[str]:
    """Describes the pins of a search, and what it keeps together, in lines for users.

    Args:
        given: the step to place.
        config: the settings of the search, as `prepare` returns them.

    Raises:
        GraphError: a pattern matches nothing, or TensorFlow cannot honor a restriction.
    """
    graph, restrictions = given.workload.op_graph, config.restrictions
    if restrictions is None:
        return []
    colocation = restrict_colocation(graph, find_colocation_groups(graph), restrictions)
    return describe_restrictions(graph, colocation, restrictions)


def describe_start(given: OptimizationTarget, config: SearchConfig) -> list[str]:
    """Describes the differences of a start placement from the step, in lines for users.

    Args:
        given: the step to place.
        config: the settings of the search, as `prepare` returns them.

    Raises:
        GraphError: no operation of the placement is in the graph.
    """
    source = find_start_source(config.placer, config.placer_options)
    if source is None or source == ORIGINAL_START:
        return []
    placement, graph = read_placement(source), given.workload.op_graph
    missing = [name for name in placement.assignment if name not in graph.index]
    if missing and len(missing) == len(placement.assignment):
        raise GraphError(
            f"option 'start': nothing of {source!r} fits the graph: none of its {len(missing):,} "
            f"operations is in it, such as {missing[0]!r}"
        )
    differences = []
    if missing:
        differences.append(
            f"{len(missing):,} of its {len(placement.assignment):,} operations are not in the "
            f"graph, such as {missing[0]!r}"
        )
    if placement.is_planned:
        needed = [graph.names[index] for index in list_needed_operations(graph).tolist()]
        added = [name for name in needed if name not in placement.assignment]
        if added:
            differences.append(
                f"it lacks {len(added):,} of the {len(needed):,} operations of the step, such as "
                f"{added[0]!r}"
            )
    planned, size = placement.provenance.get("batch_size"), find_batch_size(graph)
    if planned is not None and size is not None and planned != size:
        differences.append(f"it was planned for a batch of {planned}, not of {size}")
    if not differences:
        return []
    return [f"{source!r} was made for another step: {'; '.join(differences)}"]


def _limit_memory(
    machine: Machine, session_config: tf.compat.v1.ConfigProto, config: SearchConfig
) -> tuple[Machine, tf.compat.v1.ConfigProto]:
    """Limits the memory of a machine as the settings ask for, and that of GPUs in its sessions.

    The servers of a "local" machine take their limits from the machine.

    Raises:
        ValueError: see `prepare`.
    """
    devices = limit_devices(machine.devices, *config.memory_limits)
    if devices == machine.devices:
        return machine, session_config
    gpus = [device for device in devices if device.type == "GPU"]
    if gpus and machine.backend.in_one_process:
        limited = tf.compat.v1.ConfigProto()
        limited.CopyFrom(session_config)
        options = limited.gpu_options
        if any(len(gpu.memory_limit_mb) > 1 for gpu in options.experimental.virtual_devices):
            raise ValueError(
                "max_memory and headroom are for whole GPUs, and the program or its session_config "
                "divides a GPU: limit the parts there"
            )
        # The memory of the devices already follows the fraction, which excludes other limits.
        options.per_process_gpu_memory_fraction = 0.0
        del options.experimental.virtual_devices[:]
        if machine.backend.is_described:
            # Sessions divide no emulated GPUs, so all get the largest share.
            options.per_process_gpu_memory_fraction = max(
                (gpu.memory_bytes or 0) / machine.find_class(gpu).memory_bytes for gpu in gpus
            )
        else:
            for gpu in gpus:
                known = [] if gpu.memory_bytes is None else [max(1, gpu.memory_bytes >> 20)]
                options.experimental.virtual_devices.add(memory_limit_mb=known)
        if options.visible_device_list:
            visible = options.visible_device_list.split(",")[: len(gpus)]
            options.visible_device_list = ",".join(visible)
        session_config = limited
    return dataclasses.replace(machine, devices=devices), session_config


def explain_no_choice(machine: Machine, *, calls_python: bool) -> str | None:
    """Explains that there is nothing to search for if the machine has a single device."""
    if len(machine.devices) > 1:
        return None
    reason = f"the machine has one device only, {machine.devices[0].name}: nothing to choose from"
    if not calls_python:
        reason += (
            ". machine='local:2' uses two worker processes, machine='grpc://HOST:PORT' a cluster"
        )
    return reason


def explain_little_memory(graph: OpGraph, machine: Machine) -> str | None:
    """Explains that no placement can run if all devices together cannot hold the variables."""
    sizes = [device.memory_bytes for device in machine.devices]
    total_bytes = sum(size or 0 for size in sizes)
    variables_bytes = compute_variables_bytes(graph)
    if None in sizes or variables_bytes <= total_bytes:
        return None
    return (
        f"no placement can run: the variables of the step take {format_bytes(variables_bytes)}, "
        f"and all devices of {machine.spec} together have {format_bytes(total_bytes)}: allow more "
        "memory, or take a larger machine"
    )


def note_on_gpus(given: OptimizationTarget, machine: Machine, *, calls_python: bool) -> str | None:
    """Returns a note about the GPUs for users before the search, or None."""
    if note := _note_on_missing_gpus(machine, given.on(machine)):
        return note
    # Sessions in this process share its GPU memory.
    return None if calls_python else _note_on_held_memory(machine)


def _default_config(machine: str | Machine | None) -> tf.compat.v1.ConfigProto:
    """Makes the configuration of sessions that have none of their own."""
    spec = machine.spec if isinstance(machine, Machine) else machine
    if spec in (None, "attached", find_emulated_spec()):
        return build_session_config()
    return tf.compat.v1.ConfigProto()


def _note_on_missing_gpus(
    machine: Machine, step: PlacedStep | PlacedSignature | None
) -> str | None:
    """Warns that placed functions cannot run in this process, which has no emulated GPUs."""
    if not machine.backend.is_described or step is None or find_emulated_spec() is not None:
        return None
    return (
        f"this process has no GPUs of {machine.spec}, so what is found for them runs in another: "
        f"`python -m tf_placer emulate {machine.spec.removeprefix(PREFIX)} -- python PROGRAM`"
    )


def _note_on_held_memory(machine: Machine) -> str | None:
    """Warns that this process holds GPU memory, with the size of the rest."""
    gpus = [device for device in machine.devices if device.type == "GPU"]
    if not machine.backend.in_this_process or not gpus or not holds_gpu_memory():
        return None
    left_bytes = min(device.memory_bytes or 0 for device in gpus)
    return (
        "TensorFlow has taken the memory of the GPUs for this process, which leaves "
        f"{format_bytes(left_bytes)} of each to the search: have it take only what it needs, by "
        "tf.config.experimental.set_memory_growth before anything else, or run the script by "
        "`python -m tf_placer run`, which searches when the script does not run"
    )


def _check_start(placer: str, options: Mapping[str, Any], machine: Machine) -> None:
    """Checks that the start placement of a learned placer fits the machine."""
    source = find_start_source(placer, options)
    if source is None or source == ORIGINAL_START:
        return
    there = {device.name for device in machine.devices}
    for name, device in read_placement(source).assignment.items():
        if device not in there:
            raise GraphError(
                f"option 'start': {source!r} has {name!r} on {device}, which {machine.spec!r} lacks"
            )
