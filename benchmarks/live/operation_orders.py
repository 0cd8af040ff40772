"""Steps of ordered graphs, simulated and run on emulated GPUs.

Run it as `python -m tf_placer emulate emulated:eagle-4xP100,slowdown=20 -- python -m
benchmarks.live.operation_orders --slowdown 20`. Each model is placed by `auto`, and the placed
graph takes turns with the same graph and the control edges of an order.
"""

from __future__ import annotations

import argparse
import pathlib
import statistics
import time
from collections.abc import Mapping, Sequence

import tensorflow as tf

import tf_placer
from benchmarks.harness.provenance import provenance
from benchmarks.harness.table_file import write_table
from benchmarks.models.catalog import build_model
from graph_passes.annotate import Annotate
from graph_passes.fitting import fit
from graph_passes.operation_order import OrderOperations
from graph_passes.pipeline import group_operations
from tf_placer.costs.costed_graph import estimate_costs
from tf_placer.costs.operation_order import find_control_edges
from tf_placer.inputs.workload import read_workload
from tf_placer.machines.catalog import make_described_machine
from tf_placer.text.markdown import markdown_table
from tf_placer.text.units import format_step

__all__ = ["main", "measure_in_turns"]

v1 = tf.compat.v1
_HEADERS = ["model", "control edges", "simulated", "ordered", "", "step", "ordered", ""]
_DROPPED_ROUNDS = 2


def measure_in_turns(
    graph_defs: Sequence[tf.compat.v1.GraphDef],
    fetch: str,
    feeds: Mapping[str, object],
    initializer: str,
    rounds: int,
) -> list[list[float]]:
    """Runs a step of each graph in every round; returns the seconds by graph and round."""
    sessions = []
    for graph_def in graph_defs:
        with tf.Graph().as_default() as graph:
            tf.import_graph_def(graph_def, name="")
        sessions.append(v1.Session(graph=graph))
        sessions[-1].run(initializer)
    secs: list[list[float]] = [[] for _ in sessions]
    for _ in range(rounds + _DROPPED_ROUNDS):
        for session, each in zip(sessions, secs, strict=True):
            begin = time.perf_counter()
            session.run(fetch, feeds)
            each.append(time.perf_counter() - begin)
    for session in sessions:
        session.close()
    return [each[_DROPPED_ROUNDS:] for each in secs]


def main(argv: Sequence[str] | None = None) -> None:
    """Measures all models, and writes the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--models", default="inception_v3_batch_1,nasnet_a,inception_v3")
    parser.add_argument("--small", action="store_true", help="small versions of the models")
    parser.add_argument("--machine", default="eagle-4xP100", help="the machine that is emulated")
    parser.add_argument("--slowdown", type=float, default=1.0, help="that of the emulated machine")
    parser.add_argument("--placing_secs", type=float, default=20.0)
    parser.add_argument("--ordering_secs", type=float, default=60.0)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--out_dir", default="benchmarks/results/operation_orders")
    args = parser.parse_args(argv)
    rows = [_measure_row(model, args) for model in args.models.split(",")]
    write_table(
        f"Steps of models on an emulated {args.machine}, placed by `auto` in "
        f"{args.placing_secs:g} s, without and with an order that was searched for "
        f"{args.ordering_secs:g} s, by simulation and as run: medians of {args.rounds} rounds with "
        f"clocks {args.slowdown:g} times as slow, divided by that, and the median of the ratios of "
        "the rounds. "
        f"{provenance()}\n\n" + markdown_table(_HEADERS, rows, "lrrrrrrr"),
        pathlib.Path(args.out_dir, "table.md"),
    )


def _measure_row(model: str, args: argparse.Namespace) -> list[str]:
    built = build_model(model, small=args.small)
    feeds = next(built.feeds())
    workload = read_workload(built.graph, [built.train_op], feeds)
    graph = workload.op_graph
    grouped = group_operations(graph, "fine")
    problem = estimate_costs(grouped, make_described_machine(args.machine)).problem()
    plan = tf_placer.plan(problem, max_secs=args.placing_secs)
    order, edges = find_control_edges(
        graph, problem, plan.assignment, max_secs=args.ordering_secs, seed=0
    )
    placed = Annotate(fit(graph, plan.placement).assignment).run(workload.graph_def)
    unordered, ordered = measure_in_turns(
        [placed, OrderOperations(edges).run(placed)],
        built.train_op,
        feeds,
        built.initializer,
        args.rounds,
    )
    ratios = [one / other for one, other in zip(unordered, ordered, strict=True)]
    steps = [statistics.median(each) / args.slowdown for each in (unordered, ordered)]
    return [
        model,
        f"{len(edges):,}",
        format_step(order.unordered_secs),
        format_step(order.step_secs),
        f"{order.unordered_secs / order.step_secs:.3f}x",
        *map(format_step, steps),
        f"{statistics.median(ratios):.3f}x",
    ]


if __name__ == "__main__":
    main()
