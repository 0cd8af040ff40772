"""Finds the queue runners that a step needs, and queues that nothing fills."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from graph_passes.errors import GraphError
from graph_passes.op_graph import OpGraph
from tf_placer.inputs.step import QueueRunner

__all__ = ["check_queues_are_filled", "find_needed_queue_runners"]

# Operations that take from a queue or fill it, with the index of the queue among their inputs.
_TAKING = {
    "QueueDequeue": 0,
    "QueueDequeueMany": 0,
    "QueueDequeueManyV2": 0,
    "QueueDequeueUpTo": 0,
    "QueueDequeueUpToV2": 0,
    "QueueDequeueV2": 0,
    "ReaderRead": 1,
    "ReaderReadUpTo": 1,
    "ReaderReadUpToV2": 1,
    "ReaderReadV2": 1,
}
_FILLING = {
    "QueueEnqueue": 0,
    "QueueEnqueueMany": 0,
    "QueueEnqueueManyV2": 0,
    "QueueEnqueueV2": 0,
}
# Operations that pass the handle of a queue through; a switch does so in a conditional only.
_SWITCHES = frozenset({"RefSwitch", "Switch"})
_PASSING = _SWITCHES | {"Enter", "Identity", "RefEnter", "RefIdentity"}


def find_needed_queue_runners(
    graph: OpGraph, runners: Iterable[QueueRunner]
) -> tuple[QueueRunner, ...]:
    """Finds the queue runners that a step waits for, directly or through other runners.

    Args:
        graph: the graph, with the operations of the step marked.
        runners: the queue runners of the graph's collections; the graph may lack their operations.

    Returns:
        The runners that fill a queue from which the step or another returned runner takes.
    """
    whole = [runner for runner in runners if _is_complete(graph, runner)]
    chosen: list[QueueRunner] = []
    waiting = [graph.needed]
    while waiting:
        taken = _find_queues(graph, waiting.pop(), _TAKING)
        for runner in whole:
            if runner not in chosen and _find_queue_name(graph, graph.index[runner.queue]) in taken:
                chosen.append(runner)
                waiting.append(graph.restrict(runner.enqueue).needed)
    return tuple(runner for runner in whole if runner in chosen)


def check_queues_are_filled(
    graph: OpGraph, runners: Iterable[QueueRunner], initializers: Sequence[str]
) -> None:
    """Refuses a step that takes from a queue that nothing fills, because it would wait forever.

    Operations in a conditional are not refused, because they may never run.

    Args:
        graph: the graph, with the operations of the step marked.
        runners: the queue runners that run beside the step.
        initializers: names of the operations that run before the step.

    Raises:
        GraphError: there is such a queue; the message names the operation that waits for it.
    """
    enqueuing = [name for runner in runners for name in runner.enqueue]
    beside = graph.restrict(enqueuing).needed if enqueuing else np.zeros_like(graph.needed)
    before = graph.restrict(initializers).needed if initializers else np.zeros_like(graph.needed)
    waited = _find_queues(graph, graph.needed | beside, _TAKING, conditional=False)
    if not waited:
        return
    filled = _find_queues(graph, graph.needed | beside | before, _FILLING)
    for queue, operation in waited.items():
        if queue not in filled:
            raise GraphError(
                f"{graph.names[operation]!r} waits for the queue {queue!r}, which nothing fills in "
                "the step: pass the graph with the collection of its queue runners, as a tf.Graph "
                "or a .meta file; or feed what is taken from the queue"
            )


def _is_complete(graph: OpGraph, runner: QueueRunner) -> bool:
    names = (runner.queue, *runner.enqueue, runner.close, runner.cancel)
    return bool(runner.enqueue) and all(name in graph.index for name in names)


def _find_queues(
    graph: OpGraph, needed: np.ndarray, inputs: dict[str, int], *, conditional: bool = True
) -> dict[str, int]:
    """Maps the queues that needed operations of some types use to one of these operations."""
    found: dict[str, int] = {}
    for i in np.flatnonzero(needed & graph.has_type(inputs)).tolist():
        producer = graph.producers[i][inputs[graph.type_of(i)]]
        is_conditional = False
        while graph.type_of(producer) in _PASSING:
            is_conditional |= graph.type_of(producer) in _SWITCHES
            producer = graph.producers[producer][0]
        # An argument of a function is skipped, because it may stand for any queue.
        if "Queue" in graph.type_of(producer) and (conditional or not is_conditional):
            found.setdefault(_find_queue_name(graph, producer), i)
    return found


def _find_queue_name(graph: OpGraph, queue: int) -> str:
    """Returns the shared name of a queue, by which several operations refer to it."""
    shared = graph.graph_def.node[queue].attr["shared_name"].s.decode()
    return shared or graph.names[queue]
