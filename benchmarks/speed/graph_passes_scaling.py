"""The growth of the graph passes' time and memory with the size of a graph.

Unrolls the LSTM language model further and further, and measures every stage from a GraphDef to a
placed GraphDef, each graph in a process of its own.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import dataclasses
import multiprocessing
import os
import resource
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np
import tensorflow as tf

from benchmarks.harness.table_file import write_table
from benchmarks.models import language_model
from benchmarks.models.training_model import TrainingModel
from graph_passes.annotate import Annotate
from graph_passes.canonical_form import find_canonical_form
from graph_passes.colocation import find_colocation_groups
from graph_passes.fingerprint import graph_fingerprint
from graph_passes.grouping.build_group_graph import build_group_graph
from graph_passes.grouping.default_groups import default_groups
from graph_passes.grouping.grouping import Grouping
from graph_passes.grouping.model_rules import seal_model_groups
from graph_passes.grouping.single_consumer import merge_single_consumers
from graph_passes.op_graph import OpGraph
from graph_passes.placement import assignment_of, operation_groups
from graph_passes.util.garbage_collection import pause_garbage_collection
from tf_placer.text.table import table

__all__ = ["main"]

_SIZES = (12_500, 25_000, 50_000, 100_000)
_DEVICES = tuple(f"/job:localhost/replica:0/task:0/device:CPU:{i}" for i in range(2))
_Result = TypeVar("_Result")
_NOTES = """
s: processor seconds, on one core. ms/1000: milliseconds per 1000 operations.
MB: the most memory held beyond the GraphDef and the libraries.
"""


@dataclasses.dataclass(frozen=True)
class _Measured:
    """The costs of one graph.

    Attributes:
        num_operations: operations of the graph.
        num_groups: groups that were found.
        secs: seconds of processor time of each stage, by name, in order; all run on one core.
        peak_bytes: the most memory that the process held beyond what it held before.
    """

    num_operations: int
    num_groups: int
    secs: dict[str, float]
    peak_bytes: int


def main() -> None:
    """Builds and measures graphs of growing size and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--operations",
        type=int,
        nargs="+",
        default=_SIZES,
        help="sizes of the graphs, about (default 12500 25000 50000 100000)",
    )
    args = parser.parse_args()
    results = []
    # Every graph is built by one process and measured by another one, which starts afresh.
    with concurrent.futures.ProcessPoolExecutor(
        1, multiprocessing.get_context("spawn"), max_tasks_per_child=1
    ) as pool:
        for operations in args.operations:
            built = pool.submit(_build, operations).result()
            results.append(pool.submit(_measure, *built).result())
    write_table(f"{_table(results)}\n{_NOTES}")


def _build(operations: int) -> tuple[bytes, tuple[str, str], tuple[str, ...]]:
    """Builds a graph of about so many operations; with what a step of it fetches and feeds."""
    counts = [len(_model(steps).graph.get_operations()) for steps in (2, 4)]
    per_step = (counts[1] - counts[0]) / 2
    model = _model(steps=2 + round((operations - counts[0]) / per_step))
    graph = model.graph.as_graph_def().SerializeToString()
    return graph, (model.train_op, model.loss), tuple(next(model.feeds()))


def _model(steps: int) -> TrainingModel:
    # Small tensors: the passes look at shapes and never at values.
    return language_model.build(steps=steps, units=8, batch=2, vocabulary=20)


def _measure(content: bytes, fetches: tuple[str, str], feeds: tuple[str, ...]) -> _Measured:
    """Measures all stages of a graph."""
    graph_def = tf.compat.v1.GraphDef.FromString(content)
    # A small graph first, so that imports and the registry of kernels are not measured.
    small = _model(steps=2).graph.as_graph_def()
    find_colocation_groups(OpGraph.from_graph_def(small))
    held_before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    secs: dict[str, float] = {}

    def measure(name: str, run: Callable[[], _Result]) -> _Result:
        start = time.process_time()
        result = run()
        secs[name] = time.process_time() - start
        return result

    graph = measure("import", lambda: OpGraph.from_graph_def(graph_def, fetches, feeds))
    colocation = measure("colocation", lambda: find_colocation_groups(graph))

    @pause_garbage_collection()  # As `group_operations` does.
    def group() -> Grouping:
        grouping = seal_model_groups(graph, colocation, default_groups(graph, colocation))
        return merge_single_consumers(graph, colocation, grouping)

    grouping = measure("grouping", group)
    measure("group graph", lambda: build_group_graph(graph, colocation, grouping))

    def annotate() -> None:
        groups = operation_groups(graph, colocation, grouping)
        row = np.arange(grouping.num_groups) % len(_DEVICES)
        Annotate(assignment_of(graph.names, groups, _DEVICES, row)).run(graph_def)

    measure("annotation", annotate)
    measure("fingerprint", lambda: graph_fingerprint(graph_def))
    # The shapes of the feeds are a part of the form, but not of the work.
    values = {name: np.zeros([]) for name in feeds}
    measure("canonical form", lambda: find_canonical_form(graph, colocation, fetches, values))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - held_before
    return _Measured(graph.num_operations, grouping.num_groups, secs, 1024 * peak)


def _table(results: Sequence[_Measured]) -> str:
    headers = ["stage"]
    for result in results:
        headers += [f"{result.num_operations:,} operations: s", "ms/1000"]
    stages = {name: [name] for name in results[0].secs} | {"total": [*results[0].secs]}
    rows = []
    for stage, names in stages.items():
        rows.append([stage])
        for result in results:
            secs = sum(result.secs[name] for name in names)
            rows[-1] += [f"{secs:.2f}", f"{1e6 * secs / result.num_operations:.2f}"]
    text = table(headers, rows, "l" + "r" * 2 * len(results))
    groups = ", ".join(f"{result.num_groups:,}" for result in results)
    peaks = ", ".join(f"{result.peak_bytes / 1e6:.0f}" for result in results)
    return f"{text}\n\ngroups: {groups}\nMB: {peaks}"


if __name__ == "__main__":
    main()
