"""The optimization target: a step of a graph, a function, a model or a SavedModel."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from tf_placer.functions.placed_signature import PlacedSignature
from tf_placer.functions.placed_step import PlacedStep
from tf_placer.functions.traced_call import TracedCall, is_traceable, trace_call
from tf_placer.inputs.saved_signature import SavedSignature
from tf_placer.inputs.workload import (
    InputGraph,
    Workload,
    read_graph,
    read_workload,
    remove_devices,
)
from tf_placer.machines.machine import Machine

__all__ = ["OptimizationTarget", "read_target"]


@dataclasses.dataclass(frozen=True, eq=False)
class OptimizationTarget:
    """A step to optimize, and its origin.

    Attributes:
        workload: the graph and its step.
        origin: the function, the model or the signatures; None for a graph.
    """

    workload: Workload
    origin: TracedCall | SavedSignature | None = None

    def on(self, machine: Machine) -> PlacedStep | PlacedSignature | None:
        """Makes a placed step or signature for the devices of a machine; None for a graph."""
        if isinstance(self.origin, TracedCall):
            return PlacedStep(self.origin, machine)
        return None if self.origin is None else PlacedSignature(self.origin, machine)


def read_target(
    graph: Any,
    fetches: Any = None,
    feed_dict: Any = None,
    initializers: Any = None,
    *,
    example_inputs: Any = None,
    signature_key: str | Sequence[str] | None = None,
    checkpoint: Any = None,
    seed: int = 0,
    clear_devices: bool = False,
    read_values: bool = True,
) -> OptimizationTarget:
    """Reads a step; see `optimize` for what the arguments may be.

    With `read_values=False`, the values of the variables of functions, models and SavedModels are
    not read: only a step that runs needs them, and they may take most of the memory.

    Raises:
        GraphError: the graph, the step or an initializer cannot be found or built, or there is
            nothing to restore.
        ValueError: an argument does not fit this kind of graph.
    """
    if clear_devices and (isinstance(graph, Workload) or is_traceable(graph)):
        raise ValueError(
            "clear_devices is for graphs and SavedModels: build a function or a model without "
            "tf.device"
        )
    if isinstance(graph, Workload):
        return OptimizationTarget(graph)
    if is_traceable(graph):
        if any(value is not None for value in (fetches, feed_dict, initializers, checkpoint)):
            raise ValueError(
                "a function or a model takes no fetches, feed_dict, initializers or checkpoint: "
                "write example_inputs=..., the arguments of one call, or a batch (x, y) of a model"
            )
        if example_inputs is None:
            raise ValueError(
                "a function needs example_inputs=(...), the arguments of one call; a model a batch"
            )
        if signature_key is not None:
            raise ValueError("a function or a model has no signature to choose")
        traced = trace_call(graph, example_inputs, read_values=read_values)
        return OptimizationTarget(traced.workload, traced)
    given = graph if isinstance(graph, InputGraph) else read_graph(graph, signature_key)
    if clear_devices:
        given = remove_devices(given)
    saved = given.signature
    if example_inputs is not None:
        if saved is None:
            raise ValueError("a graph takes no example_inputs: pass fetches and feed_dict")
        if feed_dict is not None:
            raise ValueError("a SavedModel takes example_inputs or feed_dict, not both")
        feed_dict = saved.bind_example_inputs(example_inputs)
    workload = read_workload(
        given,
        fetches,
        feed_dict,
        initializers,
        checkpoint=checkpoint,
        seed=seed,
        read_values=read_values,
    )
    return OptimizationTarget(workload, saved)
