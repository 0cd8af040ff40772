"""Profiles a step on a machine into a placement problem, which needs neither of the two."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import os
from collections.abc import Mapping, Sequence
from typing import Any, TypedDict, Unpack, overload

from graph_passes.restrictions import check_keep_together, check_pins, resolve_restrictions
from graph_passes.util.json_text import format_value
from graph_passes.util.path_validation import check_path
from graph_passes.work import CUDNN_LAYERS
from tf_placer.costs.costed_graph import cost_graph
from tf_placer.files import check_output
from tf_placer.former_keywords import accept_former_keywords
from tf_placer.functions.keras_models import (
    advise_against_xla,
    build_as_on_gpus,
    describe_gpu_kernels,
    is_keras_model,
)
from tf_placer.inputs.given_devices import describe_immovable_step
from tf_placer.inputs.python_functions import check_no_python_functions
from tf_placer.interrupts import shorten_interrupts
from tf_placer.live.optimization_target import read_target
from tf_placer.machines.lookup import find_machine
from tf_placer.machines.machine import Machine
from tf_placer.problem.placement_problem import PlacementProblem
from tf_placer.problem.problem_file import check_each_once, name_problem_files, write_problem
from tf_placer.search.config import check_machine
from tf_placer.text.notes import say
from tf_placer.text.stages import Stages

__all__ = ["profile"]


class _Settings(TypedDict, total=False):
    """The keywords of `profile` that do not decide what it returns."""

    example_inputs: Any
    signature_key: str | Sequence[str] | None
    checkpoint: Any
    steps: int
    granularity: str
    clear_devices: bool
    pin: Mapping[str, str] | None
    keep_together: Sequence[str | Sequence[str]]
    verbose: bool


@overload
def profile(
    graph: Any,
    fetches: Any = None,
    feed_dict: Any = None,
    initializers: Any = None,
    *,
    output: str | os.PathLike[str] | None = None,
    machine: str | Machine | None = None,
    **settings: Unpack[_Settings],
) -> PlacementProblem: ...


@overload
def profile(
    graph: Any,
    fetches: Any = None,
    feed_dict: Any = None,
    initializers: Any = None,
    *,
    output: str | os.PathLike[str] | None = None,
    machine: list[str] | tuple[str, ...],
    **settings: Unpack[_Settings],
) -> dict[str, PlacementProblem]: ...


@accept_former_keywords(
    feeds="feed_dict",
    example="example_inputs",
    signature="signature_key",
    restore_from="checkpoint",
)
@shorten_interrupts
def profile(
    graph: Any,
    fetches: Any = None,
    feed_dict: Any = None,
    initializers: Any = None,
    *,
    output: str | os.PathLike[str] | None = None,
    example_inputs: Any = None,
    signature_key: str | Sequence[str] | None = None,
    checkpoint: Any = None,
    machine: str | Machine | list[str] | tuple[str, ...] | None = None,
    steps: int = 10,
    granularity: str = "fine",
    clear_devices: bool = False,
    pin: Mapping[str, str] | None = None,
    keep_together: Sequence[str | Sequence[str]] = (),
    verbose: bool = True,
) -> PlacementProblem | dict[str, PlacementProblem]:
    """Turns a step and a machine into a placement problem, for `search` and `simulate`.

    Costs are measured on an attached machine, and computed for a described one, such as "4xK80",
    without running anything or reading values of variables. The command `profile` does the same to
    files.

    Args:
        graph: as `optimize` takes it: a graph, a file, a tf.function, a ConcreteFunction, a Keras
            model or a SavedModel directory. Recurrent layers of a Keras 3 model are those of cuDNN
            if all machines are described and have GPUs.
        fetches: see `optimize`.
        feed_dict: see `optimize`.
        initializers: see `optimize`.
        output: a file for the problem (`.json`); of several machines a directory, which gets a
            file `NAME.json` for each. None to write none.
        example_inputs: see `optimize`.
        signature_key: see `optimize`.
        checkpoint: see `SearchConfig`.
        machine: "attached" (the default), "local:N", "grpc://HOST:PORT", a machine of the
            catalog, a machine file, or a Machine; or a list of names, for which the step is read
            once.
        steps: steps to trace on each kind of device.
        granularity: "fine", groups of operations that TensorFlow must have on one device, or
            "coarse", the groups that `optimize` finds.
        clear_devices: see `optimize`.
        pin: see `SearchConfig`; the groups of the problem may go nowhere else.
        keep_together: see `SearchConfig`; one group has what is kept together.
        verbose: whether to print the stages to the standard error.

    Returns:
        The problem; of a list of machines the problem of each by its name, as `compare` takes them.

    Raises:
        GraphError: a part of the step cannot be found, built or run on the machine, or a pin cannot
            be honored.
        MachineError: there is no such machine.
        SearchError, WorkerStartError: the step does not run.
        ValueError: an argument does not fit this kind of graph, or is out of range.
        OSError: a file is missing or cannot be read, or the output cannot be written.
    """
    if isinstance(steps, bool) or not isinstance(steps, int) or steps < 1:
        raise ValueError(f"steps must be a whole number from 1 on, not {format_value(steps)}")
    pins, together = check_pins(pin or {}), check_keep_together(keep_together)
    specs = machine if isinstance(machine, list | tuple) else [machine]
    for spec in specs:
        check_machine(spec)
    paths = [] if output is None else [output]
    if isinstance(machine, list | tuple):
        if output is None:
            check_each_once(machine)
        else:
            paths = name_problem_files(machine, output)
    for path in paths:
        check_path(path, "output", "file")
        check_output(os.fspath(path), graph if isinstance(graph, str | os.PathLike) else None)
    machines = [each if isinstance(each, Machine) else find_machine(each) for each in specs]
    problems = []
    with Stages(say if verbose else lambda line: None) as stages:
        stages.begin(f"profiling for {', '.join(each.spec for each in machines)}")
        builds: contextlib.AbstractContextManager[None] = contextlib.nullcontext()
        if is_keras_model(graph) and all(map(_is_elsewhere, machines)):
            builds = build_as_on_gpus(graph)
        with builds:
            given = read_target(
                graph,
                fetches=fetches,
                feed_dict=feed_dict,
                initializers=initializers,
                example_inputs=example_inputs,
                signature_key=signature_key,
                checkpoint=checkpoint,
                clear_devices=clear_devices,
                read_values=not all(each.describes_costs for each in machines),
            )
        notes = [*given.workload.notes]
        has_cudnn = bool(given.workload.op_graph.has_type(CUDNN_LAYERS).any())
        if has_cudnn and is_keras_model(graph):
            notes.append("recurrent layers are those of cuDNN, as Keras builds them for GPUs")
        if (immovable := describe_immovable_step(given.workload.op_graph)) is not None:
            notes.append(immovable)
        kernels = None
        if is_keras_model(graph) and not has_cudnn and any(map(_is_elsewhere, machines)):
            kernels = describe_gpu_kernels(graph)
            notes += filter(None, [kernels, advise_against_xla(graph)])
        for note in notes:
            stages.say(note)
        for number, (found, path) in enumerate(itertools.zip_longest(machines, paths), 1):
            if found.backend.is_timed:
                check_no_python_functions(given.workload.op_graph, given.workload.step)
            names = [device.name for device in found.devices]
            costed = cost_graph(
                given.workload,
                found,
                steps=steps,
                granularity=granularity,
                restrictions=resolve_restrictions(pins, together, names),
                report=stages.begin_once,
            )
            problem = costed.problem()
            if kernels is not None and _is_elsewhere(found):
                problem = dataclasses.replace(problem, notes=(*problem.notes, kernels))
            problems.append(problem)
            if path is not None:
                write_problem(problems[-1], path)
            if len(machines) > 1:
                stages.say(f"profiled for {found.spec}, {number} of {len(machines)}")
    if isinstance(machine, list | tuple):
        return dict(zip(machine, problems, strict=True))
    return problems[0]


def _is_elsewhere(machine: Machine) -> bool:
    """Tells whether a machine is not here, and has GPUs."""
    return not machine.backend.is_timed and any(each.type == "GPU" for each in machine.devices)
