"""The training step of a script, as it is kept from one run of the script to the next."""

from __future__ import annotations

import dataclasses
import os
import pathlib
from collections.abc import Iterable, Sequence

import tensorflow as tf

from graph_passes.annotate import DropDanglingColocation
from graph_passes.errors import GraphError
from graph_passes.fingerprint import graph_fingerprint
from graph_passes.functions import called_functions
from graph_passes.placement import Placement, read_placement
from tf_placer.files import read_json, write_json
from tf_placer.inputs.sources import Source, read_graph
from tf_placer.machines.machine import Machine
from tf_placer.runs.own_files import TRAINED_BY
from tf_placer.runs.run_directory import RunDirectory
from tf_placer.search.config import SearchConfig

__all__ = ["KeptStep", "keep_step", "kept_source", "read_kept_step", "step_fingerprint"]


@dataclasses.dataclass(frozen=True, eq=False)
class KeptStep:
    """A training step, and where its operations go.

    Attributes:
        title: what it is known by, for people: a directory or a file.
        placement: its placement; None where nothing faster was found.
        machine: the machine that it was placed on; None where that is not known.
        trained_by: what it fetches that trains; nothing where that is not known.
        fingerprint: of the operations that these need; None where they are not known.
        graph_def: the graph that they are in; None where it is not known.
    """

    title: str
    placement: Placement | None
    machine: Machine | None = None
    trained_by: tuple[str, ...] = ()
    fingerprint: str | None = None
    graph_def: tf.compat.v1.GraphDef | None = None

    def is_in(self, graph_def: tf.compat.v1.GraphDef) -> bool:
        """Says whether a graph has this step, or, where only devices are known, what has them."""
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

    What else is in the graph, such as operations for checkpoints and summaries, does not count.
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
    step.library.CopyFrom(called_functions(step))
    return graph_fingerprint(DropDanglingColocation().run(step))


def keep_step(
    directory: RunDirectory, source: Source, config: SearchConfig, trained_by: Sequence[str]
) -> None:
    """Writes down a step that is to be searched for.

    Args:
        directory: of the search.
        source: the graph and its step.
        config: how to search, with the configuration of the script's sessions.
        trained_by: those of the fetches that train; others only look at what is trained.

    Raises:
        OSError: the directory cannot be written.
    """
    directory.path.mkdir(parents=True, exist_ok=True)
    # First: by this file alone what a kill leaves of the others is told from somebody else's.
    write_json(directory.path / TRAINED_BY, [*trained_by])
    directory.write_request(source, config)


def read_kept_step(path: str | os.PathLike[str]) -> KeptStep:
    """Reads a step and its placement.

    Args:
        path: the directory of a search that has ended; or a placement file, which lies in such a
            directory or elsewhere.

    Raises:
        GraphError: something cannot be read, or is something else.
    """
    given = pathlib.Path(path)
    placement: Placement | None
    if not given.is_dir():
        placement = read_placement(given)
        directory = RunDirectory(given.parent)
        if not directory.has_request or directory.placement.name != given.name:
            return KeptStep(os.fspath(path), placement)
    else:
        directory = RunDirectory(given)
        placement = read_placement(directory.placement) if directory.placement.exists() else None
    try:
        machine, step = directory.read_machine(), directory.read_step()
        graph_def = read_graph(directory.graph).graph_def
        kept = directory.path / TRAINED_BY
        # Of a search that `run` did not make, all that it fetches.
        trained_by = read_json(kept) if kept.exists() else step.fetches
        fingerprint = step_fingerprint(graph_def, trained_by)
    except (OSError, TypeError, ValueError, KeyError) as error:
        raise GraphError(
            f"{os.fspath(directory.path)!r} holds no search that can be read: {error}"
        ) from error
    return KeptStep(
        os.fspath(path),
        placement,
        machine,
        tuple(trained_by),
        fingerprint,
        graph_def,
    )


def kept_source(directory: RunDirectory) -> tuple[Source, SearchConfig]:
    """Reads a step that is to be searched for, and how.

    Raises:
        GraphError: it cannot be read.
    """
    try:
        return directory.read_request()
    except (OSError, ValueError, KeyError) as error:
        raise GraphError(
            f"{os.fspath(directory.path)!r} holds no step that can be read: {error}"
        ) from error


def _operation(name: str) -> str:
    return name.removeprefix("^").partition(":")[0]
