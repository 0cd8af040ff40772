"""Runs kept in one CSV file, so that a benchmark goes on where it was stopped."""

from __future__ import annotations

import csv
import os
import pathlib
import time
from collections.abc import Callable, Hashable, Sequence
from typing import Any, Protocol, TypeVar, get_type_hints

from tf_placer.text.units import format_duration

__all__ = ["KeyedRun", "kept_or_run", "read_runs", "write_runs"]

_PARSERS: dict[type, Callable[[str], Any]] = {
    float: float,
    int: int,
    bool: lambda text: text == "True",
    str: str,
}


class KeyedRun(Protocol):
    """A run: a dataclass with attributes of the types float, int, bool and str."""

    @property
    def key(self) -> Hashable:
        """The identity of the run."""


_Run = TypeVar("_Run", bound=KeyedRun)
_Record = TypeVar("_Record")
_Key = TypeVar("_Key", bound=Hashable)


def kept_or_run(
    record: type[_Run],
    path: pathlib.Path,
    keys: Sequence[_Key],
    run: Callable[[_Key], _Run],
    *,
    only_kept: bool = False,
) -> list[_Run]:
    """Collects the runs that are kept, and makes and keeps the others.

    Args:
        record: what a run is.
        path: the file, which is written anew after every run.
        keys: which runs.
        run: makes a run.
        only_kept: whether to make no runs.

    Returns:
        The runs in the order of the keys; without those that are not kept, if no runs are made.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    runs: dict[Hashable, _Run] = {each.key: each for each in read_runs(record, path)}
    missing = [] if only_kept else [key for key in keys if key not in runs]
    start_secs = time.monotonic()
    for done, key in enumerate(missing, 1):
        runs[key] = run(key)
        write_runs(record, path, list(runs.values()))
        left_secs = (time.monotonic() - start_secs) / done * (len(missing) - done)
        left = f"{format_duration(left_secs)} left"
        print(f"{done}/{len(missing)}, {left}: {runs[key]}", flush=True)
    return [runs[key] for key in keys if key in runs]


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
