"""The one interface of all passes, and what flows through them."""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING

from graph_passes.errors import GraphError
from graph_passes.util.garbage_collection import paused_garbage_collection

if TYPE_CHECKING:
    import tensorflow as tf

    from graph_passes.colocation import ColocationGroups
    from graph_passes.grouping.grouping import Grouping
    from graph_passes.op_graph import OpGraph
    from graph_passes.placement import Placement

__all__ = ["GraphPass", "GraphState", "PassResult", "Sequential"]


@dataclasses.dataclass(frozen=True, eq=False)
class GraphState:
    """A graph and what the passes have found out about it so far.

    Attributes:
        graph_def: the graph.
        fetches: what a step fetches, by name.
        feeds: the names of the tensors that a step is given.
        op_graph: its operations in columns (from `ReadOperations`).
        colocation: its colocation groups (from `FindColocationGroups`).
        grouping: its groups (from the grouping passes).
        placement: where its operations are to go (given to `Annotate`).
    """

    graph_def: tf.compat.v1.GraphDef
    fetches: tuple[str, ...] = ()
    feeds: tuple[str, ...] = ()
    op_graph: OpGraph | None = None
    colocation: ColocationGroups | None = None
    grouping: Grouping | None = None
    placement: Placement | None = None

    def with_graph(self, graph_def: tf.compat.v1.GraphDef) -> GraphState:
        """Copies the state with another graph, without what was found out about the old one."""
        return dataclasses.replace(
            self, graph_def=graph_def, op_graph=None, colocation=None, grouping=None
        )


@dataclasses.dataclass(frozen=True, eq=False)
class PassResult:
    """What a pass returns.

    Attributes:
        state: the state after the pass.
        modified: whether the pass changed anything.
    """

    state: GraphState
    modified: bool


class GraphPass(abc.ABC):
    """A step from one graph state to the next; it never changes what it was given."""

    @property
    def name(self) -> str:
        """What error messages call the pass."""
        return type(self).__name__

    @abc.abstractmethod
    def run(self, state: GraphState) -> PassResult:
        """Runs the pass.

        Args:
            state: the graph and what earlier passes found out; not changed.

        Returns:
            The new state and whether it differs.

        Raises:
            GraphError: the graph cannot be worked on.
        """


class Sequential(GraphPass):
    """Runs passes one after the other; itself a pass.

    Example:
        >>> state = GraphState(graph_def, fetches=("train",))
        >>> Sequential([ReadOperations(), FindColocationGroups()]).run(state).state.colocation
    """

    def __init__(self, passes: Sequence[GraphPass]) -> None:
        """Composes the passes in the order given."""
        self.passes = tuple(passes)

    @paused_garbage_collection()
    def run(self, state: GraphState) -> PassResult:
        """Runs all passes; an error says which one failed."""
        modified = False
        for graph_pass in self.passes:
            try:
                result = graph_pass.run(state)
            except GraphError as error:
                if not isinstance(graph_pass, Sequential):
                    error.add_note(f"raised by the pass {graph_pass.name}")
                raise
            state = result.state
            modified = modified or result.modified
        return PassResult(state, modified)
