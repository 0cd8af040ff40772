"""Plans models whose placeholders say no batch size beside the same models of known sizes.

What is fed to the former has the sizes of the latter, so both should take the same time and memory:

    python -m benchmarks.simulator.fed_shapes
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import unittest.mock
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from benchmarks.models.catalogue import MODELS, build_model
from graph_passes.unknown_sizes import unknown_sizes
from tf_placer.costs.costed_graph import cost_graph
from tf_placer.environments.simulated import SimulatedEnvironment
from tf_placer.inputs.sources import read_source
from tf_placer.machines.lookup import find_machine
from tf_placer.text.table import table
from tf_placer.text.units import format_bytes, format_step

__all__ = ["Planned", "main"]

_NAMES = ("inception_v3", "resnet_50", "nasnet_a", "rnnlm_2", "two_towers")
_MACHINE = "1xH200"


@dataclasses.dataclass(frozen=True)
class Planned:
    """What planning says of a model that runs all on one GPU.

    Attributes:
        num_operations: of its graph.
        num_unknown: how many tensors of a step have sizes that nobody knows.
        step_secs: seconds of a simulated step.
        peak_bytes: the most memory that is held at once.
    """

    num_operations: int
    num_unknown: int
    step_secs: float
    peak_bytes: int


@contextlib.contextmanager
def _without_batch_sizes() -> Iterator[None]:
    """Makes placeholders whose first dimension is unknown, as most training scripts do."""
    placeholder = tf.compat.v1.placeholder

    def unknown_batch(dtype: tf.DType, shape: Sequence[int], name: str | None = None) -> tf.Tensor:
        return placeholder(dtype, [None, *shape[1:]], name)

    with unittest.mock.patch.object(tf.compat.v1, "placeholder", unknown_batch):
        yield


def _plan_model(graph: tf.Graph, loss: str, feeds: Mapping[str, np.ndarray] | None) -> Planned:
    """Plans a model for one GPU.

    Args:
        graph: the graph, with its training operation in the collection `train_op`.
        loss: the tensor that a step fetches, too.
        feeds: what a step is fed; made up when None.
    """
    [train_op] = graph.get_collection("train_op")
    source = read_source(graph, [train_op.name, loss], feeds)
    costed = cost_graph(source, find_machine(_MACHINE), steps=1)
    gpu = [device.type for device in costed.machine.devices].index("GPU")
    # All is where TensorFlow puts it: on the GPU, if it has a kernel for it.
    problem, placement = costed.placed(None)
    [measured] = SimulatedEnvironment(problem, threads=1).measure(placement[None])
    assert measured.median_secs is not None and measured.peak_bytes is not None, measured.failure
    return Planned(
        len(graph.get_operations()),
        len(unknown_sizes(source.op_graph)),
        measured.median_secs,
        measured.peak_bytes[gpu],
    )


def main(argv: Sequence[str] | None = None) -> None:
    """Plans the models and prints a table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--small", action="store_true", help="models whose steps take milliseconds")
    parser.add_argument("--models", nargs="+", choices=MODELS, default=_NAMES, metavar="NAME")
    args = parser.parse_args(argv)
    rows: list[list[Any]] = []
    for name in args.models:
        model = build_model(name, small=args.small)
        with _without_batch_sizes():
            fed = build_model(name, small=args.small)
        feeds = next(model.feeds())
        known = _plan_model(model.graph, model.loss, feeds)
        of_fed = _plan_model(fed.graph, fed.loss, feeds)
        rows.append(
            [
                name,
                known.num_operations,
                of_fed.num_operations,
                of_fed.num_unknown,
                format_step(known.step_secs),
                f"{of_fed.step_secs / known.step_secs:.4f}",
                format_bytes(known.peak_bytes),
                f"{of_fed.peak_bytes / known.peak_bytes:.4f}",
            ]
        )
    headers = ["model", "operations", "unsized", "unknown", "step", "unsized", "memory", "unsized"]
    print(table(headers, rows, "lrrrrrrr"))


if __name__ == "__main__":
    main()
