"""A model on a machine that is there, as each placer wants it grouped."""

from __future__ import annotations

import os
import pathlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from benchmarks.models.training_model import TrainingModel
from graph_passes.fingerprint import graph_fingerprint
from graph_passes.op_graph import OpGraph
from graph_passes.pipeline import GroupedGraph, group_operations
from tf_placer.costs.costed_graph import cost_graph
from tf_placer.environments.session import SessionEnvironment
from tf_placer.inputs.sources import Source
from tf_placer.inputs.step import Step
from tf_placer.machines.machine import Machine
from tf_placer.placers import PLACERS, Granularity, describe_placer, granularity_of
from tf_placer.problem.placement_problem import PlacementProblem

__all__ = ["LiveModel"]


class LiveModel:
    """A graph on a machine.

    Attributes:
        machine: where it runs.
        devices: names of the devices of the machine.
        fingerprint: of the graph.
    """

    def __init__(
        self, model: TrainingModel, machine: Machine, directory: str | os.PathLike[str]
    ) -> None:
        """Writes the graph.

        Args:
            model: the training graph; a step trains on one batch of its data.
            machine: where to run.
            directory: an empty one for files; it stays until all environments are closed.
        """
        graph_def = model.graph.as_graph_def()
        self.machine = machine
        self.fingerprint = graph_fingerprint(graph_def)
        self.devices = tuple(device.name for device in machine.devices)
        feeds = next(model.feeds())
        self._step = Step((model.train_op,), feeds, (model.initializer,))
        self._op_graph = OpGraph.from_graph_def(graph_def, self._step.fetches, list(feeds))
        self._grouped: dict[str, GroupedGraph] = {}
        self._directory = pathlib.Path(directory)
        self._graph_path = self._directory / "graph.pb"
        self._graph_path.write_bytes(graph_def.SerializeToString())

    def grouped(self, placer: str) -> GroupedGraph:
        """Groups the graph into what a placer places: the groups of the model rules if unknown."""
        granularity = _granularity(placer)
        if granularity not in self._grouped:
            self._grouped[granularity] = group_operations(self._op_graph, granularity)
        return self._grouped[granularity]

    def legal(self, placer: str) -> np.ndarray:
        """Says where the groups of a placer may go: bool [num_groups, num_devices]."""
        grouped = self.grouped(placer)
        return grouped.grouping.legal_devices(grouped.colocation, self.devices)

    def assignment(self, placer: str, row: Sequence[int] | np.ndarray) -> dict[str, str]:
        """Finds the device of each operation under a placement of a placer."""
        return self.grouped(placer).assignment(np.asarray(row, np.int32), self.devices)

    def environment(self, placer: str) -> SessionEnvironment:
        """Measures placements of a placer; has started no process yet."""
        return SessionEnvironment(
            self._graph_path, self._step, self.machine, lambda row: self.assignment(placer, row)
        )

    def header(self, placer: str, seed: int) -> dict[str, Any]:
        """Describes what a log of a search with a placer is of."""
        settings = describe_placer(placer).settings if placer in PLACERS else ()
        return {
            "graph_fingerprint": self.fingerprint,
            "placer": placer,
            "configuration": {s.name: s.value for s in settings},
            "seed": seed,
            "machine": self.machine.to_json(),
            "granularity": _granularity(placer),
        }

    def costed(self, steps: int) -> PlacementProblem:
        """Profiles the graph.

        Args:
            steps: to trace on each device.

        Returns:
            The problem of placing colocation groups; its coarse groups are those of model rules.

        Raises:
            SearchError, WorkerStartError, MachineError: it cannot be profiled.
        """
        return cost_graph(
            Source(self._op_graph, self._step),
            self.machine,
            steps=steps,
            granularity="fine",
            work_dir=self._directory,
        ).problem()


def _granularity(placer: str) -> Granularity:
    return granularity_of(placer) if placer in PLACERS else "coarse"
