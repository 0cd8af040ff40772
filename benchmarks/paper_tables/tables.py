"""The tables of the papers, found again: ours in simulation beside what was printed.

Each cell is a run of a placer on the full-size model of the row on the simulated machine of the
paper. Each table is written to NAME.md. BUDGET_runs.jsonl.gz keeps every run that ended: those that
are there are not repeated, so the benchmark goes on where it was stopped.
"""

from __future__ import annotations

import argparse
import os
import pathlib
from collections.abc import Sequence

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

from benchmarks.harness.arguments import add_pool_arguments, run_parser
from benchmarks.harness.kept_runs import kept_or_made
from benchmarks.harness.placement_runs import RunKey
from benchmarks.harness.provenance import provenance, provenance_line
from benchmarks.harness.run_placers import uses_seed
from benchmarks.harness.timed_search import SearchBudget
from benchmarks.paper_tables.published_tables import TABLES, Column, Row
from benchmarks.paper_tables.report import table_cells, table_markdown

__all__ = ["main", "row_keys"]

_SAMPLES, _MAX_SECS = 2400, 120.0


def row_keys(row: Row, column: Column, seeds: Sequence[int]) -> list[RunKey]:
    """Lists the runs of a cell: one per seed, or one if nothing about the placer is random.

    Args:
        row: the model and the machine.
        column: the placer.
        seeds: at least one.
    """
    known = column.placer_for(row)
    if known is None:
        return []
    placer, options = known
    return [
        RunKey(row.model, row.machine, placer, options, seed)
        for seed in (seeds if uses_seed(placer) else seeds[:1])
    ]


def _names(text: str) -> list[str]:
    for name in text.split(","):
        if name not in TABLES:
            raise argparse.ArgumentTypeError(f"no {name!r}; there are: {', '.join(TABLES)}")
    return text.split(",")


def main() -> None:
    """Makes the runs that are missing and writes the tables."""
    parser = run_parser(__doc__, "tables")
    add_pool_arguments(parser)
    parser.add_argument(
        "--tables", type=_names, default=list(TABLES), help=f"by comma, of: {', '.join(TABLES)}"
    )
    parser.add_argument(
        "--samples", type=int, default=_SAMPLES, help="per run (default %(default)s)"
    )
    parser.add_argument(
        "--max_secs",
        type=float,
        default=_MAX_SECS,
        help="processor time per run (default %(default)g)",
    )
    args = parser.parse_args()
    out = pathlib.Path(args.out_dir)
    out.mkdir(parents=True, exist_ok=True)
    budget = SearchBudget(args.max_secs, args.samples)
    tables = [TABLES[name] for name in args.tables]
    keys = [
        key
        for table in tables
        for row in table.rows
        for column in table.columns
        for key in row_keys(row, column, args.seeds)
    ]
    runs = kept_or_made(
        keys,
        budget,
        out / f"{budget.folder}_runs.jsonl.gz",
        args.runs_dir,
        jobs=args.jobs,
        only_kept=args.only_kept,
    )
    seeds = ", ".join(map(str, args.seeds))
    footer = provenance_line(provenance(), f"Budget of each run: {budget}; seeds: {seeds}.")
    for table in tables:
        cells = table_cells(
            table,
            lambda row, column: [
                runs[key] for key in row_keys(row, column, args.seeds) if key in runs
            ],
        )
        page = table_markdown(table, cells, footer)
        (out / f"{table.name}.md").write_text(page, encoding="utf-8")
        print(page, flush=True)


if __name__ == "__main__":
    main()
