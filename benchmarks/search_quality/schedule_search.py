"""A search for short schedules: simulated annealing over placements and orders."""

from __future__ import annotations

import dataclasses
import math
import random
import time
from collections.abc import Sequence

from benchmarks.search_quality.published_graphs import TaskGraph
from benchmarks.search_quality.schedule_lengths import (
    compute_bound,
    compute_length,
    fifo_length,
    list_by_priority,
)

__all__ = ["Schedule", "SearchLimits", "search_schedule"]


@dataclasses.dataclass(frozen=True)
class _Annealing:
    """Settings of a round of annealing, which cools from the first to the last temperature.

    Attributes:
        steps_per_task: schedules to compute in a round, for each task.
        first_temperature: as a share of the length.
        last_temperature: as a share of the length.
        placement_share: the share of moves that change the processor of a task.
        cluster_share: the share of those that move neighbors on the same processor with it.
        both_share: the share of those that change its place in the order, too.
        restart_share: the share of rounds that begin with the best schedule so far.
    """

    steps_per_task: int = 1000
    first_temperature: float = 0.03
    last_temperature: float = 0.0005
    placement_share: float = 0.6
    cluster_share: float = 0.3
    both_share: float = 0.5
    restart_share: float = 0.5


_ANNEALING = _Annealing()
# Looking at the clock takes as long as a part of a step.
_STEPS_PER_LOOK = 64


@dataclasses.dataclass(frozen=True)
class Schedule:
    """A placement and an order, and what they come to.

    Attributes:
        length: the end of the last task.
        placement: the processor of each task.
        order: all tasks, producers before consumers.
        found_secs: processor time of the search until this schedule was found.
    """

    length: int
    placement: tuple[int, ...]
    order: tuple[int, ...]
    found_secs: float


@dataclasses.dataclass(frozen=True)
class SearchLimits:
    """The end of a search, whichever comes first.

    Attributes:
        max_secs: processor time.
        max_rounds: rounds of annealing.
        enough: no shorter schedule than this is wanted.
    """

    max_secs: float = math.inf
    max_rounds: float = math.inf
    enough: float = 0


def search_schedule(
    graph: TaskGraph,
    placement: Sequence[int],
    limits: SearchLimits,
    *,
    is_fifo: bool = False,
    seed: int = 0,
) -> Schedule:
    """Searches for the shortest schedule.

    Args:
        graph: the graph.
        placement: the processor of each task, to start from.
        limits: when to end. A schedule as short as the longest chain or the work also ends it.
        is_fifo: whether processors run tasks in the order of the simulator, so that the placement
            decides alone. The order of the result means nothing then.
        seed: of everything random.
    """
    if not (math.isfinite(limits.max_secs) or math.isfinite(limits.max_rounds)):
        raise ValueError("a search needs a limit")
    return _Search(graph, limits, is_fifo, seed).run(tuple(placement))


class _Search:
    def __init__(self, graph: TaskGraph, limits: SearchLimits, is_fifo: bool, seed: int) -> None:
        self._start_secs = time.process_time()
        self._graph, self._limits, self._is_fifo = graph, limits, is_fifo
        self._enough = max(limits.enough, compute_bound(graph))
        self._random = random.Random(seed)
        self._best = Schedule(0, (), (), 0.0)
        self._producers = [{task for task, _ in each} for each in graph.inputs]
        self._consumers = [{task for task, _ in each} for each in graph.outputs]
        self._neighbors = [
            inputs + outputs for inputs, outputs in zip(graph.inputs, graph.outputs, strict=True)
        ]

    def run(self, placement: tuple[int, ...]) -> Schedule:
        order = list_by_priority(self._graph, self._graph.rests)
        self._keep(placement, order, self._measure(placement, order))
        rounds = 0
        while rounds < self._limits.max_rounds and not self._is_over():
            is_from_best = rounds == 0 or self._random.random() < _ANNEALING.restart_share
            self._anneal(
                list(self._best.placement if is_from_best else placement),
                list(self._best.order if is_from_best else order),
            )
            rounds += 1
        return self._best

    def _measure(self, placement: Sequence[int], order: Sequence[int]) -> int:
        length = self._measure_within(placement, order, math.inf)
        assert length is not None  # There is no limit.
        return length

    def _measure_within(
        self, placement: Sequence[int], order: Sequence[int], limit: float
    ) -> int | None:
        """Computes a length; None if it exceeds the limit."""
        if not self._is_fifo:
            return compute_length(self._graph, placement, order, limit)
        length = fifo_length(self._graph, placement)
        return length if length <= limit else None

    def _keep(self, placement: Sequence[int], order: Sequence[int], length: int) -> None:
        self._best = Schedule(length, tuple(placement), tuple(order), self._get_elapsed_secs())

    def _get_elapsed_secs(self) -> float:
        return time.process_time() - self._start_secs

    def _is_over(self) -> bool:
        return (
            self._best.length <= self._enough or self._get_elapsed_secs() >= self._limits.max_secs
        )

    def _anneal(self, placement: list[int], order: list[int]) -> None:
        """Anneals once, from a schedule that it changes."""
        draw = self._random.random
        length = self._measure(placement, order)
        num_steps = _ANNEALING.steps_per_task * self._graph.num_tasks
        cooling = math.log(_ANNEALING.last_temperature / _ANNEALING.first_temperature) / num_steps
        first = _ANNEALING.first_temperature * self._best.length
        for step in range(num_steps):
            temperature = first * math.exp(cooling * step)
            limit = length - temperature * math.log(1.0 - draw())
            new_placement, new_order = self._move(placement, order)
            found = self._measure_within(new_placement, new_order, limit)
            if found is not None:
                placement, order, length = new_placement, new_order, found
                if length < self._best.length:
                    self._keep(placement, order, length)
                    if self._best.length <= self._enough:
                        return
            if not step % _STEPS_PER_LOOK and self._is_over():
                return

    def _move(self, placement: list[int], order: list[int]) -> tuple[list[int], list[int]]:
        """Moves tasks to another processor, or a task to another place in the order, or both."""
        draw = self._random.random
        task = int(draw() * self._graph.num_tasks)
        if self._is_fifo or draw() < _ANNEALING.placement_share:
            # All empty processors are alike.
            num_choices = min(max(placement) + 2, self._graph.num_processors)
            target = int(draw() * num_choices)
            if draw() < _ANNEALING.cluster_share:
                cluster = self._grow_cluster(task, placement)
            else:
                cluster = {task}
            placement = placement.copy()
            for each in cluster:
                placement[each] = target
            if self._is_fifo or draw() >= _ANNEALING.both_share:
                return placement, order
        return placement, self._move_in_order(task, order)

    def _grow_cluster(self, task: int, placement: list[int]) -> set[int]:
        """Draws tasks that are connected with a task on its processor."""
        draw = self._random.random
        # Most clusters would be all of their processor if every neighbor was taken.
        share = draw()
        cluster, waiting = {task}, [task]
        while waiting:
            for neighbor, _ in self._neighbors[waiting.pop()]:
                if (
                    neighbor not in cluster
                    and placement[neighbor] == placement[task]
                    and draw() < share
                ):
                    cluster.add(neighbor)
                    waiting.append(neighbor)
        return cluster

    def _move_in_order(self, task: int, order: list[int]) -> list[int]:
        """Moves a task to any place between its producers and its consumers."""
        place = low = high = order.index(task)
        while low and order[low - 1] not in self._producers[task]:
            low -= 1
        while high + 1 < len(order) and order[high + 1] not in self._consumers[task]:
            high += 1
        new_place = low + int(self._random.random() * (high - low + 1))
        order = order[:place] + order[place + 1 :]
        order.insert(new_place, task)
        return order
