"""Runs kept in one CSV file, so that a benchmark goes on where it stopped; numbered ones."""

from __future__ import annotations

import argparse
import csv
import dataclasses
import os
import pathlib
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, get_type_hints

from benchmarks.harness.provenance import provenance
from tf_placer.text.units import format_duration

__all__ = [
    "NumberedRun",
    "in_ranges",
    "read_runs",
    "run_command",
    "run_numbers",
    "write_runs",
]

_PARSERS: dict[type, Callable[[str], Any]] = {
    float: float,
    int: int,
    bool: lambda text: text == "True",
    str: str,
}


@dataclasses.dataclass(frozen=True)
class NumberedRun:
    """A run. What is derived from this adds attributes of the types float, int and bool.

    Attributes:
        number: which run.
    """

    number: int


_Run = TypeVar("_Run", bound=NumberedRun)
_Record = TypeVar("_Record")


def run_numbers(
    record: type[_Run],
    path: pathlib.Path,
    count: int,
    run: Callable[[int], _Run],
    note: Callable[[_Run], str],
) -> list[_Run]:
    """Makes the runs that are not there yet.

    Args:
        record: what a run is.
        path: the file, which is written anew after every run.
        count: how many runs; their numbers are from 0.
        run: makes a run by its number.
        note: what to print about a run beside the progress; may be empty.

    Returns:
        All runs, by number.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    runs = {each.number: each for each in read_runs(record, path)}
    start_secs = time.monotonic()
    missing = [number for number in range(count) if number not in runs]
    for done, number in enumerate(missing, 1):
        runs[number] = run(number)
        write_runs(record, path, [runs[each] for each in sorted(runs)])
        left_secs = (time.monotonic() - start_secs) / done * (len(missing) - done)
        parts = [f"{done}/{len(missing)}", f"{format_duration(left_secs)} left"]
        print(", ".join([*parts, note(runs[number])]).removesuffix(", "), flush=True)
    return [runs[number] for number in range(count)]


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
    description: str,
    record: type[_Run],
    count: int,
    run: Callable[[int, int, float], _Run],
    note: Callable[[_Run], str],
    page: Callable[[Sequence[_Run]], str],
) -> None:
    """Runs a benchmark command that searches random problems: makes the runs and a page of them.

    Args:
        name: of the benchmark.
        description: what `--help` says.
        record: what a run is.
        count: how many problems there are if nobody says.
        run: makes a run, by the seed of all problems, its number and the seconds of its search.
        note: see `run_numbers`.
        page: the table and what it means, in Markdown.
    """
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument(
        "--problems", type=int, default=count, help="how many (default %(default)s)"
    )
    parser.add_argument("--max_secs", type=float, default=2.0, help="of each search (default 2)")
    parser.add_argument("--seed", type=int, default=0, help="of the problems (default 0)")
    parser.add_argument("--out_dir", default=f"benchmarks/results/{name}")
    args = parser.parse_args()
    out = pathlib.Path(args.out_dir)
    runs = run_numbers(
        record,
        out / "runs.csv",
        args.problems,
        lambda number: run(args.seed, number, args.max_secs),
        note,
    )
    made_by = provenance()
    text = (
        f"{page(runs)} Made by `{made_by['command']}` at commit {made_by['commit'] or 'unknown'} "
        f"on {made_by['processor']}, {made_by['cores']} cores."
    )
    print(text)
    (out / "table.md").write_text(text + "\n")


def read_runs(record: type[_Record], path: pathlib.Path) -> list[_Record]:
    """Reads what `write_runs` wrote.

    Args:
        record: a dataclass with attributes of the types float, int, bool and str.
        path: the file; without it there are no runs.
    """
    if not path.exists():
        return []
    parsers = {name: _PARSERS[kind] for name, kind in get_type_hints(record).items()}
    with path.open(newline="") as file:
        return [
            record(**{name: parsers[name](text) for name, text in row.items()})
            for row in csv.DictReader(file)
        ]


def write_runs(record: type[_Record], path: pathlib.Path, runs: Sequence[_Record]) -> None:
    """Writes all runs, whole or not at all.

    Args:
        record: see `read_runs`.
        path: the file.
        runs: of that type.
    """
    names = list(get_type_hints(record))
    part = path.with_suffix(".part")
    with part.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(names)
        writer.writerows([getattr(run, name) for name in names] for run in runs)
    os.replace(part, path)
