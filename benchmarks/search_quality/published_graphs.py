"""Published task graphs with known optimal schedule lengths, read from GXL files.

A file has one graph: tasks with a weight (how long they run), edges with a weight (how long the
message takes between different processors), the number of processors, the length of an optimal
schedule, and that schedule: a start and a processor for each task.
"""

from __future__ import annotations

import dataclasses
import functools
import heapq
import os
import pathlib
import xml.etree.ElementTree as ElementTree
from collections.abc import Sequence

__all__ = ["TaskGraph", "read_task_graph", "sort_topologically"]

_PROCESSORS = "Number of processors"
_OPTIMAL_LENGTH = "Total schedule length"
_SOLVER_MILLISECONDS = "Time to schedule (ms)"


@dataclasses.dataclass(frozen=True)
class TaskGraph:
    """Tasks on equal processors, in units of time of the publication.

    Tasks have numbers in a topological order: edges lead from smaller to larger numbers.

    Attributes:
        name: the name of the file without its ending.
        num_processors: processors, which are all alike.
        lengths: for each task how long it runs.
        edges: (producer, consumer, message): the message takes so long between two processors, and
            no time on one.
        optimal_length: the published length of the shortest schedule.
        says_solver_time: whether the file says how long the solver of the publication took.
    """

    name: str
    num_processors: int
    lengths: tuple[int, ...]
    edges: tuple[tuple[int, int, int], ...]
    optimal_length: int
    says_solver_time: bool = False

    @property
    def num_tasks(self) -> int:
        """The number of tasks."""
        return len(self.lengths)

    @functools.cached_property
    def inputs(self) -> tuple[tuple[tuple[int, int], ...], ...]:
        """For each task its (producer, message) pairs."""
        pairs: list[list[tuple[int, int]]] = [[] for _ in self.lengths]
        for producer, consumer, message in self.edges:
            pairs[consumer].append((producer, message))
        return tuple(map(tuple, pairs))

    @functools.cached_property
    def outputs(self) -> tuple[tuple[tuple[int, int], ...], ...]:
        """For each task its (consumer, message) pairs."""
        pairs: list[list[tuple[int, int]]] = [[] for _ in self.lengths]
        for producer, consumer, message in self.edges:
            pairs[producer].append((consumer, message))
        return tuple(map(tuple, pairs))

    @functools.cached_property
    def rests(self) -> tuple[int, ...]:
        """For each task the longest chain of tasks after it, without messages."""
        rests = [0] * self.num_tasks
        for task in reversed(range(self.num_tasks)):
            for consumer, _ in self.outputs[task]:
                rests[task] = max(rests[task], self.lengths[consumer] + rests[consumer])
        return tuple(rests)

    @functools.cached_property
    def earliest_starts(self) -> tuple[int, ...]:
        """For each task the longest chain of tasks before it, without messages."""
        starts = [0] * self.num_tasks
        for producer, consumer, _ in sorted(self.edges):
            starts[consumer] = max(starts[consumer], starts[producer] + self.lengths[producer])
        return tuple(starts)


def read_task_graph(path: str | os.PathLike[str]) -> TaskGraph:
    """Reads a graph, and checks that its schedule keeps the rules and has the published length.

    Raises:
        OSError: the file cannot be read.
        ValueError: the file is no such graph; the message names the file.
    """
    path = pathlib.Path(path)
    content = path.read_bytes()
    try:
        return _parse_graph(path.stem, content)
    except ElementTree.ParseError as error:
        raise ValueError(f"{path} is no XML: {error}") from None
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def sort_topologically(num_tasks: int, edges: Sequence[tuple[int, int]]) -> list[int]:
    """Sorts tasks so that producers come before consumers; of several, the smallest first.

    Args:
        num_tasks: how many tasks.
        edges: (producer, consumer) pairs.

    Raises:
        ValueError: the edges have a cycle.
    """
    consumers: list[list[int]] = [[] for _ in range(num_tasks)]
    num_inputs = [0] * num_tasks
    for producer, consumer in edges:
        consumers[producer].append(consumer)
        num_inputs[consumer] += 1
    ready = [task for task in range(num_tasks) if not num_inputs[task]]
    order = []
    while ready:
        order.append(heapq.heappop(ready))
        for consumer in consumers[order[-1]]:
            num_inputs[consumer] -= 1
            if not num_inputs[consumer]:
                heapq.heappush(ready, consumer)
    if len(order) < num_tasks:
        raise ValueError("the edges have a cycle")
    return order


def _parse_graph(name: str, content: bytes) -> TaskGraph:
    element = ElementTree.fromstring(content).find("graph")
    if element is None:
        raise ValueError("it has no graph")
    num_processors = _read_number(element, _PROCESSORS, "the graph", least=1)
    optimal_length = _read_number(element, _OPTIMAL_LENGTH, "the graph")
    nodes: dict[str, ElementTree.Element] = {}
    for node in element.iterfind("node"):
        key = node.get("id")
        if key is None or key in nodes:
            raise ValueError(f"a node has {'no id' if key is None else f'the id {key} of another'}")
        nodes[key] = node
    if not nodes:
        raise ValueError("it has no nodes")
    numbers = {key: number for number, key in enumerate(nodes)}
    messages: dict[tuple[int, int], int] = {}
    for edge in element.iterfind("edge"):
        ends = tuple(edge.get(end) for end in ("from", "to"))
        text = f"the edge from {ends[0]} to {ends[1]}"
        unknown = [str(end) for end in ends if end not in numbers]
        if unknown:
            raise ValueError(f"{text} has no node {unknown[0]}")
        pair = (numbers[str(ends[0])], numbers[str(ends[1])])
        if pair in messages:
            raise ValueError(f"{text} is there twice")
        messages[pair] = _read_number(edge, "Weight", text)
    order = sort_topologically(len(nodes), list(messages))
    places = {task: place for place, task in enumerate(order)}
    keys = list(nodes)

    def read_nodes(attribute: str) -> tuple[int, ...]:
        return tuple(
            _read_number(nodes[keys[task]], attribute, f"node {keys[task]}") for task in order
        )

    graph = TaskGraph(
        name,
        num_processors,
        read_nodes("Weight"),
        tuple(sorted((places[a], places[b], message) for (a, b), message in messages.items())),
        optimal_length,
        _find_attribute(element, _SOLVER_MILLISECONDS) is not None,
    )
    _check_schedule(
        graph, [keys[task] for task in order], read_nodes("Start time"), read_nodes("Processor")
    )
    return graph


def _find_attribute(element: ElementTree.Element, name: str) -> str | None:
    for attribute in element.iterfind("attr"):
        if attribute.get("name") == name:
            return attribute.findtext("int")
    return None


def _read_number(element: ElementTree.Element, name: str, owner: str, least: int = 0) -> int:
    text = _find_attribute(element, name)
    if text is None:
        raise ValueError(f'{owner} has no whole number "{name}"')
    try:
        number = int(text)
    except ValueError:
        raise ValueError(f'"{name}" of {owner} is no whole number: {text!r}') from None
    if number < least:
        raise ValueError(f'"{name}" of {owner} must be at least {least}, not {number}')
    return number


def _check_schedule(
    graph: TaskGraph, keys: Sequence[str], starts: Sequence[int], processors: Sequence[int]
) -> None:
    """Checks that a schedule keeps the rules and ends at the published length.

    Args:
        graph: the graph.
        keys: the nodes of the file by the numbers of the tasks, for messages.
        starts: the start of each task.
        processors: the processor of each task.

    Raises:
        ValueError: it does not.
    """
    ends = [start + length for start, length in zip(starts, graph.lengths, strict=True)]
    if len(set(processors)) > graph.num_processors:
        raise ValueError(f"its schedule has more than {graph.num_processors} processors")
    last: dict[int, int] = {}
    for task in sorted(range(graph.num_tasks), key=lambda task: (starts[task], ends[task])):
        if starts[task] < last.get(processors[task], 0):
            raise ValueError(f"its schedule starts node {keys[task]} while another runs")
        last[processors[task]] = ends[task]
    for producer, consumer, message in graph.edges:
        delay = message if processors[producer] != processors[consumer] else 0
        if starts[consumer] < ends[producer] + delay:
            raise ValueError(f"its schedule starts node {keys[consumer]} before its inputs arrive")
    if max(ends) != graph.optimal_length:
        raise ValueError(f"its schedule ends at {max(ends)}, not at {graph.optimal_length}")
