"""A cache of a script's training step, from one run of the script to the next."""

from __future__ import annotations

import dataclasses
import os
import pathlib
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import tensorflow as tf

from graph_passes.annotate import DropDanglingColocation
from graph_passes.errors import GraphError
from graph_passes.fingerprint import graph_fingerprint
from graph_passes.functions import copy_called_functions
from graph_passes.placement import Placement, read_placement
from tf_placer.files import read_json, write_json
from tf_placer.inputs.workload import Workload, read_graph
from tf_placer.machines.machine import Machine
from tf_placer.runs.own_files import TRAINED_BY
from tf_placer.runs.run_directory import RunDirectory
from tf_placer.search.config import SearchConfig

__all__ = [
    "CachedStep",
    "read_cached_step",
    "read_cached_workload",
    "step_fingerprint",
    "write_cached_step",
]


@dataclasses.dataclass(frozen=True, eq=False)
class CachedStep:
    """A training step and its placement.

    Attributes:
        title: the directory or file that it was read from, for messages.
        placement: the placement; None if nothing faster was found.
        machine: the machine of the placement; None if it is unknown.
        trained_by: the fetches that train; empty if they are unknown.
        fingerprint: the fingerprint of the operations that these fetches need; None if it is
            unknown.
        graph_def: the graph of the step; None if it is unknown.
        is_cleared: whether the script's devices give way to the placement.
        feed_shapes: the shape of each fed tensor, by tensor name ("x:0").
    """

    title: str
    placement: Placement | None
    machine: Machine | None = None
    trained_by: tuple[str, ...] = ()
    fingerprint: str | None = None
    graph_def: tf.compat.v1.GraphDef | None = None
    is_cleared: bool = False
    feed_shapes: Mapping[str, tuple[int, ...]] = dataclasses.field(default_factory=dict)

    def is_in(self, graph_def: tf.compat.v1.GraphDef) -> bool:
        """Says whether a graph contains this step.

        If only a placement is known, at least half of its operations have to be in the graph.
        """
        names = {node.name for node in graph_def.node}
        if self.fingerprint is None:
            assert self.placement is not None
            known = self.placement.assignment
            return 2 * sum(name in names for name in known) >= len(known) > 0
        if any(_operation(name) not in names for name in self.trained_by):
            return False
        return step_fingerprint(graph_def, self.trained_by) == self.fingerprint


def step_fingerprint(graph_def: tf.compat.v1.GraphDef, fetches: Iterable[str]) -> str:
    """Computes a hash of the operations that a step needs; see `graph_fingerprint`.

    Other operations in the graph, such as those for checkpoints and summaries, do not count.
    """
    nodes = {node.name: node for node in graph_def.node}
    needed: set[str] = set()
    waiting = [_operation(name) for name in fetches]
    while waiting:
        name = waiting.pop()
        if name not in needed:
            needed.add(name)
            waiting += [_operation(name) for name in nodes[name].input]
    step = tf.compat.v1.GraphDef(library=graph_def.library)
    step.node.extend(nodes[name] for name in needed)
    step.library.CopyFrom(copy_called_functions(step))
    return graph_fingerprint(DropDanglingColocation().run(step))


def write_cached_step(
    directory: RunDirectory, workload: Workload, config: SearchConfig, trained_by: Sequence[str]
) -> None:
    """Writes a step into the directory of its search.

    Args:
        directory: the directory of the search.
        workload: the graph and its step.
        config: the configuration of the search, with the session configuration of the script.
        trained_by: the fetches that train, as opposed to metrics, for example.

    Raises:
        OSError: the directory cannot be written.
    """
    directory.path.mkdir(parents=True, exist_ok=True)
    # Written first, because it marks the directory as one of a script if the process is killed
    # before it has written the other files.
    write_json(directory.path / TRAINED_BY, [*trained_by])
    directory.write_request(workload, config)


def read_cached_step(path: str | os.PathLike[str]) -> CachedStep:
    """Reads a step and its placement.

    Args:
        path: the directory of a finished search, or a placement file in such a directory or
            elsewhere.

    Raises:
        GraphError: a file of the search cannot be read, or has another content.
        OSError: the placement cannot be read.
    """
    given = pathlib.Path(path)
    placement: Placement | None
    if not given.is_dir():
        placement = read_placement(given)
        directory = RunDirectory(given.parent)
        if not directory.has_request or directory.placement.name != given.name:
            return CachedStep(os.fspath(path), placement)
    else:
        directory = RunDirectory(given)
        placement = read_placement(directory.placement) if directory.placement.exists() else None
    try:
        machine, step = directory.read_machine(), directory.read_step()
        graph_def = read_graph(directory.graph).graph_def
        kept = directory.path / TRAINED_BY
        # Only searches by the command `run` have this file; otherwise all fetches count.
        trained_by = read_json(kept) if kept.exists() else step.fetches
        fingerprint = step_fingerprint(graph_def, trained_by)
        is_cleared = directory.read_is_cleared()
    except (OSError, TypeError, ValueError, KeyError) as error:
        raise GraphError(
            f"{os.fspath(directory.path)!r} holds no search that can be read: {error}"
        ) from error
    return CachedStep(
        os.fspath(path),
        placement,
        machine,
        tuple(trained_by),
        fingerprint,
        graph_def,
        is_cleared,
        {name: np.shape(value) for name, value in step.feeds.items()},
    )


def read_cached_workload(directory: RunDirectory) -> tuple[Workload, SearchConfig]:
    """Reads the step and the configuration of a search from its directory.

    Raises:
        GraphError: they cannot be read.
    """
    try:
        return directory.read_request()
    except (OSError, ValueError, KeyError) as error:
        raise GraphError(
            f"{os.fspath(directory.path)!r} holds no step that can be read: {error}"
        ) from error


def _operation(name: str) -> str:
    return name.removeprefix("^").partition(":")[0]
