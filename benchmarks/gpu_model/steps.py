"""Measures steps of models in TensorFlow on a GPU, beside what the simulator says of that GPU.

Every model runs in a process of its own, all of it on the GPU but for what has no kernel there.
Beside the step itself, a traced step tells how long the GPU is busy with kernels, and the allocator
how much it had in use at most. Needs TensorFlow with a GPU; under `python -m tf_placer emulate
1xP100 --` an emulated one will do. Models that are in `steps.json` are not measured again.

    python -m benchmarks.gpu_model.steps --machine 1xH200
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import pathlib
import statistics
import subprocess
import sys
import time
from typing import Any

import numpy as np

from benchmarks.harness.provenance import provenance
from benchmarks.models.catalog import build_model
from graph_passes.pipeline import group_operations
from tf_placer.costs.analytic import compute_analytic_costs
from tf_placer.costs.costed_graph import CostedGraph
from tf_placer.files import write_json, write_text
from tf_placer.inputs.workload import read_workload
from tf_placer.machines.catalog import make_described_machine
from tf_placer.problem.placement_problem import PlacementProblem
from tf_placer.simulation.simulator import Simulator
from tf_placer.text.markdown import markdown_table
from tf_placer.text.units import format_bytes, format_step

__all__ = ["main", "measure_model"]

_MODELS = "rnnlm_2,nmt_2,inception_v3,resnet_50,bert_base"
_STEPS, _DROPPED = 12, 4
_STREAMS = "/device:GPU:0/stream:all"
_LIMIT_SECS = 120


def measure_model(name: str, machine_name: str) -> dict[str, Any]:
    """Measures and simulates one model with everything on the first GPU.

    Args:
        name: of the catalog of models.
        machine_name: the described machine with one GPU that the GPU is like.

    Returns:
        `step_secs`, `kernel_secs` and `peak_bytes` as measured; `modeled_secs`, the simulated step,
        and `modeled_bytes`, the simulated peak in blocks of the allocator.
    """
    import tensorflow as tf

    v1 = tf.compat.v1
    built = build_model(name)
    feeds = next(built.feeds())
    workload = read_workload(built.graph, [built.train_op], feeds, built.initializer)
    machine = make_described_machine(machine_name)
    grouped = group_operations(workload.op_graph)
    devices = tuple(device.name for device in machine.devices)
    legal = grouped.grouping.legal_devices(grouped.colocation, devices)
    placement = np.where(legal[:, 1], 1, 0).astype(np.int32)
    problem = CostedGraph(
        grouped, machine, compute_analytic_costs(workload.op_graph, machine)
    ).problem()

    assignment = grouped.assignment(placement, devices)
    for node in workload.graph_def.node:
        node.device = assignment.get(node.name, "")
    config = v1.ConfigProto()
    config.graph_options.rewrite_options.disable_meta_optimizer = True
    traced = v1.RunMetadata()
    with tf.Graph().as_default() as graph, v1.Session(graph=graph, config=config) as session:
        tf.import_graph_def(workload.graph_def, name="")
        session.run([graph.as_graph_element(each) for each in workload.step.initializers])
        fetches = [graph.as_graph_element(each) for each in workload.step.fetches]
        secs = []
        for _ in range(_STEPS):
            begin = time.perf_counter()
            session.run(fetches, workload.step.feeds)
            secs.append(time.perf_counter() - begin)
        peak_bytes = tf.config.experimental.get_memory_info("GPU:0")["peak"]
        options = v1.RunOptions(trace_level=v1.RunOptions.FULL_TRACE)
        session.run(fetches, workload.step.feeds, options=options, run_metadata=traced)
    kernels = [
        node.all_end_rel_micros
        for device in traced.step_stats.dev_stats
        if device.device == _STREAMS
        for node in device.node_stats
    ]
    simulated = Simulator(_with_little_memory(problem)).simulate(placement[np.newaxis])
    return {
        "model": name,
        "operations": problem.num_operations,
        "kernels": len(kernels),
        "step_secs": statistics.median(secs[_DROPPED:]),
        "kernel_secs": sum(kernels) / 1e6,
        "modeled_secs": float(simulated.step_secs[0]),
        "peak_bytes": int(peak_bytes),
        "modeled_bytes": int(simulated.peak_bytes[0, 1]),
    }


def _with_little_memory(problem: PlacementProblem) -> PlacementProblem:
    """Lets the simulator look at blocks, which it does only where memory is scarce."""
    devices = tuple(dataclasses.replace(each, memory_bytes=1) for each in problem.devices)
    return dataclasses.replace(problem, devices=devices)


def _page(machine: str, rows: list[dict[str, Any]]) -> str:
    headers = ["model", "kernels", "modeled step", "in kernels", "step"]
    headers += ["modeled / in kernels", "modeled peak", "peak", "modeled / peak"]
    lines = [
        [
            row["model"],
            f"{row['kernels']:,}",
            format_step(row["modeled_secs"]),
            format_step(row["kernel_secs"]),
            format_step(row["step_secs"]),
            f"{row['modeled_secs'] / row['kernel_secs']:.2f}" if row["kernel_secs"] else "",
            format_bytes(row["modeled_bytes"]),
            format_bytes(row["peak_bytes"]),
            f"{row['modeled_bytes'] / row['peak_bytes']:.3f}",
        ]
        for row in rows
    ]
    return (
        f"# Steps in TensorFlow on a GPU, beside the model of {machine}\n\n"
        f"{markdown_table(headers, lines)}\n\n"
        "In kernels: how long the GPU is busy in a traced step. Peak: of TensorFlow's allocator."
        "\n\n"
        f"Command: `{provenance()['command']}`.\n"
    )


def main() -> None:
    """Measures the models that are not in the file yet, and writes the numbers and the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--machine", required=True, help="the catalog's, such as 1xH200")
    parser.add_argument("--models", default=_MODELS, help=f"by comma (default {_MODELS})")
    parser.add_argument("--out_dir", default="benchmarks/results/gpu_model")
    parser.add_argument("--model", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.model:
        print(json.dumps(measure_model(args.model, args.machine)))
        return
    out = pathlib.Path(args.out_dir)
    out.mkdir(parents=True, exist_ok=True)
    file = out / "steps.json"
    kept = json.loads(file.read_text()) if file.exists() else {}
    rows = kept["rows"] if kept.get("machine") == args.machine else []
    for model in args.models.split(","):
        if model in [row["model"] for row in rows]:
            continue
        command = [sys.executable, "-m", "benchmarks.gpu_model.steps", "--machine", args.machine]
        command += ["--model", model]
        ended = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=_LIMIT_SECS)
        if ended.returncode:
            print(f"{model}: failed", file=sys.stderr)
            continue
        rows.append(json.loads(ended.stdout.splitlines()[-1]))
        write_json(file, {"machine": args.machine, "rows": rows, **provenance()})
    page = _page(args.machine, rows)
    write_text(out / "steps.md", page)
    print(page)


if __name__ == "__main__":
    main()
