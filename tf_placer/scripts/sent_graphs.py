"""What sessions know of their graphs, and where they run them."""

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
from tf_placer.scripts.training_steps import operations_behind

__all__ = [
    "SentGraphs",
    "check_runs_elsewhere",
    "check_sent_whole",
    "is_session_of",
    "move_session",
]

_WITHOUT_STATE = frozenset({"Placeholder", "PlaceholderV2", "PlaceholderWithDefault"})


class SentGraphs:
    """How many operations of its graph each open session was sent, extension by extension."""

    def __init__(self) -> None:
        self._counts: weakref.WeakKeyDictionary[Any, list[int]] = weakref.WeakKeyDictionary()
        self._versions: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()

    def note(self, session: Any) -> list[int] | None:
        """Notes what a session is sent now.

        Args:
            session: a BaseSession.

        Returns:
            What `counts` gave before; None if nothing is new.
        """
        # Sessions ask before every run; to list the operations takes time.
        if self._versions.get(session) == session.graph.version:
            return None
        before = self.counts(session.graph)
        self._versions[session] = session.graph.version
        self._counts.setdefault(session, []).append(len(session.graph.get_operations()))
        return before

    def counts(self, graph: tf.Graph) -> list[int]:
        """Lists how many operations a graph had whenever an open session was sent what it had."""
        return [count for each in self.sessions(graph) for count in self._counts[each]]

    def sessions(self, graph: tf.Graph) -> Iterator[Any]:
        """Yields the open sessions that were sent something of a graph."""
        for session in [*self._counts]:
            if session.graph is graph and not session._closed:
                yield session


def check_sent_whole(
    graph: tf.Graph, fetches: Iterable[str], sent: Iterable[int], machine: Machine
) -> None:
    """Checks that a step can be placed although sessions were sent a part of the graph before it.

    A session takes no device for an operation that it knows. One that moves to other processes is
    sent everything again, but loses what it holds.

    Args:
        graph: the graph.
        fetches: what the step fetches.
        sent: how many operations the graph had when sessions were sent what it had.
        machine: where the step is to be placed.

    Raises:
        GraphError: something of the step, or on other processes something that holds a value, was
            sent without another operation of the step; the message names both.
    """
    operations = graph.get_operations()
    needed = operations_behind(graph, fetches)
    places = [place for place, each in enumerate(operations) if each.name in needed]
    early = places if machine.backend.in_one_process else _places_of_state(operations)
    for count in sent:
        if early and early[0] < count <= places[-1]:
            raise GraphError(
                f"a session ran {operations[early[0]].name!r} before "
                f"{operations[places[-1]].name!r} was in the graph: make the whole step before the "
                "first run, that of the initializers included"
            )


def check_runs_elsewhere(graph_def: tf.compat.v1.GraphDef, machine: Machine) -> None:
    """Makes sure that all of a graph can run on a machine: sessions run more of it than a step.

    Raises:
        GraphError: something can only run in this process; the message names it.
    """
    if machine.backend.in_one_process or (name := find_python_call(graph_def)) is None:
        return
    raise GraphError(
        f"{name!r} calls a Python function (py_func, numpy_function, py_function or "
        f"Dataset.from_generator), and {machine.spec} is other processes, which do not have it: "
        "only --machine attached can place what calls Python; or feed what the function makes, or "
        "make it with operations of TensorFlow"
    )


def _places_of_state(operations: Iterable[tf.Operation]) -> list[int]:
    return [
        place
        for place, each in enumerate(operations)
        if each.op_def.is_stateful and each.type not in _WITHOUT_STATE
    ]


def is_session_of(machine: Machine, session: Any) -> bool:
    """Says whether a session is the machine's: it names no other target.

    Args:
        machine: the machine.
        session: a BaseSession.
    """
    target = tf.compat.as_str(session._target or b"")
    return not target or target in {f"grpc://{address}" for address in machine.addresses}


def move_session(session: Any, target: str) -> None:
    """Has a session run its graph elsewhere from now on. What it holds is lost.

    Args:
        session: a BaseSession.
        target: where, as `tf.compat.v1.Session` takes it.
    """
    config = config_pb2.ConfigProto()
    config.CopyFrom(session._config)
    # Sessions of one process do not share their variables.
    config.isolate_session_state = True
    other = BaseSession(target, session.graph, config)
    session._session, other._session = other._session, session._session
    session._target, session._config = other._target, other._config
    other.close()
