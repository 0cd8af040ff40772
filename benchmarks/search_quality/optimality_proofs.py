"""Exact answers about schedules by the constraint solver CP-SAT of OR-Tools.

The model keeps the classic rules of `schedule_lengths`, with every order, so that what it excludes
no schedule reaches.
"""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Sequence
from typing import Any, Literal

from benchmarks.search_quality.published_graphs import TaskGraph
from benchmarks.search_quality.schedule_lengths import compute_bound, fifo_length

__all__ = ["Proof", "find_best_order_length", "prove_optimal", "require_solver"]

_LOOK_SECS = 0.05


@dataclasses.dataclass(frozen=True)
class Proof:
    """The outcome of an attempt to prove that no schedule is shorter.

    Attributes:
        outcome: "bound" if the longest chain or the work takes as long; "solver" if CP-SAT excluded
            every shorter schedule; "shorter" if it found one; "unknown" after the time limit.
        secs: processor time of the attempt.
    """

    outcome: Literal["bound", "solver", "shorter", "unknown"]
    secs: float


def require_solver() -> None:
    """Checks that OR-Tools is installed.

    Raises:
        ImportError: it is not; the message says how to install it.
    """
    try:
        from ortools.sat.python import cp_model  # noqa: F401
    except ImportError as error:
        raise ImportError(f"proofs need OR-Tools: pip install '.[proofs]' ({error})") from None


def prove_optimal(graph: TaskGraph, length: int, *, max_secs: float, seed: int = 0) -> Proof:
    """Tries to prove that no placement and no order is shorter than this.

    Args:
        graph: the graph.
        length: the length of a known schedule.
        max_secs: processor time of the solver.
        seed: of the solver.

    Raises:
        ImportError: OR-Tools is not installed.
    """
    require_solver()
    start_secs = time.process_time()
    if length <= compute_bound(graph):
        return Proof("bound", time.process_time() - start_secs)
    status, _ = _solve(_ScheduleModel(graph, length - 1), max_secs, seed)
    outcomes: dict[str, Literal["solver", "shorter"]] = {
        "INFEASIBLE": "solver",
        "OPTIMAL": "shorter",
        "FEASIBLE": "shorter",
    }
    return Proof(outcomes.get(status, "unknown"), time.process_time() - start_secs)


def find_best_order_length(
    graph: TaskGraph, placement: Sequence[int], *, max_secs: float, seed: int = 0
) -> int | None:
    """Finds the length of a placement with its best order.

    Args:
        graph: the graph.
        placement: the processor of each task.
        max_secs: processor time of the solver.
        seed: of the solver.

    Returns:
        The length; None if the solver did not find the best order in time.

    Raises:
        ImportError: OR-Tools is not installed.
    """
    require_solver()
    model = _ScheduleModel(graph, fifo_length(graph, placement), placement)
    model.minimize_length()
    status, length = _solve(model, max_secs, seed)
    return round(length) if status == "OPTIMAL" else None


class _ScheduleModel:
    """The schedules of a graph that end in time.

    Attributes:
        model: the `CpModel`.
    """

    def __init__(
        self, graph: TaskGraph, latest_end: int, placement: Sequence[int] | None = None
    ) -> None:
        """Makes the model.

        Args:
            graph: the graph.
            latest_end: no task ends later.
            placement: the processor of each task; None if it is free.
        """
        from ortools.sat.python import cp_model

        self.model = cp_model.CpModel()
        self._graph, self._latest_end = graph, latest_end
        self._starts = [self._add_start(task) for task in range(graph.num_tasks)]
        if placement is None:
            self._choices = [self._add_choices(task) for task in range(graph.num_tasks)]
            self._add_processors()
            for producer, consumer, message in graph.edges:
                is_same = self._add_is_same(producer, consumer)
                self._add_message(producer, consumer, message - message * is_same)
        else:
            self._add_placement(placement)

    def minimize_length(self) -> None:
        """Adds the length as the objective."""
        end = self.model.new_int_var(0, self._latest_end, "")
        for start, length in zip(self._starts, self._graph.lengths, strict=True):
            self.model.add(end >= start + length)
        self.model.minimize(end)

    def _add_start(self, task: int) -> Any:
        earliest = self._graph.earliest_starts[task]
        latest = self._latest_end - self._graph.lengths[task] - self._graph.rests[task]
        if latest < earliest:
            self.model.add_bool_or([])  # Nothing satisfies it.
        return self.model.new_int_var(earliest, max(earliest, latest), "")

    def _add_choices(self, task: int) -> list[Any]:
        # Processors are alike, so number them by the first task of each.
        num_choices = min(task + 1, self._graph.num_processors)
        choices = [self.model.new_bool_var("") for _ in range(num_choices)]
        self.model.add_exactly_one(choices)
        return choices

    def _add_processors(self) -> None:
        """Lets each processor run one task at a time, and not more than fits before the end."""
        for processor in range(self._graph.num_processors):
            chosen = [
                (task, choices[processor])
                for task, choices in enumerate(self._choices)
                if processor < len(choices)
            ]
            lengths = self._graph.lengths
            self.model.add_no_overlap(
                self.model.new_optional_fixed_size_interval_var(
                    self._starts[task], lengths[task], choice, ""
                )
                for task, choice in chosen
            )
            self.model.add(
                sum(lengths[task] * choice for task, choice in chosen) <= self._latest_end
            )

    def _add_is_same(self, producer: int, consumer: int) -> Any:
        """Adds whether two tasks run on one processor."""
        is_same = self.model.new_bool_var("")
        for processor, second in enumerate(self._choices[consumer]):
            if processor >= len(self._choices[producer]):
                self.model.add_implication(is_same, ~second)
                continue
            first = self._choices[producer][processor]
            self.model.add_bool_or(~is_same, ~first, second)
            self.model.add_bool_or(~is_same, ~second, first)
            self.model.add_bool_or(is_same, ~first, ~second)
        return is_same

    def _add_message(self, producer: int, consumer: int, delay: Any) -> None:
        length = self._graph.lengths[producer]
        self.model.add(self._starts[consumer] >= self._starts[producer] + length + delay)

    def _add_placement(self, placement: Sequence[int]) -> None:
        for processor in set(placement):
            self.model.add_no_overlap(
                self.model.new_fixed_size_interval_var(
                    self._starts[task], self._graph.lengths[task], ""
                )
                for task in range(self._graph.num_tasks)
                if placement[task] == processor
            )
        for producer, consumer, message in self._graph.edges:
            is_same = placement[producer] == placement[consumer]
            self._add_message(producer, consumer, 0 if is_same else message)


def _solve(model: _ScheduleModel, max_secs: float, seed: int) -> tuple[str, float]:
    """Solves a model.

    Returns:
        The name of the status, and the value of the objective.
    """
    from ortools.sat.python import cp_model

    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.random_seed = seed
    # Linear relaxations of these models bound next to nothing.
    solver.parameters.linearization_level = 0
    has_ended = threading.Event()
    start_secs = time.process_time()

    def limit_time() -> None:
        while not has_ended.wait(_LOOK_SECS):
            if time.process_time() - start_secs >= max_secs:
                solver.stop_search()

    # The time limit of the solver is wall time, which other work on the computer uses up.
    watcher = threading.Thread(target=limit_time)
    watcher.start()
    try:
        status = solver.status_name(solver.solve(model.model))
    finally:
        has_ended.set()
        watcher.join()
    return status, solver.objective_value if status == "OPTIMAL" else 0.0
