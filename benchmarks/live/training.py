"""Trains three models to the end, each as it came, as people place it, and as `optimize` places it.

The models are small enough to train in half a minute on two worker processes of this computer: a
language model, a translation model with attention, and an Inception-V3, which synchronous and
asynchronous towers train, too. Every run starts from the same variables, and all placements of a
run read the same batches in the same order. The placements take turns, each in fresh processes.
Searches and runs that are done are not made again; `--stop_after_secs` leaves the rest to the next
call. Curves, table and pictures are written anew by every call.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import os
import pathlib
import threading
import time
from collections.abc import Callable, Mapping, Sequence

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np
import tensorflow as tf

import tf_placer
from benchmarks.harness.provenance import provenance
from benchmarks.live.training_curves import (
    ASYNCHRONOUS,
    EXPERT,
    FOUND,
    ORIGINAL,
    SYNCHRONOUS,
    Curve,
    Found,
    write_curves,
)
from benchmarks.live.training_report import write_report
from benchmarks.models import inception_v3, language_model, translation_model
from benchmarks.models.training_model import TrainingModel
from benchmarks.problems.experts import expert_placements
from graph_passes.op_graph import OpGraph
from graph_passes.pipeline import group_operations
from tf_placer.files import read_json, write_json
from tf_placer.text.units import format_duration

tf1 = tf.compat.v1

__all__ = ["MODELS", "Trained", "main", "train"]

_Feeds = Sequence[Mapping[str, np.ndarray]]


@dataclasses.dataclass(frozen=True)
class Trained:
    """A model to train.

    Attributes:
        build: makes it.
        steps: of a run.
        search_secs: how long to look for a placement.
        expert: the model of the catalogue whose expert places it; None if experts use towers.
        towers: makes its towers, asynchronous or not; None without any.
    """

    build: Callable[[], TrainingModel]
    steps: int
    search_secs: float
    expert: str | None = None
    towers: Callable[[bool], TrainingModel] | None = None


def _inception(towers: int = 1, asynchronous: bool = False) -> TrainingModel:
    return inception_v3.build(
        batch=16,
        image_size=107,
        classes=10,
        width=0.35,
        learning_rate=0.01,
        towers=towers,
        asynchronous=asynchronous,
    )


#: What is trained, by name.
MODELS: Mapping[str, Trained] = {
    "language_model": Trained(
        lambda: language_model.build(
            layers=2, units=384, steps=10, batch=64, vocabulary=1000, learning_rate=3e-3
        ),
        steps=180,
        search_secs=110.0,
        expert="rnnlm_2",
    ),
    "translation": Trained(
        lambda: translation_model.build(
            layers=2,
            units=256,
            source_steps=6,
            target_steps=6,
            batch=64,
            source_vocabulary=50,
            target_vocabulary=50,
            learning_rate=5e-3,
            clip_norm=1.0,
        ),
        steps=200,
        search_secs=110.0,
        expert="nmt_2",
    ),
    "inception_v3": Trained(
        _inception,
        steps=110,
        search_secs=150.0,
        towers=lambda asynchronous: _inception(2, asynchronous),
    ),
}


def train(
    target: str,
    model: TrainingModel,
    devices: Mapping[str, str],
    feeds: _Feeds,
    *,
    asynchronous: bool = False,
) -> Curve:
    """Trains on servers, from the first variables on.

    Args:
        target: the server to connect to.
        model: what is trained.
        devices: where operations go, by name; the others have no device.
        feeds: the batches, one for each step.
        asynchronous: a thread for each tower; a tower learns from its part of each batch.

    Returns:
        When each update ended, from the end of the first one on, because the first one waits for
        TensorFlow to prepare the graph; and the loss before each.
    """
    graph_def = model.graph.as_graph_def()
    for node in graph_def.node:
        node.device = devices.get(node.name, node.device)
    with tf.Graph().as_default() as graph:
        tf.import_graph_def(graph_def, name="")
    fetches = _of_towers(graph) if asynchronous else [(model.train_op, model.loss)]
    ended: list[list[tuple[float, float]]] = [[] for _ in fetches]
    failures: list[BaseException] = []
    with tf1.Session(target, graph=graph) as session:
        session.run(model.initializer)

        def run(number: int) -> None:
            # Threads swallow what they raise.
            try:
                for feed in feeds:
                    _, loss = session.run(fetches[number], feed)
                    ended[number].append((time.perf_counter(), float(loss)))
            except tf.errors.OpError as error:
                failures.append(error)

        threads = [threading.Thread(target=run, args=(i,)) for i in range(len(fetches))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    if failures:
        raise failures[0]
    # All towers are prepared when each has made a step.
    start_secs = max(of_tower[0][0] for of_tower in ended)
    updates = sorted(itertools.chain.from_iterable(ended))
    return Curve(
        tuple(secs - start_secs for secs, _ in updates), tuple(loss for _, loss in updates)
    )


def _of_towers(graph: tf.Graph) -> list[tuple[tf.Operation, tf.Tensor]]:
    """Finds the update and the loss of each asynchronous tower."""
    (total,) = (each for each in graph.get_operation_by_name("mean_loss").inputs if each.op.inputs)
    return [
        (graph.get_operation_by_name(f"tower_{tower}/train"), loss)
        for tower, loss in enumerate(total.op.inputs)
    ]


def _expert(model: TrainingModel, name: str, devices: Sequence[str]) -> dict[str, str]:
    """Places a model as people do; the first worker is the CPU of the rules and a GPU, too."""
    graph_def = model.graph.as_graph_def()
    op_graph = OpGraph.from_graph_def(graph_def, (model.train_op,), list(next(model.feeds())))
    grouped = group_operations(op_graph, "fine")
    names = (devices[0], *devices)
    legal = grouped.grouping.legal_devices(grouped.colocation, names)
    rows = expert_placements(name, op_graph.names, grouped.operation_groups, legal, len(devices))
    return grouped.assignment(next(iter(rows.values())), names)


def _search(name: str, args: argparse.Namespace) -> Found:
    """Looks for a placement, or reads what was found earlier."""
    directory = pathlib.Path(args.log_dir, name)
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / "found.json"
    if path.exists():
        return Found.from_json(read_json(path))
    trained = MODELS[name]
    model = trained.build()
    result = tf_placer.optimize(
        model.graph,
        model.train_op,
        next(model.feeds(args.seed)),
        model.initializer,
        machine=args.machine,
        max_secs=args.search_secs or trained.search_secs,
        log_dir=directory / "search",
        seed=args.seed,
    )
    found = Found(
        dict(result.placement.assignment) if result.placement else {},
        result.reason,
        result.speedup if result.changed else None,
        result.speedup_interval if result.changed else None,
    )
    write_json(path, found.to_json())
    return found


def _variants(
    trained: Trained, found: Found, devices: Sequence[str]
) -> dict[str, tuple[TrainingModel, Mapping[str, str]]]:
    """Lists what trains a model, by name: a graph and the devices of its operations."""
    model = trained.build()
    variants: dict[str, tuple[TrainingModel, Mapping[str, str]]] = {ORIGINAL: (model, {})}
    if trained.expert is not None:
        variants[EXPERT] = (model, _expert(model, trained.expert, devices))
    if found.devices:
        variants[FOUND] = (model, found.devices)
    if trained.towers is not None:
        for name, catalogue, asynchronous in (
            (SYNCHRONOUS, "inception_v3_towers", False),
            (ASYNCHRONOUS, "inception_v3_async_towers", True),
        ):
            towers = trained.towers(asynchronous)
            variants[name] = (towers, _expert(towers, catalogue, devices))
    return variants


def _train_all(args: argparse.Namespace, deadline_secs: float) -> None:
    """Makes the searches and runs that are missing, until it is time to stop."""
    machine = tf_placer.find_machine(args.machine)
    devices = [device.name for device in machine.devices]
    variants = {}
    for name in args.models:
        if time.monotonic() < deadline_secs:
            variants[name] = _variants(MODELS[name], _search(name, args), devices)
    for number, name in itertools.product(range(args.runs), variants):
        steps = args.steps or MODELS[name].steps
        paths = {
            variant: pathlib.Path(args.log_dir, name, f"run_{number}_{variant}.json")
            for variant in variants[name]
        }
        missing = [variant for variant, path in paths.items() if not path.exists()]
        if not missing or time.monotonic() >= deadline_secs:
            continue
        # Another one begins each time, so that none always runs on a machine that was idle.
        missing = [*missing[number % len(missing) :], *missing[: number % len(missing)]]
        model = variants[name][ORIGINAL][0]
        batches = list(itertools.islice(model.feeds(args.seed + number), steps))
        for variant in missing:
            start_secs = time.monotonic()
            placed, placement = variants[name][variant]
            # Towers have the placeholders of the model.
            with tf_placer.LocalCluster(machine) as cluster:
                curve = train(
                    cluster.target,
                    placed,
                    placement,
                    batches,
                    asynchronous=variant == ASYNCHRONOUS,
                )
            write_json(paths[variant], curve.to_json())
            took = format_duration(time.monotonic() - start_secs)
            print(f"{name}, run {number}, {variant}: {took}", flush=True)


def main(argv: Sequence[str] | None = None) -> None:
    """Searches, trains, and writes curves, table and pictures.

    Args:
        argv: the arguments; those of the process when None.
    """
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--models",
        nargs="+",
        choices=[*MODELS],
        default=[*MODELS],
        metavar="MODEL",
        help=f"which, of {', '.join(MODELS)} (default: all)",
    )
    parser.add_argument("--runs", type=int, default=4, help="of each placement (default 4)")
    parser.add_argument("--steps", type=int, help="of a run (default: 110 to 200, by model)")
    parser.add_argument(
        "--search_secs", type=float, help="of each search (default: 110 to 150, by model)"
    )
    parser.add_argument(
        "--stop_after_secs", type=float, help="begin no search and no round later (default: never)"
    )
    parser.add_argument("--machine", default="local:2", help="where to train (default local:2)")
    parser.add_argument("--seed", type=int, default=0, help="of searches and data (default 0)")
    parser.add_argument("--log_dir", default="runs/training", help="where runs are kept")
    parser.add_argument("--out_dir", default="benchmarks/results/training")
    args = parser.parse_args(argv)
    stop_after_secs = float("inf") if args.stop_after_secs is None else args.stop_after_secs
    _train_all(args, time.monotonic() + stop_after_secs)
    curves = {
        (name, variant, number): Curve.from_json(read_json(path))
        for name in args.models
        for variant in (ORIGINAL, EXPERT, FOUND, SYNCHRONOUS, ASYNCHRONOUS)
        for number in range(args.runs)
        if (path := pathlib.Path(args.log_dir, name, f"run_{number}_{variant}.json")).exists()
    }
    if not curves:
        raise SystemExit("no run is done yet")
    out = pathlib.Path(args.out_dir)
    out.mkdir(parents=True, exist_ok=True)
    found = {
        name: Found.from_json(read_json(path))
        for name in args.models
        if (path := pathlib.Path(args.log_dir, name, "found.json")).exists()
    }
    write_curves(out / "curves.csv.gz", curves)
    print(write_report(out, curves, found, provenance()))


if __name__ == "__main__":
    main()
