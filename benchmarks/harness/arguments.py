"""The flags of benchmarks that keep their runs."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

__all__ = ["add_pool_arguments", "run_parser"]


def run_parser(
    doc: str | None, folder: str, *, seeds: Sequence[int] = (0,)
) -> argparse.ArgumentParser:
    """Makes a parser with the flags that all of these benchmarks have.

    Args:
        doc: of the module; its first line is what `--help` says.
        folder: of `benchmarks/results`, where runs and pages go.
        seeds: those of the runs if nobody says.
    """
    parser = argparse.ArgumentParser(description=(doc or "").splitlines()[0])
    parser.add_argument(
        "--seeds",
        type=lambda text: [int(seed) for seed in text.split(",")],
        default=list(seeds),
        help=f"by comma (default {','.join(map(str, seeds))})",
    )
    parser.add_argument(
        "--only_kept", action="store_true", help="make no runs: a page of those that are kept"
    )
    parser.add_argument("--out_dir", default=f"benchmarks/results/{folder}")
    return parser


def add_pool_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the flags of benchmarks whose runs are made in a pool."""
    parser.add_argument(
        "--jobs", type=int, default=2, help="runs at a time, each on one core (default 2)"
    )
    parser.add_argument("--runs_dir", default="runs/tables", help="for problems and placements")
