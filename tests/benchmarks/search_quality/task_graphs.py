"""Small task graphs, their files, and the lengths of their shortest schedules by brute force."""

from __future__ import annotations

import importlib.util
import itertools
import random
import sys

from benchmarks.search_quality.published_graphs import TaskGraph
from benchmarks.search_quality.schedule_lengths import compute_length

# A source, two branches and a sink.
DIAMOND = TaskGraph("diamond", 2, (3, 4, 2, 2), ((0, 1, 5), (0, 2, 1), (1, 3, 7), (2, 3, 2)), 10)


def require_usable_solver(case):
    """Skips a test without OR-Tools, and next to TensorFlow, where its solver crashes."""
    if importlib.util.find_spec("ortools") is None:
        case.skipTest("OR-Tools is not installed")
    if "tensorflow" in sys.modules:
        case.skipTest("the solver of OR-Tools crashes in a process with TensorFlow")


def random_graph(seed, num_tasks=6, num_processors=2):
    draw = random.Random(seed)
    edges = tuple(
        (a, b, draw.randint(0, 8))
        for a, b in itertools.combinations(range(num_tasks), 2)
        if draw.random() < 0.3
    )
    lengths = tuple(draw.randint(1, 6) for _ in range(num_tasks))
    return TaskGraph(f"random {seed}", num_processors, lengths, edges, 0)


def topological_orders(graph):
    for order in itertools.permutations(range(graph.num_tasks)):
        places = {task: place for place, task in enumerate(order)}
        if all(places[a] < places[b] for a, b, _ in graph.edges):
            yield order


def shortest_length(graph):
    """Tries all placements and orders."""
    orders = list(topological_orders(graph))
    return min(shortest_order_length(graph, each, orders) for each in list_placements(graph))


def shortest_order_length(graph, placement, orders=None):
    """Tries all orders of a placement."""
    orders = topological_orders(graph) if orders is None else orders
    return min(compute_length(graph, placement, order) for order in orders)


def list_placements(graph):
    return itertools.product(range(graph.num_processors), repeat=graph.num_tasks)


def write_gxl(nodes, edges, processors=2, length=10, more=""):
    """Writes a GXL file: nodes are (id, weight, start, processor), edges (from, to, weight)."""

    def attributes(**values):
        return "".join(
            f'<attr name="{name.replace("_", " ")}"><int>{value}</int></attr>'
            for name, value in values.items()
        )

    graph = attributes(Number_of_processors=processors, Total_schedule_length=length)
    tasks = ""
    for key, weight, start, processor in nodes:
        values = attributes(Weight=weight, Start_time=start, Processor=processor)
        tasks += f'<node id="{key}">{values}</node>'
    messages = "".join(
        f'<edge from="{a}" to="{b}">{attributes(Weight=weight)}</edge>' for a, b, weight in edges
    )
    return (
        '<?xml version="1.0"?><!DOCTYPE gxl SYSTEM "http://www.gupro.de/GXL/gxl-1.0.dtd">'
        f'<gxl><graph id="g">{graph}{more}{tasks}{messages}</graph></gxl>'
    )
