"""Trains three models to the end, the original, as people place it, and as `optimize` places it.

The models are small enough to train in half a minute on two worker processes of this computer: a
language model, a translation model with attention, and an Inception-V3, which synchronous and
asynchronous towers train, too. Every run starts from the same variables, and all placements of a
run read the same batches in the same order. The placements take turns, each in fresh processes.
Searches and runs that are done are not made again; `--stop_after_secs` leaves the rest to the next
call. Every call writes curves and table anew; `benchmarks.paper_figures.figures` draws the curves.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import dataclasses
import itertools
import os
import pathlib
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np
import tensorflow as tf

import tf_placer
from benchmarks.live.training_curves import (
    ASYNCHRONOUS,
    EXPERT,
    FOUND,
    ORIGINAL,
    SYNCHRONOUS,
    VARIANTS,
    Curve,
    Found,
    read_curves,
    write_curves,
)
from benchmarks.live.training_report import write_report
from benchmarks.models import inception_v3, language_model, translation_model
from benchmarks.models.training_model import TrainingModel
from benchmarks.problems.experts import expert_placements
from graph_passes.op_graph import OpGraph
from graph_passes.pipeline import group_operations
from tf_placer.files import read_json, write_json

tf1 = tf.compat.v1

__all__ = ["MODELS", "Trained", "main", "train"]

_MACHINE = "local:2"


@dataclasses.dataclass(frozen=True)
class Trained:
    """A model to train.

    Attributes:
        build: makes it.
        steps: of a run.
        search_secs: how long to look for a placement.
        expert: the model of the catalog whose expert places it; None if experts use towers.
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


#: The trained models by name.
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
    feeds: Sequence[Mapping[str, np.ndarray]],
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
    towers = _towers(graph) if asynchronous else [(model.train_op, model.loss)]

    def run(fetches: Any) -> list[tuple[float, float]]:
        updates = []
        for feed in feeds:
            _, loss = session.run(fetches, feed)
            updates.append((time.perf_counter(), float(loss)))
        return updates

    with (
        tf1.Session(target, graph=graph) as session,
        concurrent.futures.ThreadPoolExecutor(len(towers)) as threads,
    ):
        session.run(model.initializer)
        of_towers = list(threads.map(run, towers))
    # All towers are prepared when each has made a step.
    start_secs = max(updates[0][0] for updates in of_towers)
    secs, losses = zip(*sorted(itertools.chain.from_iterable(of_towers)), strict=True)
    return Curve(tuple(each - start_secs for each in secs), losses)


def _towers(graph: tf.Graph) -> list[tuple[tf.Operation, tf.Tensor]]:
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


def _search(trained: Trained, directory: pathlib.Path) -> Found:
    """Looks for a placement, or reads what was found earlier."""
    path = directory / "found.json"
    if path.exists():
        return Found(**read_json(path))
    model = trained.build()
    result = tf_placer.optimize(
        model.graph,
        model.train_op,
        next(model.feeds()),
        model.initializer,
        machine=_MACHINE,
        max_secs=trained.search_secs,
        log_dir=directory / "search",
        seed=0,
    )
    found = Found(
        dict(result.placement.assignment) if result.placement else {},
        result.reason,
        result.speedup if result.changed else None,
        result.speedup_interval if result.changed else None,
    )
    directory.mkdir(parents=True, exist_ok=True)
    write_json(path, dataclasses.asdict(found))
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
        for name, catalog, asynchronous in (
            (SYNCHRONOUS, "inception_v3_towers", False),
            (ASYNCHRONOUS, "inception_v3_async_towers", True),
        ):
            towers = trained.towers(asynchronous)
            variants[name] = (towers, _expert(towers, catalog, devices))
    return variants


def _train_missing(
    log: pathlib.Path, names: Sequence[str], runs: int, deadline_secs: float
) -> dict[tuple[str, str, int], Curve]:
    """Makes the searches and runs that are missing until it is time to stop; returns all runs."""
    path = log / "curves.csv.gz"
    curves = read_curves(path) if path.exists() else {}
    machine = tf_placer.find_machine(_MACHINE)
    devices = [device.name for device in machine.devices]
    variants = {}
    for name in names:
        if time.monotonic() < deadline_secs:
            found = _search(MODELS[name], log / name)
            variants[name] = _variants(MODELS[name], found, devices)
    for number, name in itertools.product(range(runs), variants):
        missing = [each for each in variants[name] if (name, each, number) not in curves]
        if not missing or time.monotonic() >= deadline_secs:
            continue
        # Another one begins each time, so that none always runs on a machine that was idle.
        first = number % len(missing)
        feeds = variants[name][ORIGINAL][0].feeds(number)
        batches = list(itertools.islice(feeds, MODELS[name].steps))
        for variant in [*missing[first:], *missing[:first]]:
            # Towers have the placeholders of the model.
            model, placement = variants[name][variant]
            is_asynchronous = variant == ASYNCHRONOUS
            with tf_placer.LocalCluster(machine) as cluster:
                curves[name, variant, number] = train(
                    cluster.target, model, placement, batches, asynchronous=is_asynchronous
                )
            write_curves(path, curves)
            secs = curves[name, variant, number].secs[-1]
            print(f"{name}, run {number}, {variant}: {secs:.1f} s", flush=True)
    return curves


def main(argv: Sequence[str] | None = None) -> None:
    """Searches, trains, and writes curves and table.

    Args:
        argv: the arguments; those of the process when None.
    """
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", nargs="+", choices=[*MODELS], default=[*MODELS])
    parser.add_argument("--runs", type=int, default=4, help="of each placement (default 4)")
    parser.add_argument(
        "--stop_after_secs",
        type=float,
        default=float("inf"),
        help="begin no search and no round later (default: never)",
    )
    parser.add_argument("--log_dir", default="runs/training", help="where runs are kept")
    parser.add_argument("--out_dir", default="benchmarks/results/training")
    args = parser.parse_args(argv)
    deadline_secs = time.monotonic() + args.stop_after_secs
    log = pathlib.Path(args.log_dir)
    curves = _train_missing(log, args.models, args.runs, deadline_secs)
    if not curves:
        raise SystemExit("no run is done yet")
    models = [*MODELS]
    keys = sorted(curves, key=lambda key: (models.index(key[0]), VARIANTS.index(key[1]), key[2]))
    out = pathlib.Path(args.out_dir)
    out.mkdir(parents=True, exist_ok=True)
    curves = {key: curves[key] for key in keys}
    write_curves(out / "curves.csv.gz", curves)
    found = {path.parent.name: Found(**read_json(path)) for path in log.glob("*/found.json")}
    write_report(out / "training.md", curves, found)


if __name__ == "__main__":
    main()
