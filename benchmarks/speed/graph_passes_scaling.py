"""How time and memory of the graph passes grow with the size of a graph.

Unrolls the LSTM language model further and further, and measures every stage from a GraphDef to a
placed GraphDef, each graph in a process of its own.
"""

from __future__ import annotations

import argparse
import dataclasses
import gc
import json
import multiprocessing
import os
import pathlib
import platform
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import networkx as nx
import numpy as np
import tensorflow as tf

from benchmarks.models import language_model
from graph_passes.annotate import Annotate
from graph_passes.colocation import FindColocationGroups
from graph_passes.fingerprint import graph_fingerprint
from graph_passes.graph_pass import GraphState, Sequential
from graph_passes.grouping.build_group_graph import build_group_graph
from graph_passes.grouping.default_groups import DefaultGroups
from graph_passes.grouping.model_rules import ModelRules
from graph_passes.grouping.single_consumer import SingleConsumerMerge
from graph_passes.op_graph import ReadOperations
from graph_passes.placement import Placement, assignment_of, operation_groups
from tf_placer.machines.processor import processor_name

__all__ = ["main"]

_DEVICES = tuple(f"/job:localhost/replica:0/task:0/device:CPU:{i}" for i in range(2))
_Result = TypeVar("_Result")


@dataclasses.dataclass(frozen=True)
class _Stage:
    """What one stage took.

    Attributes:
        secs: seconds of processor time; everything runs on one core.
        peak_bytes: the most memory the process held beyond what it held before the first stage.
    """

    secs: float
    peak_bytes: int


@dataclasses.dataclass(frozen=True)
class _Measured:
    """What one graph took.

    Attributes:
        num_operations: operations of the graph.
        num_groups: groups that were found.
        stages: each stage by name, in order.
    """

    num_operations: int
    num_groups: int
    stages: dict[str, _Stage]


def main() -> None:
    """Builds and measures graphs of growing size and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--operations",
        type=int,
        nargs="+",
        default=[12_500, 25_000, 50_000, 100_000],
        help="sizes of the graphs, about (default 12500 25000 50000 100000)",
    )
    args = parser.parse_args()

    # Only children import graphs, so that every size starts afresh.
    context = multiprocessing.get_context("spawn")
    results = []
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "graph.pb"
        for operations in args.operations:
            for target in (_build, _measure):
                child = context.Process(target=target, args=(path, operations))
                child.start()
                child.join()
                if child.exitcode:
                    sys.exit(f"{target.__name__} failed for {operations} operations")
            results.append(_read(path))
            print(f"measured {results[-1].num_operations} operations", file=sys.stderr)
    print(_table(results))
    print(_circumstances())


def _build(path: pathlib.Path, operations: int) -> None:
    """Writes a graph of about so many operations, and what a step of it fetches and feeds."""
    counts = [len(_model(steps).graph.get_operations()) for steps in (2, 4)]
    per_step = (counts[1] - counts[0]) / 2
    model = _model(steps=2 + round((operations - counts[0]) / per_step))
    path.write_bytes(model.graph.as_graph_def().SerializeToString())
    path.with_suffix(".json").write_text(json.dumps([model.train_op, model.loss, model.tokens]))


def _model(steps: int) -> language_model.LanguageModel:
    # Small tensors: the passes look at shapes and never at values.
    return language_model.build(steps=steps, units=8, batch=2, vocabulary=20)


def _measure(path: pathlib.Path, operations: int) -> None:
    """Measures all stages of the graph and writes what they took."""
    del operations
    train_op, loss, tokens = json.loads(path.with_suffix(".json").read_text())
    graph_def = tf.compat.v1.GraphDef.FromString(path.read_bytes())
    _warm_up()
    gc.collect()
    before = _resident_bytes("VmRSS")
    stages: dict[str, _Stage] = {}

    def measured(name: str, run: Callable[[], _Result]) -> _Result:
        _forget_peak()
        start = time.process_time()
        result = run()
        stages[name] = _Stage(time.process_time() - start, _resident_bytes("VmHWM") - before)
        return result

    state = GraphState(graph_def, (train_op, loss), (tokens,))
    state = measured("import", lambda: ReadOperations().run(state).state)
    state = measured("colocation", lambda: FindColocationGroups().run(state).state)
    passes = Sequential([DefaultGroups(), ModelRules(), SingleConsumerMerge()])
    state = measured("grouping", lambda: passes.run(state).state)
    graph, colocation, grouping = state.op_graph, state.colocation, state.grouping
    assert graph is not None and colocation is not None and grouping is not None
    measured("group graph", lambda: build_group_graph(graph, colocation, grouping))

    def annotate() -> GraphState:
        groups = operation_groups(graph, colocation, grouping)
        row = np.arange(grouping.num_groups) % len(_DEVICES)
        assignment = assignment_of(graph.names, groups, _DEVICES, row)
        placement = Placement("", _DEVICES, assignment)
        return Annotate().run(dataclasses.replace(state, placement=placement)).state

    placed = measured("annotation", annotate)
    measured("fingerprint", lambda: graph_fingerprint(graph_def))
    assert any(node.device for node in placed.graph_def.node)
    value = dataclasses.asdict(_Measured(graph.num_operations, grouping.num_groups, stages))
    path.with_suffix(".json").write_text(json.dumps(value))


def _warm_up() -> None:
    """Has what every process does once done: importing, reading the registry of kernels."""
    graph_def = _model(steps=2).graph.as_graph_def()
    Sequential([ReadOperations(), FindColocationGroups()]).run(GraphState(graph_def))


def _read(path: pathlib.Path) -> _Measured:
    value = json.loads(path.with_suffix(".json").read_text())
    stages = {name: _Stage(**stage) for name, stage in value.pop("stages").items()}
    return _Measured(**value, stages=stages)


def _resident_bytes(field: str) -> int:
    """Reads VmRSS (now) or VmHWM (at most) of this process, from Linux."""
    for line in pathlib.Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"/proc/self/status has no {field}")


def _forget_peak() -> None:
    """Makes VmHWM start again from what the process holds now."""
    pathlib.Path("/proc/self/clear_refs").write_text("5")


def _table(results: Sequence[_Measured]) -> str:
    names = list(results[0].stages)
    rows = [
        ("", *(f"{r.num_operations:,} operations" for r in results)),
        ("stage", *("    s   ms/1000  ratio     MB" for _ in results)),
    ]
    for name in [*names, "total"]:
        cells = []
        for number, result in enumerate(results):
            chosen = [result.stages[n] for n in (names if name == "total" else [name])]
            secs = sum(stage.secs for stage in chosen)
            cell = f"{secs:6.2f} {1e6 * secs / result.num_operations:7.2f} "
            if number:
                earlier = results[number - 1].stages
                ratio = secs / sum(earlier[n].secs for n in (names if name == "total" else [name]))
                cell += f" {ratio:5.2f}"
            else:
                cell += "     –"
            cells.append(f"{cell} {max(stage.peak_bytes for stage in chosen) / 1e6:6.0f}")
        rows.append((name, *cells))
    rows.append(("groups", *(f"{r.num_groups:,}" for r in results)))
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return "\n".join(
        " | ".join(
            cell.ljust(width) if i == 0 else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    )


def _circumstances() -> str:
    command = " ".join(["python -m benchmarks.speed.graph_passes_scaling", *sys.argv[1:]])
    versions = f"Python {platform.python_version()}, TensorFlow {tf.__version__}"
    versions += f", NumPy {np.__version__}, networkx {nx.__version__}"
    return (
        "\ns: processor seconds, on one core. ms/1000: milliseconds per 1000 operations.\n"
        "ratio: to the time of the size before.\n"
        "MB: the most memory held beyond the GraphDef and the libraries.\n"
        f"command: {command}\nversions: {versions}\n"
        f"machine: {processor_name()}, {os.cpu_count()} cores, {platform.platform()}"
    )


if __name__ == "__main__":
    main()
