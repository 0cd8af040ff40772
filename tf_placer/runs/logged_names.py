"""The names in a log of operations that have other names now.

Keras counts on in its names, so that a model that is built again has the same step with other
names: "dense_4" where the log has "dense". Its search resumes under the names of the log.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import numpy as np

from graph_passes.colocation import find_colocation_groups
from graph_passes.errors import GraphError
from graph_passes.fingerprint import graph_fingerprint
from graph_passes.op_graph import OpGraph
from graph_passes.placement import Placement
from graph_passes.renaming import map_names, rename_placement
from graph_passes.restricted_colocation import restrict_colocation
from graph_passes.restrictions import Restrictions
from tf_placer.inputs.step import Step
from tf_placer.inputs.workload import Workload, read_graph
from tf_placer.runs.run_directory import RunDirectory
from tf_placer.search.config import SearchConfig

__all__ = ["NamedWorkload", "name_as_logged"]


@dataclasses.dataclass(frozen=True, eq=False)
class NamedWorkload:
    """A workload under the names that its search has for the operations.

    Attributes:
        workload: the workload with the names of the search.
        given: the workload of the caller.
        names: the name in `given` of each operation, by its name in the search; None if all names
            are the same.
    """

    workload: Workload
    given: Workload
    names: Mapping[str, str] | None = None

    def restore_names(self, placement: Placement) -> Placement:
        """Converts a placement of the search to one of the caller's graph."""
        if self.names is None:
            return placement
        return dataclasses.replace(
            rename_placement(placement, self.names),
            graph_fingerprint=graph_fingerprint(self.given.graph_def),
        )


def name_as_logged(
    workload: Workload, config: SearchConfig, directory: RunDirectory
) -> NamedWorkload:
    """Names the operations of a step as the search in a directory does, if only names differ.

    The graph, the devices in it, the step, and what pins mean must be the same; values of feeds and
    variables may differ.

    Args:
        workload: the graph and its step.
        config: the settings of the search.
        directory: the directory of the search, which may be new.

    Returns:
        The workload with the names of the log, or as it is.
    """
    same = NamedWorkload(workload, workload)
    if not directory.graph.exists():
        return same
    try:
        known, here = read_graph(directory.graph).graph_def, workload.graph_def
        if {node.name for node in known.node} == {node.name for node in here.node}:
            return same
        logged, _ = directory.read_request()
    except (OSError, ValueError):
        return same  # The search reads the files again, and reports errors.
    names = map_names(known, here)
    if names is None or [node.device for node in known.node] != [node.device for node in here.node]:
        return same
    step = _rename_step(workload.step, {new: old for old, new in names.items()}, logged.step)
    if step is None or not _mean_the_same(config.restrictions, logged.op_graph, workload.op_graph):
        return same
    renamed = dataclasses.replace(workload, op_graph=logged.op_graph, step=step, live=None)
    return NamedWorkload(renamed, workload, names)


def _mean_the_same(restrictions: Restrictions | None, *graphs: OpGraph) -> bool:
    """Says whether restrictions, which are by names, are the same for two graphs."""
    if restrictions is None:
        return True
    try:
        one, other = (
            restrict_colocation(graph, find_colocation_groups(graph), restrictions)
            for graph in graphs
        )
    except GraphError:  # A name is in one of the graphs alone.
        return False
    return (
        np.array_equal(one.group, other.group)
        and np.array_equal(one.pinned, other.pinned)
        and one.required == other.required
    )


def _rename_step(step: Step, names: Mapping[str, str], logged: Step) -> Step | None:
    """Renames the operations of a step to those of a logged one.

    Args:
        step: the step.
        names: the logged name of each operation.
        logged: the logged step, whose order of fetches and initializers is kept: it follows from
            the names.

    Returns:
        The step with its own values; None if it is not the logged step.
    """

    def rename(name: str) -> str:
        operation, colon, port = name.partition(":")
        return f"{names[operation]}{colon}{port}"

    def rename_keys(values: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        return {rename(name): value for name, value in values.items()}

    feeds = rename_keys(step.feeds)
    if (
        step.queue_runners
        or logged.queue_runners
        or sorted(map(rename, step.fetches)) != sorted(logged.fetches)
        or sorted(map(rename, step.initializers)) != sorted(logged.initializers)
        or feeds.keys() != logged.feeds.keys()
    ):
        return None
    return Step(
        logged.fetches,
        {name: feeds[name] for name in logged.feeds},
        logged.initializers,
        rename_keys(step.initializer_feeds),
        (),
        rename_keys(step.restored),
    )
