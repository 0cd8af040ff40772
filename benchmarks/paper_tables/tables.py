"""The tables of the papers, found again: ours in simulation beside what was printed.

Each cell is a run of a placer on the full-size model of the row on the simulated machine of the
paper. Each table is written to NAME.md. BUDGET_runs.jsonl.xz keeps every run that ended: those that
are there are not repeated, so a later run resumes the benchmark.
"""

from __future__ import annotations

import os
import pathlib
from collections.abc import Sequence

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

from benchmarks.comparison.seen_problems import describe_seen
from benchmarks.harness.arguments import add_pool_arguments, run_parser
from benchmarks.harness.kept_runs import read_or_make_runs
from benchmarks.harness.placement_runs import RunKey
from benchmarks.harness.run_placers import uses_seed
from benchmarks.harness.table_file import write_table
from benchmarks.harness.timed_search import SearchBudget
from benchmarks.paper_tables.published_tables import TABLES, Column, Row
from benchmarks.paper_tables.report import table_cells, table_markdown

__all__ = ["main", "row_keys"]

_BUDGET = SearchBudget(120.0, 2400)
# The best of them counts.
_SEEDS = (0,)


def row_keys(row: Row, column: Column, seeds: Sequence[int] = _SEEDS) -> list[RunKey]:
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


def main() -> None:
    """Makes the runs that are missing and writes the tables."""
    parser = run_parser(__doc__, "tables")
    add_pool_arguments(parser)
    args = parser.parse_args()
    out = pathlib.Path(args.out_dir)
    keys = [
        key
        for table in TABLES.values()
        for row in table.rows
        for column in table.columns
        for key in row_keys(row, column)
    ]
    runs = read_or_make_runs(
        keys,
        _BUDGET,
        out / f"{_BUDGET.folder}_runs.jsonl.xz",
        args.runs_dir,
        jobs=args.jobs,
        only_kept=args.only_kept,
    )
    for name, table in TABLES.items():
        cells = table_cells(
            table, lambda row, column: [runs[key] for key in row_keys(row, column) if key in runs]
        )
        seen = describe_seen(
            (f"{row.model}:{row.machine}" for row in table.rows), graph_neural=False
        )
        page = f"{table_markdown(table, cells)}\n\n{seen}\n\nBudget of each run: {_BUDGET}."
        write_table(page, out / f"{name}.md")


if __name__ == "__main__":
    main()
