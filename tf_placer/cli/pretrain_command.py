"""The command `pretrain`: files of problems in, a file of weights out."""

from __future__ import annotations

import argparse
import dataclasses
import hashlib
import os
import pathlib
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from tf_placer.cli.answer import add_json, answer
from tf_placer.cli.arguments import PROBLEM_HELP
from tf_placer.errors import require_tensorflow
from tf_placer.files import check_output, read_json, write_json
from tf_placer.problem.coarse_groups import coarse_problem
from tf_placer.problem.problem_file import read_problem
from tf_placer.search.config import check_seed
from tf_placer.search.log_header import package_versions
from tf_placer.text.table import table
from tf_placer.text.terminal_line import TerminalLine
from tf_placer.text.units import format_duration, format_step

if TYPE_CHECKING:
    from tf_placer.placers.learned.pretraining import PretrainedProblem

__all__ = ["DESCRIPTION", "add_arguments", "run"]

_POLICY = "graph_neural"
DESCRIPTION = (
    "Trains the policy of the placer graph_neural, whose weights fit any graph on "
    "any machine, on simulated placements of the problems in turn. A search starts from the "
    "weights with --placer=graph_neural --placer_option=initial_weights=FILE. Ctrl-C ends the "
    "training with what was learned until then."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds what the command takes."""
    parser.add_argument(
        "--problems", required=True, nargs="+", metavar="PROBLEM", help=PROBLEM_HELP
    )
    parser.add_argument(
        "--output",
        required=True,
        help="where the weights go (.weights.h5); what they were trained on goes beside them, into "
        "a .json file",
    )
    parser.add_argument(
        "--updates",
        type=int,
        default=500,
        help="how many, over all problems (default 500)",
    )
    parser.add_argument("--seed", type=int, default=0, help="of everything random (default 0)")
    add_json(parser)


def run(args: argparse.Namespace) -> None:
    """Trains a graph-neural policy on problems, writes its weights and prints what it learned.

    Beside the weights goes a JSON file of the same name that says what they were trained on and
    with which settings. Ctrl-C ends the training with what was learned until then.

    Raises:
        KeyboardInterrupt: the training was interrupted in its first update.
        OSError: a file cannot be read or written.
        ValueError: a problem or an argument is wrong.
    """
    require_tensorflow()
    import tensorflow as tf

    from tf_placer.placers.learned.graph_neural import (
        WEIGHTS_SUFFIX,
        GraphNeuralConfig,
        GraphNeuralNetwork,
    )
    from tf_placer.placers.learned.pretraining import PretrainingConfig, pretrain
    from tf_placer.placers.learned.weights_file import most_bytes, write_weights

    check_seed(args.seed)
    if not args.output.endswith(WEIGHTS_SUFFIX):
        raise ValueError(f"--output must end in {WEIGHTS_SUFFIX}, unlike {args.output!r}")
    about = args.output.removesuffix(WEIGHTS_SUFFIX) + ".json"
    for path in (args.output, about):
        check_output(path, *args.problems)
    _check_about(about)
    # It places coarse groups wherever there are some.
    problems = [coarse_problem(read_problem(path))[0] for path in args.problems]
    # Each problem has functions of its own, which TensorFlow takes for one traced again and again.
    tf.get_logger().setLevel("ERROR")
    network_config, config = GraphNeuralConfig(), PretrainingConfig()
    network = GraphNeuralNetwork(network_config, args.seed)
    line = TerminalLine(sys.stderr)
    start_secs = time.monotonic()

    def report(done: int, results: Sequence[PretrainedProblem]) -> None:
        elapsed_secs = time.monotonic() - start_secs
        line.show(
            f"{done:,} of {args.updates:,} updates | steps take {_progress(results)} | elapsed "
            f"{format_duration(elapsed_secs)} | ETA "
            f"{format_duration(elapsed_secs / done * (args.updates - done))}"
        )

    try:
        results = pretrain(
            network, problems, updates=args.updates, seed=args.seed, config=config, report=report
        )
    finally:
        line.clear()
    write_weights(network.save_weights, args.output, most_bytes(network.weights))
    write_json(
        about,
        {
            "format": 1,
            "policy": _POLICY,
            "settings": dataclasses.asdict(network_config),
            "training": dataclasses.asdict(config),
            "problems": list(args.problems),
            "updates": sum(result.updates for result in results),
            "seed": args.seed,
            "versions": package_versions(),
            "sha256": hashlib.sha256(pathlib.Path(args.output).read_bytes()).hexdigest(),
        },
    )
    values = [
        {
            "problem": path,
            "groups": problem.num_groups,
            "devices": problem.num_devices,
            "updates": result.updates,
            "first_mean_secs": _finite(result.first_mean_secs),
            "last_mean_secs": _finite(result.last_mean_secs),
            "best_secs": _finite(result.best_secs),
        }
        for path, problem, result in zip(args.problems, problems, results, strict=True)
    ]
    headers = ["problem", "groups", "devices", "updates", "mean at first", "mean at last", "best"]
    rows = [
        [cell if not name.endswith("_secs") else _step(cell) for name, cell in value.items()]
        for value in values
    ]
    text = f"{table(headers, rows, 'lrrrrrr')}\nweights: {args.output}"
    answer(args, text, {"problems": values, "weights": args.output})


def _progress(results: Sequence[PretrainedProblem]) -> str:
    """Says how long steps take in the last batches, relative to the first ones."""
    ratios = [
        result.last_mean_secs / result.first_mean_secs
        for result in results
        if np.isfinite([result.last_mean_secs, result.first_mean_secs]).all()
        and result.first_mean_secs > 0
    ]
    return f"{np.mean(ratios):.0%} of what they took at first" if ratios else "too much memory"


def _finite(secs: float) -> float | None:
    return float(secs) if np.isfinite(secs) else None


def _step(secs: float | None) -> str:
    return "does not fit" if secs is None else format_step(secs)


def _check_about(path: str) -> None:
    """Makes sure that what goes beside the weights replaces nothing but what was there of weights.

    Raises:
        OSError: there is something else, or it cannot be read.
    """
    if not os.path.exists(path):
        return
    try:
        is_own = read_json(path)["policy"] == _POLICY
    except (KeyError, TypeError, ValueError):
        is_own = False
    if not is_own:
        raise OSError(
            f"{path!r} is there, and does not describe weights: what describes the new ones would "
            "replace it, so give --output another name"
        )
