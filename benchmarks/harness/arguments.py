"""The flags of benchmarks that keep their runs."""

from __future__ import annotations

import argparse

__all__ = ["add_pool_arguments", "run_parser"]


def run_parser(doc: str | None, folder: str | None = None) -> argparse.ArgumentParser:
    """Makes a parser with the flags that all of these benchmarks have.

    Args:
        doc: of the module; its first line is what `--help` says.
        folder: of `benchmarks/results`, where runs and pages go.
    """
    parser = argparse.ArgumentParser(description=(doc or "").splitlines()[0])
    parser.add_argument(
        "--only_kept", action="store_true", help="make no runs: a page of those that are kept"
    )
    default = None if folder is None else f"benchmarks/results/{folder}"
    parser.add_argument("--out_dir", default=default, help="for kept runs and pages")
    return parser


def add_pool_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the flags of benchmarks whose runs are made in a pool."""
    parser.add_argument(
        "--jobs", type=int, default=2, help="runs at a time, each on one core (default 2)"
    )
    parser.add_argument("--runs_dir", default="runs/tables", help="for problems and placements")
