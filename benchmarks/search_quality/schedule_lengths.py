"""Lengths of schedules under the classic rules, in which messages do not wait for each other.

A task runs when its inputs have arrived; a message between different processors takes its time,
whatever else is sent; a processor runs one task at a time, to its end. An order that keeps
producers before consumers gives the shortest schedule in which each processor runs its tasks in
that order, and the shortest of all schedules is among those.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence

from benchmarks.search_quality.published_graphs import TaskGraph

__all__ = ["compute_bound", "compute_length", "fifo_length", "list_by_priority"]


def compute_length(
    graph: TaskGraph,
    placement: Sequence[int],
    order: Sequence[int],
    limit: float = float("inf"),
) -> int | None:
    """Computes the length of a schedule.

    Args:
        graph: the graph.
        placement: the processor of each task.
        order: all tasks, producers before consumers.
        limit: a longer schedule need not be computed to its end.

    Returns:
        The end of the last task; None if that exceeds the limit.
    """
    inputs, lengths, rests = graph.inputs, graph.lengths, graph.rests
    ends = [0] * len(lengths)
    free = [0] * graph.num_processors
    for task in order:
        processor = placement[task]
        start = free[processor]
        for producer, message in inputs[task]:
            arrival = ends[producer]
            if placement[producer] != processor:
                arrival += message
            if arrival > start:
                start = arrival
        end = start + lengths[task]
        if end + rests[task] > limit:
            return None
        ends[task] = free[processor] = end
    return max(free)


def fifo_length(graph: TaskGraph, placement: Sequence[int]) -> int:
    """Computes the length where processors run tasks in the order in which their inputs arrive.

    This is the order of the simulator. Of tasks that are ready at once, the first in the
    topological order runs first.

    Args:
        graph: the graph.
        placement: the processor of each task.
    """
    num_missing = [len(each) for each in graph.inputs]
    arrivals = [0] * graph.num_tasks
    free = [0] * graph.num_processors
    # No task becomes ready before the tasks that were ready before its producers.
    ready = [(0, task) for task, missing in enumerate(num_missing) if not missing]
    while ready:
        arrival, task = heapq.heappop(ready)
        processor = placement[task]
        end = free[processor] = max(arrival, free[processor]) + graph.lengths[task]
        for consumer, message in graph.outputs[task]:
            delay = message if placement[consumer] != processor else 0
            arrivals[consumer] = max(arrivals[consumer], end + delay)
            num_missing[consumer] -= 1
            if not num_missing[consumer]:
                heapq.heappush(ready, (arrivals[consumer], consumer))
    return max(free)


def list_by_priority(graph: TaskGraph, priorities: Sequence[float]) -> list[int]:
    """Lists all tasks, producers before consumers, of several the largest priority first.

    Args:
        graph: the graph.
        priorities: a number for each task.
    """
    num_missing = [len(each) for each in graph.inputs]
    ready = [(-priorities[task], task) for task, missing in enumerate(num_missing) if not missing]
    heapq.heapify(ready)
    order = []
    while ready:
        _, task = heapq.heappop(ready)
        order.append(task)
        for consumer, _ in graph.outputs[task]:
            num_missing[consumer] -= 1
            if not num_missing[consumer]:
                heapq.heappush(ready, (-priorities[consumer], consumer))
    return order


def compute_bound(graph: TaskGraph) -> int:
    """Bounds the length of every schedule by its longest chain and by its work."""
    chain = max(
        start + length + rest
        for start, length, rest in zip(
            graph.earliest_starts, graph.lengths, graph.rests, strict=True
        )
    )
    return max(chain, -(-sum(graph.lengths) // graph.num_processors))
