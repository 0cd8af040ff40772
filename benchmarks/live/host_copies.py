"""Steps whose activations wait on the CPU, simulated and run on an emulated GPU.

Run it as `python -m tf_placer emulate 1xK80 -- python -m benchmarks.live.host_copies`: the training
step of a deep network, as it is and made to fit into shares of the memory that it takes.
"""

from __future__ import annotations

import argparse
import pathlib
import statistics
import time
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from benchmarks.harness.table_file import write_table
from graph_passes.host_copies import AddHostCopies
from graph_passes.pipeline import group_operations
from tf_placer.costs.costed_graph import estimate_costs
from tf_placer.costs.host_copies import choose_host_copies
from tf_placer.inputs.workload import read_workload
from tf_placer.machines.catalog import make_described_machine
from tf_placer.problem.memory_limits import limit_problem
from tf_placer.simulation.simulator import Simulator
from tf_placer.text.markdown import markdown_table
from tf_placer.text.units import format_bytes, format_step

__all__ = ["build_deep_training", "main", "measure"]

v1 = tf.compat.v1
_DROPPED_STEPS = 2


def build_deep_training(batch: int, units: int, layers: int) -> tf.Graph:
    """Builds a training step of layers in a row; fetches are `train` and `loss:0`."""
    with tf.Graph().as_default() as graph, v1.variable_scope("", use_resource=True):
        hidden = v1.placeholder(tf.float32, [batch, units], name="x")
        for layer in range(layers):
            hidden = tf.tanh(hidden @ v1.get_variable(f"weights_{layer}", [units, units]))
        loss = tf.reduce_sum(hidden, name="loss")
        v1.train.GradientDescentOptimizer(1e-4).minimize(loss, name="train")
        v1.global_variables_initializer()
    return graph


def measure(
    graph_def: tf.compat.v1.GraphDef, batch: int, units: int, steps: int
) -> tuple[int, float]:
    """Runs steps on the first GPU; returns its peak memory in bytes, and the median seconds."""
    with tf.Graph().as_default() as graph:
        tf.import_graph_def(graph_def, name="")
    tf.config.experimental.reset_memory_stats("GPU:0")
    values = np.zeros([batch, units], np.float32)
    secs = []
    with v1.Session(graph=graph) as session:
        session.run("init")
        for _ in range(steps + _DROPPED_STEPS):
            begin = time.perf_counter()
            session.run(["train", "loss:0"], {"x:0": values})
            secs.append(time.perf_counter() - begin)
    peak_bytes = tf.config.experimental.get_memory_info("GPU:0")["peak"]
    return int(peak_bytes), statistics.median(secs[_DROPPED_STEPS:])


def main(argv: Sequence[str] | None = None) -> None:
    """Measures all rows, and writes the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--batch", type=int, default=4096)
    parser.add_argument("--units", type=int, default=1024)
    parser.add_argument("--layers", type=int, default=16)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--shares", default="0.9,0.8,0.7,0.6,0.5")
    parser.add_argument("--machine", default="1xK80", help="the machine that is emulated")
    parser.add_argument("--out_dir", default="benchmarks/results/host_copies")
    args = parser.parse_args(argv)
    graph = build_deep_training(args.batch, args.units, args.layers)
    feeds = {"x:0": np.zeros([args.batch, args.units], np.float32)}
    workload = read_workload(graph, ["train", "loss:0"], feeds)
    costed = estimate_costs(
        group_operations(workload.op_graph, "fine"), make_described_machine(args.machine)
    )
    problem, placement = costed.build_placed_problem(None)
    trace = Simulator(problem).trace(placement)
    needed_bytes = int(trace.peak_bytes[1])
    peak_bytes, secs = measure(workload.graph_def, args.batch, args.units, args.steps)
    rows = [_format_row("as it is", 0, needed_bytes, peak_bytes, trace.step_secs, secs)]
    for share in map(float, args.shares.split(",")):
        limit_bytes = int(share * needed_bytes)
        limited = limit_problem(problem, {"GPU:0": limit_bytes}, 0.0)
        found = choose_host_copies(workload.op_graph, limited, placement)
        if found is None:
            rows.append([f"{share:.0%}", *["does not fit"] * 5])
            continue
        moved, copies = found
        changed = AddHostCopies(copies).run(workload.graph_def)
        peak_bytes, secs = measure(changed, args.batch, args.units, args.steps)
        rows.append(
            _format_row(
                f"{share:.0%}", moved.num_tensors, limit_bytes, peak_bytes, moved.step_secs, secs
            )
        )
    headers = ["memory", "tensors", "limit", "peak", "simulated step", "step"]
    write_table(
        f"A training step of {args.layers} layers of {args.units} units, batch {args.batch}, on an "
        f"emulated {args.machine}, made to fit into shares of its simulated memory. The peak is "
        "that of TensorFlow's allocator, with the fed batch, which the limit leaves out.\n\n"
        + markdown_table(headers, rows, "lrrrrr"),
        pathlib.Path(args.out_dir, "table.md"),
    )


def _format_row(
    name: str, tensors: int, limit_bytes: int, peak_bytes: int, step_secs: float, secs: float
) -> list[str]:
    return [
        name,
        str(tensors),
        format_bytes(limit_bytes),
        format_bytes(peak_bytes),
        format_step(step_secs),
        format_step(secs),
    ]


if __name__ == "__main__":
    main()
