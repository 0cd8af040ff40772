"""The command of benchmarks that search random problems, which are numbered."""

from __future__ import annotations

import pathlib
from collections.abc import Callable, Sequence
from typing import TypeVar

from benchmarks.harness.arguments import run_parser
from benchmarks.harness.csv_runs import KeyedRun, kept_or_run
from benchmarks.harness.table_file import write_table

__all__ = ["in_ranges", "run_command"]

_Run = TypeVar("_Run", bound=KeyedRun)


def in_ranges(
    runs: Sequence[_Run], ends: Sequence[int], size: Callable[[_Run], int]
) -> list[tuple[str, list[_Run]]]:
    """Groups the runs by size: a name for each range, and those in it; all of them last.

    Args:
        runs: all.
        ends: of the ranges.
        size: of a run.
    """
    ranges = [
        (f"up to {end:,}", [run for run in runs if start < size(run) <= end])
        for start, end in zip((0, *ends), ends, strict=False)
    ]
    return [(name, those) for name, those in [*ranges, ("all", list(runs))] if those]


def run_command(
    name: str,
    doc: str | None,
    record: type[_Run],
    count: int,
    run: Callable[[int], _Run],
    page: Callable[[Sequence[_Run]], str],
) -> None:
    """Runs such a command: makes the runs that are missing, and a page of all.

    Args:
        name: of the benchmark.
        doc: of the module; its first line is what `--help` says.
        record: what a run is; its key is the number of the problem.
        count: how many problems there are.
        run: makes a run of a number.
        page: the table and what it means, in Markdown.
    """
    args = run_parser(doc, name).parse_args()
    out = pathlib.Path(args.out_dir)
    runs = kept_or_run(record, out / "runs.csv", range(count), run, only_kept=args.only_kept)
    write_table(page(runs), out / "table.md")
