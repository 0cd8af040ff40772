"""Profiles a step on a machine into a placement problem, which needs neither of the two."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from graph_passes.restrictions import check_keep_together, check_pins, resolve_restrictions
from graph_passes.util.json_text import format_value
from graph_passes.util.path_validation import check_path
from tf_placer.costs.costed_graph import cost_graph
from tf_placer.files import check_output
from tf_placer.former_keywords import accept_former_keywords
from tf_placer.inputs.python_functions import check_no_python_functions
from tf_placer.live.optimization_target import read_target
from tf_placer.machines.lookup import find_machine
from tf_placer.machines.machine import Machine
from tf_placer.problem.placement_problem import PlacementProblem
from tf_placer.problem.problem_file import write_problem
from tf_placer.search.config import check_machine
from tf_placer.text.notes import say
from tf_placer.text.stages import Stages

__all__ = ["profile"]


@accept_former_keywords(
    feeds="feed_dict",
    example="example_inputs",
    signature="signature_key",
    restore_from="checkpoint",
)
def profile(
    graph: Any,
    fetches: Any = None,
    feed_dict: Any = None,
    initializers: Any = None,
    *,
    output: str | os.PathLike[str],
    example_inputs: Any = None,
    signature_key: str | Sequence[str] | None = None,
    checkpoint: Any = None,
    machine: str | Machine | None = None,
    steps: int = 10,
    granularity: str = "fine",
    clear_devices: bool = False,
    pin: Mapping[str, str] | None = None,
    keep_together: Sequence[str | Sequence[str]] = (),
    verbose: bool = True,
) -> PlacementProblem:
    """Turns a step and a machine into a placement problem, for `search` and `simulate`.

    Costs are measured on an attached machine, and computed for a described one, such as "4xK80",
    without running anything or reading values of variables. The command `profile` does the same to
    files.

    Args:
        graph: as `optimize` takes it: a graph, a file, a tf.function, a ConcreteFunction, a Keras
            model or a SavedModel directory.
        fetches: see `optimize`.
        feed_dict: see `optimize`.
        initializers: see `optimize`.
        output: the file of the problem (`.json`).
        example_inputs: see `optimize`.
        signature_key: see `optimize`.
        checkpoint: see `SearchConfig`.
        machine: "attached" (the default), "local:N", "grpc://HOST:PORT", a machine of the
            catalog, a machine file, or a Machine.
        steps: steps to trace on each kind of device.
        granularity: "fine", groups of operations that TensorFlow must have on one device, or
            "coarse", the groups that `optimize` finds.
        clear_devices: see `optimize`.
        pin: see `SearchConfig`; the groups of the problem may go nowhere else.
        keep_together: see `SearchConfig`; one group has what is kept together.
        verbose: whether to print the stages to the standard error.

    Returns:
        The problem.

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
    check_machine(machine)
    pins, together = check_pins(pin or {}), check_keep_together(keep_together)
    check_path(output, "output", "file")
    check_output(os.fspath(output), graph if isinstance(graph, str | os.PathLike) else None)
    found = machine if isinstance(machine, Machine) else find_machine(machine)
    restrictions = resolve_restrictions(pins, together, [each.name for each in found.devices])
    with Stages(say if verbose else lambda line: None) as stages:
        stages.begin(f"profiling for {found.spec}")
        given = read_target(
            graph,
            fetches=fetches,
            feed_dict=feed_dict,
            initializers=initializers,
            example_inputs=example_inputs,
            signature_key=signature_key,
            checkpoint=checkpoint,
            clear_devices=clear_devices,
            read_values=not found.describes_costs,
        )
        for note in given.workload.notes:
            stages.say(note)
        if found.backend.is_timed:
            check_no_python_functions(given.workload.op_graph, given.workload.step)
        costed = cost_graph(
            given.workload,
            found,
            steps=steps,
            granularity=granularity,
            restrictions=restrictions,
            report=stages.begin,
        )
    problem = costed.problem()
    write_problem(problem, output)
    return problem
