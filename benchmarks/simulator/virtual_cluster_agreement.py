"""The simulator against TensorFlow's own `VirtualCluster`, over many placements of three graphs.

Both are asked about the same operations with the same costs, those that `VirtualCluster` finds,
on a CPU and four GPUs with links of 8 GB/s. Their code has nothing in common.

Where they differ, and how one knows:

*   Around every transfer `VirtualCluster` runs operations of 1 ns that nobody asked for: `_Send`,
    and on the receiving device `_Recv`. A `_Recv` waits for its device as every operation does,
    behind all that has been ready for longer, and only when it has run the readers of the tensor
    are ready, and wait once more. In this project's simulator a tensor that has arrived is there.
*   Operations without duration (NoOp) are served in another order: `VirtualCluster` takes them in
    turn by name, the simulator ends them before it looks at the queue again.
*   `VirtualCluster` has an operation ready when the input ends that it processed last, which need
    not be the input that ends last. Data always pass through the device of their reader, where the
    two are the same; behind a control edge from another device an operation may start before an
    input of it is there. This is rare ("too early" counts the inputs in the step of which the next
    point speaks) and has moved no step by more than a microsecond.
*   This is the whole difference: told all that `VirtualCluster` ran, its `_Send` and `_Recv`
    included, with operations of 1 ns in the place of the NoOps, the simulator ends at the same
    nanosecond ("told all"), unless an operation started too early there.
*   That operations of a nanosecond matter has to do with queues: in an unrolled network many
    operations are ready at almost the same time, and a nanosecond decides which one is first.
    How far that goes shows `VirtualCluster` against itself, with and without these operations of
    1 ns in the place of the NoOps ("VirtualCluster / itself").
*   Told the problem itself, with every transfer and nothing else, with whole nanoseconds and again
    without operations of no duration ("problem"), both agree to the nanosecond. How the problem is
    told, so that nothing starts too early, `graph_of_problem` says.
*   Ties are broken by name there and by number here; the operations of the problems are in the
    order of their names. Constants and variables cost 1 ns in both. `VirtualCluster` neither merges
    equal operations nor folds constants, so both run the same operations. The graphs have no
    loops or conditionals; of these it would run every branch, once.

Writes a table, a CSV and a scatter plot.
"""

from __future__ import annotations

import argparse
import csv
import dataclasses
import itertools
import os
import pathlib
import platform
from collections.abc import Callable

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np
import tensorflow as tf

from benchmarks.harness.pictures import save_picture
from benchmarks.harness.statistics import spearman
from benchmarks.models import small
from benchmarks.models.inception_v3 import InceptionV3
from benchmarks.models.language_model import LanguageModel
from benchmarks.models.translation_model import TranslationModel
from benchmarks.simulator.virtual_cluster import VirtualCluster, VirtualStep, one_cpu_and_k80s
from benchmarks.simulator.virtual_graphs import graph_with_transfers, virtual_graph
from benchmarks.simulator.virtual_problems import (
    graph_of_problem,
    problem_of_step,
    whole_nanoseconds,
)
from graph_passes.op_graph import OpGraph
from graph_passes.pipeline import group_operations
from tf_placer.placers.heuristics.contiguous import equal_cuts
from tf_placer.simulation.simulator import Simulator
from tf_placer.text.table import table
from tf_placer.text.units import format_step

__all__ = ["main"]

_MODELS: dict[str, Callable[[], LanguageModel | InceptionV3 | TranslationModel]] = {
    "language_model": small.small_language_model,
    "inception": small.small_inception,
    "translation": small.small_translation,
}
_NUM_GPUS = 4
_BANDWIDTH_BYTES_PER_SEC = 8e9


@dataclasses.dataclass(frozen=True)
class _Comparison:
    """One placement of one graph: nanoseconds of a step. The fields are the columns of the CSV.

    Attributes:
        graph: the name of the graph.
        placement: the number of the placement.
        kind: what sort of placement it is.
        virtual_cluster_nanos: of the graph with transfers.
        simulated_nanos: of the problem with the same costs.
        virtual_cluster_changed_nanos: with operations of 1 ns in the place of those of 0 ns.
        told_all_nanos: simulated, of all that VirtualCluster ran in that.
        too_early: how many inputs were not there yet in that when their reader started.
        problem_virtual_cluster_nanos: of the problem itself, as a graph.
        problem_simulated_nanos: of the same.
    """

    graph: str
    placement: int
    kind: str
    virtual_cluster_nanos: int
    simulated_nanos: int
    virtual_cluster_changed_nanos: int
    told_all_nanos: int
    too_early: int
    problem_virtual_cluster_nanos: int
    problem_simulated_nanos: int


def _placements(work: np.ndarray, count: int) -> list[tuple[str, np.ndarray]]:
    """Placements of groups that are numbered along the graph.

    Args:
        work: float64 [num_groups]; a further group stays on the CPU, device 0.
        count: how many.
    """
    random = np.random.default_rng(0)
    groups = len(work)
    rows = [("CPU", np.zeros(groups)), ("one GPU", np.ones(groups))]
    rows += [(f"{k} equal parts", 1 + equal_cuts(work, k)) for k in range(2, _NUM_GPUS + 1)]
    while len(rows) < count // 2:
        cuts = random.choice(groups, size=_NUM_GPUS - 1, replace=False)
        rows.append(("parts", 1 + (np.arange(groups)[:, None] >= cuts).sum(axis=1)))
    for devices in itertools.cycle([range(1, 3), range(1, 5), range(5)]):
        if len(rows) == count:
            break
        name = f"random, {len(devices)} " + ("devices" if 0 in devices else "GPUs")
        rows.append((name, random.choice(devices, size=groups)))
    return [(kind, np.append(row, 0).astype(np.int32)) for kind, row in rows]


def _without_empty_operations(graph_def: tf.compat.v1.GraphDef) -> tf.compat.v1.GraphDef:
    """Copies the graph with operations of 1 ns in the place of those that take no time."""
    changed = tf.compat.v1.GraphDef()
    changed.CopyFrom(graph_def)
    for node in changed.node:
        if node.op == "NoOp":
            node.op = "Const"
            node.attr["dtype"].type = tf.int32.as_datatype_enum
            node.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(0))
    return changed


def _too_early(graph_def: tf.compat.v1.GraphDef, step: VirtualStep) -> int:
    """Counts the inputs that were not there yet when their reader started."""
    return sum(
        step.start_nanos[producer] + step.nanos[producer] > step.start_nanos[node.name]
        for node in graph_def.node
        for producer in {name.lstrip("^").partition(":")[0] for name in node.input}
    )


def _compare(name: str, num_placements: int) -> list[_Comparison]:
    model = _MODELS[name]()
    fetches = [model.train_op]
    graph = OpGraph.from_graph_def(model.graph.as_graph_def(), fetches)
    grouped = group_operations(graph)
    # What is left alone runs on the CPU: one more group.
    alone = grouped.group_graph.num_groups
    groups = np.where(grouped.operation_groups < 0, alone, grouped.operation_groups)
    virtual = virtual_graph(
        graph, fetches, groups, one_cpu_and_k80s(_NUM_GPUS), _BANDWIDTH_BYTES_PER_SEC
    )
    whole = whole_nanoseconds(virtual.problem)
    rows = _placements(grouped.group_graph.work, num_placements)
    placements = np.array([row for _, row in rows])
    simulated = Simulator(virtual.problem).simulate(placements).step_secs
    whole_simulated = Simulator(whole).simulate(placements).step_secs
    comparisons = []
    for k, (kind, row) in enumerate(rows):
        graph_def, devices = graph_with_transfers(virtual, row)
        with VirtualCluster(devices) as cluster:
            step = cluster.measure(graph_def, fetches)
            changed_graph_def = _without_empty_operations(graph_def)
            changed = cluster.measure(changed_graph_def, fetches)
        told, told_row = problem_of_step(changed_graph_def, changed)
        told_secs = Simulator(told, memory=False).simulate(told_row[None]).step_secs[0]
        graph_def, devices, every = graph_of_problem(whole, row)
        with VirtualCluster(devices) as cluster:
            whole_step = cluster.measure(graph_def, every)
        comparison = _Comparison(
            graph=name,
            placement=k,
            kind=kind,
            virtual_cluster_nanos=step.step_nanos,
            simulated_nanos=round(simulated[k] * 1e9),
            virtual_cluster_changed_nanos=changed.step_nanos,
            told_all_nanos=round(told_secs),
            too_early=_too_early(changed_graph_def, changed),
            problem_virtual_cluster_nanos=whole_step.step_nanos,
            problem_simulated_nanos=round(whole_simulated[k]),
        )
        comparisons.append(comparison)
        print(f"{k + 1}/{len(rows)}: {comparison}", flush=True)
    return comparisons


def _row(name: str, comparisons: list[_Comparison]) -> list[str]:
    theirs, ours, told, changed = (
        np.array([getattr(c, field) for c in comparisons])
        for field in (
            "virtual_cluster_nanos",
            "simulated_nanos",
            "told_all_nanos",
            "virtual_cluster_changed_nanos",
        )
    )
    equal = sum(c.problem_virtual_cluster_nanos == c.problem_simulated_nanos for c in comparisons)
    return [
        name,
        str(len(comparisons)),
        f"{format_step(theirs.min() * 1e-9)} to {format_step(theirs.max() * 1e-9)}",
        f"{spearman(ours, theirs):.4f}",
        f"{np.median(ours / theirs):.5f}",
        _range(ours / theirs),
        _range(changed / theirs),
        f"{np.count_nonzero(told == changed)} of {len(comparisons)}",
        str(sum(c.too_early for c in comparisons)),
        f"{equal} of {len(comparisons)}",
    ]


def _range(ratio: np.ndarray) -> str:
    return f"{ratio.min():.4f} to {ratio.max():.4f}"


_HEADERS = ["graph", "placements", "VirtualCluster", "rank correlation", "ours / VirtualCluster"]
_HEADERS += ["range", "VirtualCluster / itself", "told all: equal", "too early", "problem: equal"]


def _write(args: argparse.Namespace, results: dict[str, list[_Comparison]]) -> str:
    out = pathlib.Path(args.out_dir)
    out.mkdir(parents=True, exist_ok=True)
    with open(out / "placements.csv", "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([field.name for field in dataclasses.fields(_Comparison)])
        for comparisons in results.values():
            writer.writerows(dataclasses.astuple(c) for c in comparisons)
    rows = [_row(name, comparisons) for name, comparisons in results.items()]
    text = table(_HEADERS, rows, "lrrrrrrrrr")
    note = (
        "command: python -m benchmarks.simulator.virtual_cluster_agreement "
        f"--placements {args.placements}\n"
        f"versions: Python {platform.python_version()}, TensorFlow {tf.__version__}\n"
    )
    (out / "table.txt").write_text(f"{note}\n{text}\n\n{__doc__}")
    _plot(out / "scatter.png", results)
    return text


def _plot(path: pathlib.Path, results: dict[str, list[_Comparison]]) -> None:
    try:
        import matplotlib
    except ImportError:
        print("no picture: pip install 'tf_placer[report]'")
        return
    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, panels = pyplot.subplots(
        2, len(results), figsize=(4.5 * len(results), 7), height_ratios=[2, 1], sharex="col",
        squeeze=False, constrained_layout=True,
    )  # fmt: skip
    for (name, comparisons), (axes, ratios) in zip(results.items(), panels.T, strict=True):
        for color, kind in enumerate(dict.fromkeys(c.kind.split(",")[0] for c in comparisons)):
            chosen = [c for c in comparisons if c.kind.split(",")[0] == kind]
            theirs = np.array([c.virtual_cluster_nanos for c in chosen])
            ours = np.array([c.simulated_nanos for c in chosen])
            axes.loglog(
                theirs * 1e-6, ours * 1e-6, "o", color=f"C{color}", markersize=4, label=kind
            )
            ratios.semilogx(theirs * 1e-6, ours / theirs, "o", color=f"C{color}", markersize=4)
        limits = axes.get_xlim()
        axes.plot(limits, limits, color="grey", linewidth=0.8, zorder=0)
        ratios.axhline(1.0, color="grey", linewidth=0.8, zorder=0)
        theirs = np.array([c.virtual_cluster_nanos for c in comparisons])
        ours = np.array([c.simulated_nanos for c in comparisons])
        axes.set_title(f"{name}: rank correlation {spearman(ours, theirs):.4f}")
        axes.legend(fontsize="small")
        ratios.set_xlabel("VirtualCluster, ms")
    panels[0, 0].set_ylabel("ours, ms")
    panels[1, 0].set_ylabel("ours / VirtualCluster")
    save_picture(figure, path, dpi=120)


def main() -> None:
    """Compares, and writes the table, the CSV and the picture."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--placements", type=int, default=20, help="per graph (default 20)")
    parser.add_argument("--out_dir", default="benchmarks/results/virtual_cluster_agreement")
    args = parser.parse_args()
    print(_write(args, {name: _compare(name, args.placements) for name in _MODELS}))


if __name__ == "__main__":
    main()
