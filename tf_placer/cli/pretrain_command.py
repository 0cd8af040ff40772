"""The command `pretrain`: trains a policy on problem files and writes its weights."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from tf_placer.cli.answer import add_json, answer
from tf_placer.cli.arguments import PROBLEM_HELP
from tf_placer.planning.pretraining import pretrain_policy
from tf_placer.text.progress_line import ProgressLine
from tf_placer.text.table import table
from tf_placer.text.units import format_duration, format_step

if TYPE_CHECKING:
    from tf_placer.placers.learned.pretraining import PretrainedProblem

__all__ = ["DESCRIPTION", "add_arguments", "run"]

DESCRIPTION = (
    "Trains the policy of the placer graph_neural, whose weights fit any graph on "
    "any machine, on simulated placements of the problems in turn. To start a search from the "
    "weights, use --placer=graph_neural --placer_option=initial_weights=FILE. Ctrl-C ends the "
    "training and writes the weights learned so far."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of the command."""
    parser.add_argument(
        "--problems", required=True, nargs="+", metavar="PROBLEM", help=PROBLEM_HELP
    )
    parser.add_argument(
        "--output",
        required=True,
        help="file for the weights (.weights.h5); a .json file beside it describes the training",
    )
    parser.add_argument(
        "--updates",
        type=int,
        default=500,
        help="number of updates over all problems (default 500)",
    )
    parser.add_argument("--seed", type=int, default=0, help="random seed (default 0)")
    add_json(parser)


def run(args: argparse.Namespace) -> None:
    """Trains a graph-neural policy on problems, writes its weights and prints its progress.

    Raises:
        KeyboardInterrupt, OSError, ValueError: see `pretrain_policy`.
    """
    line = ProgressLine(sys.stderr)
    start_secs = time.monotonic()

    def show(done: int, results: Sequence[PretrainedProblem]) -> None:
        elapsed_secs = time.monotonic() - start_secs
        line.show(
            f"{done:,} of {args.updates:,} updates | steps take {_progress(results)} | elapsed "
            f"{format_duration(elapsed_secs)} | ETA "
            f"{format_duration(elapsed_secs / done * (args.updates - done))}"
        )

    try:
        values = pretrain_policy(
            args.problems, args.output, updates=args.updates, seed=args.seed, report=show
        )
    finally:
        line.clear()
    headers = ["problem", "groups", "devices", "updates", "mean at first", "mean at last", "best"]
    rows = [
        [cell if not name.endswith("_secs") else _step(cell) for name, cell in value.items()]
        for value in values
    ]
    text = f"{table(headers, rows, 'lrrrrrr')}\nweights: {args.output}"
    answer(args, text, {"problems": values, "weights": args.output})


def _progress(results: Sequence[PretrainedProblem]) -> str:
    """Formats the step time of the last batches relative to the first ones."""
    ratios = [
        result.last_mean_secs / result.first_mean_secs
        for result in results
        if np.isfinite([result.last_mean_secs, result.first_mean_secs]).all()
        and result.first_mean_secs > 0
    ]
    return f"{np.mean(ratios):.0%} of what they took at first" if ratios else "too much memory"


def _step(secs: float | None) -> str:
    return "does not fit" if secs is None else format_step(secs)
