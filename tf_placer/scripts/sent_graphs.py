"""Tracks the part of its graph that each session has received, and moves sessions to a machine."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator
from typing import Any

import tensorflow as tf
from tensorflow.core.protobuf import config_pb2
from tensorflow.python.client.session import BaseSession

from graph_passes.errors import GraphError
from tf_placer.inputs.python_functions import find_python_call
from tf_placer.machines.machine import Machine
from tf_placer.scripts.training_steps import find_needed_operations

__all__ = [
    "SentGraphs",
    "check_runs_elsewhere",
    "check_sent_at_once",
    "is_session_of",
    "move_session",
]

_WITHOUT_STATE = frozenset({"Placeholder", "PlaceholderV2", "PlaceholderWithDefault"})


class SentGraphs:
    """The number of operations that each open session has received with each graph extension."""

    def __init__(self) -> None:
        self._counts: weakref.WeakKeyDictionary[Any, list[int]] = weakref.WeakKeyDictionary()
        self._versions: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()

    def note(self, session: Any) -> list[int] | None:
        """Records that a session receives all of its graph.

        Args:
            session: a BaseSession.

        Returns:
            The former value of `counts`; None if the graph has no new operations.
        """
        # Called before every run, while listing the operations takes time.
        if self._versions.get(session) == session.graph.version:
            return None
        before = self.counts(session.graph)
        self._versions[session] = session.graph.version
        self._counts.setdefault(session, []).append(len(session.graph.get_operations()))
        return before

    def counts(self, graph: tf.Graph) -> list[int]:
        """Lists the sizes that a graph had whenever an open session received it."""
        return [count for each in self.sessions(graph) for count in self._counts[each]]

    def sessions(self, graph: tf.Graph) -> Iterator[Any]:
        """Yields the open sessions that have received a part of a graph."""
        for session in [*self._counts]:
            if session.graph is graph and not session._closed:
                yield session


def check_sent_at_once(
    graph: tf.Graph, fetches: Iterable[str], sent: Iterable[int], machine: Machine
) -> None:
    """Checks that a step can be placed although sessions have received a part of the graph.

    The device of an operation cannot change after a session has received it. A session that moves
    to other processes receives the whole graph again, but loses its state.

    Args:
        graph: the graph.
        fetches: the fetches of the step.
        sent: the sizes of the graph when sessions received it.
        machine: the machine that is to run the step.

    Raises:
        GraphError: sessions have received only a part of the step; or, on other processes, an
            operation with state before the whole step. The message names two operations.
    """
    operations = graph.get_operations()
    needed = find_needed_operations(graph, fetches)
    places = [place for place, each in enumerate(operations) if each.name in needed]
    early = places if machine.backend.in_one_process else _find_state_positions(operations)
    for count in sent:
        if early and early[0] < count <= places[-1]:
            raise GraphError(
                f"a session ran {operations[early[0]].name!r} before "
                f"{operations[places[-1]].name!r} was in the graph: make the whole step before the "
                "first run, that of the initializers included"
            )


def check_runs_elsewhere(graph_def: tf.compat.v1.GraphDef, machine: Machine) -> None:
    """Checks that a whole graph can run on a machine, because sessions run more than the step.

    Raises:
        GraphError: an operation can only run in this process; the message names it.
    """
    if machine.backend.in_one_process or (name := find_python_call(graph_def)) is None:
        return
    raise GraphError(
        f"{name!r} calls a Python function (py_func, numpy_function, py_function or "
        f"Dataset.from_generator), and {machine.spec} is other processes, which do not have it: "
        "only --machine attached can place what calls Python; or feed what the function makes, or "
        "make it with operations of TensorFlow"
    )


def _find_state_positions(operations: Iterable[tf.Operation]) -> list[int]:
    return [
        place
        for place, each in enumerate(operations)
        if each.op_def.is_stateful and each.type not in _WITHOUT_STATE
    ]


def is_session_of(machine: Machine, session: Any) -> bool:
    """Says whether a session has the machine as its target, or no target.

    Args:
        machine: the machine.
        session: a BaseSession.
    """
    target = tf.compat.as_str(session._target or b"")
    return not target or target in {f"grpc://{address}" for address in machine.addresses}


def move_session(session: Any, target: str) -> None:
    """Moves a session to another target; its state is lost.

    Args:
        session: a BaseSession.
        target: the new target, as for `tf.compat.v1.Session`.
    """
    config = config_pb2.ConfigProto()
    config.CopyFrom(session._config)
    # Sessions of one process do not share their variables, so sessions on servers must not either.
    config.isolate_session_state = True
    other = BaseSession(target, session.graph, config)
    session._session, other._session = other._session, session._session
    session._target, session._config = other._target, other._config
    other.close()
