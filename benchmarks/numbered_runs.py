"""Runs with numbers, kept in one CSV file, so that a benchmark goes on where it stopped."""

from __future__ import annotations

import csv
import dataclasses
import os
import pathlib
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, get_type_hints

from tf_placer.report.units import format_duration

__all__ = ["NumberedRun", "run_numbers"]

_PARSERS: dict[type, Callable[[str], Any]] = {
    float: float,
    int: int,
    bool: lambda text: text == "True",
}


@dataclasses.dataclass(frozen=True)
class NumberedRun:
    """A run. What is derived from this adds attributes of the types float, int and bool.

    Attributes:
        number: which run.
    """

    number: int


_Run = TypeVar("_Run", bound=NumberedRun)


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
    runs = {each.number: each for each in _read(record, path)} if path.exists() else {}
    start_secs = time.monotonic()
    missing = [number for number in range(count) if number not in runs]
    for done, number in enumerate(missing, 1):
        runs[number] = run(number)
        _write(record, path, [runs[each] for each in sorted(runs)])
        left_secs = (time.monotonic() - start_secs) / done * (len(missing) - done)
        parts = [f"{done}/{len(missing)}", f"{format_duration(left_secs)} left"]
        print(", ".join([*parts, note(runs[number])]).removesuffix(", "), flush=True)
    return [runs[number] for number in range(count)]


def _read(record: type[_Run], path: pathlib.Path) -> list[_Run]:
    parsers = {name: _PARSERS[kind] for name, kind in get_type_hints(record).items()}
    with path.open(newline="") as file:
        return [
            record(**{name: parsers[name](text) for name, text in row.items()})
            for row in csv.DictReader(file)
        ]


def _write(record: type[_Run], path: pathlib.Path, runs: Sequence[_Run]) -> None:
    names = [field.name for field in dataclasses.fields(record)]
    part = path.with_suffix(".part")
    with part.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(names)
        writer.writerows([getattr(run, name) for name in names] for run in runs)
    os.replace(part, path)
