"""The tables of the papers, found again: ours in simulation beside what was printed.

Each cell is a run of a placer on the full-size model of the row on the simulated machine of the
paper. For each table it writes NAME.md, NAME.csv and NAME.png, a picture of what was sampled while
learning (NAME_learning.png), and what made them (provenance.json). BUDGET_runs.jsonl.gz keeps
every run that ended: those that are there are not repeated, so the benchmark goes on where it was
stopped.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import pathlib
from collections.abc import Sequence

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

from benchmarks.harness.kept_runs import kept_or_made
from benchmarks.harness.placement_runs import Run, RunKey
from benchmarks.harness.provenance import provenance, provenance_line
from benchmarks.harness.run_placers import uses_seed
from benchmarks.harness.search_curves import plot_learning_curves
from benchmarks.harness.timed_search import SearchBudget
from benchmarks.paper_tables.count_table import write_count_table
from benchmarks.paper_tables.picture import plot_table
from benchmarks.paper_tables.published_tables import COUNT_TABLE, TABLES, Column, PaperTable, Row
from benchmarks.paper_tables.report import table_cells, table_markdown, write_table_csv
from tf_placer.files import write_json
from tf_placer.placers import is_learned

__all__ = ["main", "quick_table", "row_keys"]

_ALL = (COUNT_TABLE, *TABLES)
_SAMPLES, _MAX_SECS = 2400, 600.0
# Small models, and as little as shows that everything works.
_QUICK_MODELS, _QUICK_SAMPLES, _QUICK_MAX_SECS = 2, 20, 3.0
_OUT_DIR, _QUICK_OUT_DIR = "benchmarks/results/tables", "runs/tables_quick"


def row_keys(row: Row, column: Column, seeds: Sequence[int], small: bool) -> list[RunKey]:
    """Lists the runs of a cell: one per seed, or one if nothing about the placer is random.

    Args:
        row: the model and the machine.
        column: the placer.
        seeds: at least one.
        small: whether the model has its small size.
    """
    known = column.placer_for(row)
    if known is None:
        return []
    placer, options = known
    return [
        RunKey(row.model, row.machine, placer, options, seed, small)
        for seed in (seeds if uses_seed(placer) else seeds[:1])
    ]


def quick_table(table: PaperTable) -> PaperTable:
    """Shortens a table to one row for each of its first models."""
    first: dict[str, Row] = {}
    for row in table.rows:
        first.setdefault(row.model, row)
    return dataclasses.replace(table, rows=tuple(first.values())[:_QUICK_MODELS])


def _write(
    table: PaperTable, out: pathlib.Path, runs: dict[RunKey, Run], args: argparse.Namespace,
    note: str,
) -> str:  # fmt: skip
    """Writes what there is of a table; the page."""

    def runs_of(row: Row, column: Column) -> list[Run]:
        return [runs[key] for key in row_keys(row, column, args.seeds, args.quick)]

    cells = table_cells(table, runs_of)
    page = table_markdown(table, cells, note)
    (out / f"{table.name}.md").write_text(page, encoding="utf-8")
    write_table_csv(out / f"{table.name}.csv", table, cells)
    plot_table(out / f"{table.name}.png", table, cells)
    learned = [
        [run for cell in of_row.values() for run in cell.runs[:1] if is_learned(run.key.placer)]
        for of_row in cells
    ]
    plot_learning_curves(out / f"{table.name}_learning.png", table.title, learned)
    return page


def _names(text: str) -> list[str]:
    for name in text.split(","):
        if name not in _ALL:
            raise argparse.ArgumentTypeError(f"no {name!r}; there are: {', '.join(_ALL)}")
    return text.split(",")


def main() -> None:
    """Makes the runs that are missing and writes the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--tables", type=_names, default=list(_ALL), help=f"by comma, of: {', '.join(_ALL)}"
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help=f"the first {_QUICK_MODELS} models of each table in a small size, {_QUICK_SAMPLES} "
        f"samples, {_QUICK_MAX_SECS:g} s per run: shows that everything works",
    )
    parser.add_argument("--samples", type=int, help=f"per run (default {_SAMPLES})")
    parser.add_argument(
        "--max_secs", type=float, help=f"processor time per run (default {_MAX_SECS:g})"
    )
    parser.add_argument(
        "--seeds",
        type=lambda text: [int(seed) for seed in text.split(",")],
        default=[0],
        help="by comma; the best of them counts (default 0)",
    )
    parser.add_argument("--jobs", type=int, default=2, help="runs at a time (default 2)")
    parser.add_argument("--runs_dir", default="runs/tables", help="for problems and runs")
    parser.add_argument("--out_dir", help=f"default {_OUT_DIR}, with --quick {_QUICK_OUT_DIR}")
    args = parser.parse_args()
    samples, max_secs = args.samples, args.max_secs
    out = pathlib.Path(args.out_dir or (_QUICK_OUT_DIR if args.quick else _OUT_DIR))
    out.mkdir(parents=True, exist_ok=True)
    budget = SearchBudget(
        max_secs or (_QUICK_MAX_SECS if args.quick else _MAX_SECS),
        samples or (_QUICK_SAMPLES if args.quick else _SAMPLES),
    )

    def report(line: str) -> None:
        print(line, flush=True)

    tables = [TABLES[name] for name in args.tables if name in TABLES]
    if args.quick:
        tables = [quick_table(table) for table in tables]
    keys = [
        key
        for table in tables
        for row in table.rows
        for column in table.columns
        for key in row_keys(row, column, args.seeds, args.quick)
    ]
    made_by = provenance()
    note = provenance_line(made_by, budget, args.seeds)
    if args.quick:
        note = f"With models of small size, which the papers did not have. {note}"
    write_json(out / "provenance.json", made_by)
    if COUNT_TABLE in args.tables:
        problems_dir = pathlib.Path(args.runs_dir, "problems")
        report(write_count_table(out, problems_dir, args.quick, note, report=report))
    model_jobs = args.jobs if args.quick else 1
    runs = kept_or_made(
        keys,
        budget,
        out / f"{budget.folder}_runs.jsonl.gz",
        args.runs_dir,
        jobs=args.jobs,
        model_jobs=model_jobs,
    )
    for table in tables:
        report(_write(table, out, runs, args, note))


if __name__ == "__main__":
    main()
