"""Measures steps of placements on emulated GPUs, in the process that has them.

Run by `benchmarks.simulator.emulated_agreement`, with the environment of the emulated machine.
Reads the graph, the step and the placements from a folder, and appends a line for each placement
to `measured.jsonl` there.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import statistics
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tf_placer.files import read_json

__all__ = ["main"]

v1 = tf.compat.v1


def measure(
    graph_def: tf.compat.v1.GraphDef,
    devices: Mapping[str, str],
    step: Mapping[str, Any],
    feeds: Mapping[str, np.ndarray],
    steps: int,
    num_gpus: int,
) -> dict[str, Any]:
    """Measures one placement in a session of its own.

    Args:
        graph_def: the graph; gets the devices.
        devices: full device names by operation.
        step: `fetches` and `initializers`, names.
        feeds: values by the name of the tensor.
        steps: how many steps run; the first does not count.
        num_gpus: how many GPUs there are.

    Returns:
        `step_secs` and `processor_secs`, medians; `peak_bytes` of each GPU; or `failure`.
    """
    for node in graph_def.node:
        node.device = devices.get(node.name, "")
    config = v1.ConfigProto()
    config.graph_options.rewrite_options.disable_meta_optimizer = True
    gpus = [f"GPU:{k}" for k in range(num_gpus)]
    with tf.Graph().as_default() as graph:
        tf.import_graph_def(graph_def, name="")
        for gpu in gpus:
            tf.config.experimental.reset_memory_stats(gpu)
        with v1.Session(graph=graph, config=config) as session:
            try:
                session.run([graph.as_graph_element(name) for name in step["initializers"]])
                fetches = [graph.as_graph_element(name) for name in step["fetches"]]
                secs, processor_secs = [], []
                for _ in range(steps):
                    begin, processor_begin = time.perf_counter(), time.process_time()
                    session.run(fetches, feeds)
                    secs.append(time.perf_counter() - begin)
                    processor_secs.append(time.process_time() - processor_begin)
            except tf.errors.ResourceExhaustedError:
                return {"failure": "out of memory"}
            peaks = [tf.config.experimental.get_memory_info(gpu)["peak"] for gpu in gpus]
    return {
        "step_secs": statistics.median(secs[1:]),
        "processor_secs": statistics.median(processor_secs[1:]),
        "peak_bytes": peaks,
    }


def _read_log(path: pathlib.Path) -> Sequence[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def main() -> None:
    """Measures what the log does not have yet."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--steps", type=int, required=True)
    args = parser.parse_args()
    request = read_json(args.folder / "request.json")
    graph_def = v1.GraphDef.FromString((args.folder / "graph.pb").read_bytes())
    with np.load(args.folder / "feeds.npz") as arrays:
        feeds = {name: arrays[f"arr_{k}"] for k, name in enumerate(request["feeds"])}
    log = args.folder / "measured.jsonl"
    done = {line["placement"] for line in _read_log(log)}
    with open(log, "a") as file:
        for number, assignment in enumerate(request["assignments"]):
            if number in done:
                continue
            devices = {
                name: request["devices"][device]
                for name, device in zip(request["operations"], assignment, strict=True)
            }
            row = measure(
                graph_def, devices, request["step"], feeds, args.steps, len(request["devices"]) - 1
            )
            file.write(json.dumps({"placement": number, **row}) + "\n")
            file.flush()


if __name__ == "__main__":
    main()
